#include "transport/collectives.h"

#include <atomic>
#include <string>

#include "transport/combine.h"
#include "transport/dissemination.h"
#include "transport/gathering.h"
#include "transport/reduction.h"

namespace peel::detail {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void check_data(const Collective& what) {
  const std::size_t element = element_bytes(what.kind, what.type);
  if (what.data.size() % element != 0) {
    refuse("A " + std::string(name(what.kind)) + " of " + std::to_string(what.data.size()) +
           " bytes ends inside an element; pass a multiple of " + std::to_string(element) + ".");
  }
  if (reinterpret_cast<std::uintptr_t>(what.data.data()) % element != 0) {
    refuse("The data of a " + std::string(name(what.kind)) + " must be aligned to their elements, " +
           std::to_string(element) + " bytes.");
  }
}

void check_send(const Collective& what, unsigned workers) {
  const std::size_t wanted = what.kind == Collective::Kind::all_gather ? 1 : workers;
  if (what.send.size() == wanted) return;
  refuse("An " + std::string(name(what.kind)) + " among " + std::to_string(workers) + " workers needs " +
         std::to_string(wanted) + " buffers to send, not " + std::to_string(what.send.size()) + ".");
}

class PeerCommunicator final : public Communicator {
 public:
  explicit PeerCommunicator(std::shared_ptr<PointToPoint> link) : link_(std::move(link)) {}
  ~PeerCommunicator() override { link_->close(); }
  PeerCommunicator(const PeerCommunicator&) = delete;
  PeerCommunicator& operator=(const PeerCommunicator&) = delete;

  [[nodiscard]] unsigned rank() const noexcept override { return link_->rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return link_->size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return link_->transport(); }
  [[nodiscard]] bool offers(Collective::Kind, ElementType) const noexcept override { return true; }
  std::uint32_t open_channel() override { return channels_.fetch_add(1, std::memory_order_relaxed); }
  void relax() override { link_->relax(); }

  std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel,
                                   std::chrono::milliseconds timeout) override {
    link_->refuse_if_broken();
    const bool moves = what.kind == Collective::Kind::all_to_all || what.kind == Collective::Kind::all_gather;
    if (moves) {
      check_send(what, size());
      return std::make_unique<Gathering>(link_, what, channel, timeout);
    }
    check_data(what);
    if (Dissemination::suits(what, size())) return std::make_unique<Dissemination>(link_, what, channel, timeout);
    return std::make_unique<Reduction>(link_, what, channel, timeout);
  }

 private:
  std::shared_ptr<PointToPoint> link_;
  std::atomic<std::uint32_t> channels_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> communicate_over(std::shared_ptr<PointToPoint> link) {
  return std::make_unique<PeerCommunicator>(std::move(link));
}

}  // namespace peel::detail
