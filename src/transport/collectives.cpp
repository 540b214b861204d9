#include "transport/collectives.h"

#include <atomic>

#include "transport/arguments.h"
#include "transport/dissemination.h"
#include "transport/gathering.h"
#include "transport/reduction.h"

namespace peel::detail {
namespace {

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
    link_->refuse_wrong_thread();
    link_->refuse_if_broken();
    require_host_memory(what, transport());
    check_arguments(what, size());
    if (what.kind == Collective::Kind::all_to_all || what.kind == Collective::Kind::all_gather) {
      return std::make_unique<Gathering>(link_, what, channel, timeout);
    }
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
