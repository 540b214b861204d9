// One channel of a communicator and the numbers of its collectives.
#pragma once

#include <cstdint>
#include <memory>

#include "nccl_checks.h"
#include "peel/communicator.h"

namespace peel::testing {

class Channel {
 public:
  explicit Channel(Communicator& communicator) : communicator_(communicator), channel_(communicator.open_channel()) {}
  std::unique_ptr<Operation> start(Collective& what, milliseconds timeout = kTimeout) {
    what.sequence = sequence_++;
    return communicator_.start(what, channel_, timeout);
  }
  void perform(Collective& what, milliseconds timeout = kTimeout) {
    const std::unique_ptr<Operation> operation = start(what, timeout);
    while (!operation->test()) communicator_.relax();
  }

 private:
  Communicator& communicator_;
  std::uint32_t channel_;
  std::uint32_t sequence_ = 0;
};

}  // namespace peel::testing
