// Asking a switch how it is doing.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "switch/net/datagrams.h"
#include "switch/wire/wire.h"

namespace peel::aggregator {

struct Status {
  peel_status total{};
  std::vector<peel_job_status> jobs;
};

// Throws peel::Error: `timeout` if it does not answer, which it does not with another secret.
Status ask_status(const detail::Address& address, const std::string& secret, std::chrono::milliseconds timeout);

}  // namespace peel::aggregator
