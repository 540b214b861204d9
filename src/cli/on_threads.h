// Workers that are threads of this process.
#pragma once

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace peel::cli {

// part(worker) on a thread for each worker. Throws the first error of any, once all have ended.
template <typename Part>
void on_threads(unsigned workers, Part part) {
  std::mutex mutex;
  std::exception_ptr error;
  {
    std::vector<std::jthread> threads;
    for (unsigned worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&, worker] {
        try {
          part(worker);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!error) error = std::current_exception();
        }
      });
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace peel::cli
