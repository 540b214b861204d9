// Workers as threads: each runs the same body with a communicator of its own, and what it throws is kept.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "peel/communicator.h"
#include "peel/error.h"
#include "peel/inprocess.h"

namespace peel::testing {

using Communicators = std::vector<std::unique_ptr<Communicator>>;
using Errors = std::vector<std::optional<Error>>;  // of each worker; none: it ended well

// Long enough for any machine; nothing waits for it unless the test fails.
inline constexpr std::chrono::milliseconds kPatient{20'000};
// Short enough to wait for.
inline constexpr std::chrono::milliseconds kImpatient{250};

// Measuring takes time, and what comes out differs from run to run.
inline constexpr LinkFacts kSlowLink{.latency_s = 50e-6, .bytes_per_second = 125e6, .copy_bytes_per_second = 8e9};

template <typename Body>
Errors on_each(const Communicators& communicators, Body body) {
  Errors errors(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < communicators.size(); ++w) {
    threads.emplace_back([&, w] {
      try {
        body(*communicators[w]);
      } catch (const Error& error) {
        errors[w] = error;
      } catch (const std::exception& other) {
        errors[w] = Error(ErrorCode::unsupported, std::string("Not a peel::Error: ") + other.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

template <typename Body>
Errors on_each(unsigned workers, Body body) {
  return on_each(make_inprocess(workers), body);
}

inline std::string first_error(const Errors& errors) {
  for (std::size_t w = 0; w < errors.size(); ++w) {
    if (errors[w]) return "worker " + std::to_string(w) + ": " + errors[w]->what();
  }
  return "";
}

}  // namespace peel::testing
