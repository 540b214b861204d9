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
  bool draining = false;
  std::vector<peel_job_status> jobs;
};

struct Question {
  detail::Address address;
  std::string secret;
  std::string jobs;  // the prefix of those to tell of; the secret must be one of theirs
};

// Throws peel::Error: `disagreement` if the switch has another secret for these jobs, `timeout` if it does not answer.
Status ask_status(const Question& question, std::chrono::milliseconds timeout);

}  // namespace peel::aggregator
