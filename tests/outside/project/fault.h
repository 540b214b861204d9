// What may happen to a worker, and when: for programs that break on purpose.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "peel/communicator.h"

namespace outside {

// kill, stop (until somebody else has it continue), raise (an exception), exit (as if all were well), memory (no more
// of it from now on), none.
struct Fault {
  std::string kind = "none";
  std::string folder;  // gets a file `struck` with the time, a moment before it happens

  void strike() const;
};

// Hands everything on to another communicator, and strikes when a step reaches its opening or is moving its data.
class FaultyCommunicator final : public peel::Communicator {
 public:
  enum class When { never, opening, data };
  FaultyCommunicator(std::unique_ptr<peel::Communicator> inner, const Fault& fault)
      : inner_(std::move(inner)), fault_(fault) {}

  // From now on: the first collective of an exchange is its opening.
  void arm(When when) {
    when_ = when;
    opened_ = false;
  }

  [[nodiscard]] unsigned rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return inner_->size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return inner_->transport(); }
  [[nodiscard]] bool offers(peel::Collective::Kind kind, peel::ElementType type) const noexcept override {
    return inner_->offers(kind, type);
  }
  std::uint32_t open_channel() override { return inner_->open_channel(); }
  [[nodiscard]] bool interleaves() const noexcept override { return inner_->interleaves(); }
  [[nodiscard]] std::unique_ptr<peel::Operation> start(peel::Collective& what, std::uint32_t channel,
                                                       std::chrono::milliseconds timeout) override;
  void relax() override { inner_->relax(); }

 private:
  std::unique_ptr<peel::Communicator> inner_;
  Fault fault_;
  When when_ = When::never;
  bool opened_ = false;
};

// A file of the folder, as a whole or not at all, and with the time in its first line: seconds of the clock that all
// processes of a machine share.
void tell(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace outside
