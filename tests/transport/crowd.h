// Workers as threads of a test: each runs the same function with its own communicator, and what one of them throws is
// kept for the test to look at.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "peel/communicator.h"
#include "peel/error.h"
#include "peel/inprocess.h"

namespace peel::test {

using Work = std::function<void(Communicator&)>;

// What each worker threw, if it did.
inline std::vector<std::optional<Error>> run_crowd(std::vector<std::unique_ptr<Communicator>>& communicators,
                                                   const Work& work) {
  std::vector<std::optional<Error>> errors(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(*communicators[rank]);
      } catch (const Error& error) {
        errors[rank] = error;
      } catch (const std::exception& error) {
        errors[rank] = Error(ErrorCode::unsupported, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::vector<std::optional<Error>> run_crowd(unsigned workers, const Work& work) {
  std::vector<std::unique_ptr<Communicator>> communicators = make_inprocess(workers);
  return run_crowd(communicators, work);
}

}  // namespace peel::test
