// Drives one exchange over a communicator: begins what it asks for, tells it what is complete, never waits.
#pragma once

#include <memory>
#include <vector>

#include "peel/communicator.h"
#include "peel/exchange.h"

namespace peel::detail {

World world_of(Communicator& communicator, const StateOptions& options, ElementType type, Memory memory = Memory::host);

class Drive {
 public:
  Drive(Communicator& communicator, Exchange& exchange, std::uint32_t channel, std::chrono::milliseconds timeout)
      : communicator_(communicator), exchange_(exchange), channel_(channel), timeout_(timeout) {}

  [[nodiscard]] bool finished() const { return exchange_.finished(); }
  bool advance();  // false: nothing moved, and somebody else must. Errors say whether x is unchanged

 private:
  bool step();

  struct Running {
    Collective* what;
    std::unique_ptr<Operation> operation;
  };

  Communicator& communicator_;
  Exchange& exchange_;
  std::uint32_t channel_;
  std::chrono::milliseconds timeout_;
  std::vector<Running> running_;
};

}  // namespace peel::detail
