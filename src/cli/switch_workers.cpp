#include "cli/switch_workers.h"

#include <utility>

#include "cli/failure.h"
#include "cli/on_threads.h"
#include "peel/inprocess.h"

#ifdef PEEL_HAVE_SWITCH

#include <fmt/format.h>

#include <cstdio>

#include "cli/switch_secret.h"
#include "peel/switch.h"

namespace peel::cli {
namespace {

class SwitchAndMore final : public Communicator {
 public:
  SwitchAndMore(std::unique_ptr<Communicator> through, Communicator& beside)
      : through_(std::move(through)), beside_(beside), last_(through_.get()) {}

  [[nodiscard]] unsigned rank() const noexcept override { return through_->rank(); }
  [[nodiscard]] unsigned size() const noexcept override { return through_->size(); }
  [[nodiscard]] std::string_view transport() const noexcept override { return through_->transport(); }
  [[nodiscard]] bool offers(Collective::Kind kind, ElementType type) const noexcept override {
    return through_->offers(kind, type);
  }
  [[nodiscard]] bool interleaves() const noexcept override { return false; }
  std::uint32_t open_channel() override { return through_->open_channel(); }
  std::unique_ptr<Operation> start(Collective& what, std::uint32_t channel,
                                   std::chrono::milliseconds timeout) override {
    const bool moves = what.kind == Collective::Kind::all_gather || what.kind == Collective::Kind::all_to_all;
    last_ = moves ? &beside_ : through_.get();
    return last_->start(what, moves ? beside_.open_channel() : channel, timeout);
  }
  void relax() override { last_->relax(); }

 private:
  std::unique_ptr<Communicator> through_;
  Communicator& beside_;
  Communicator* last_;  // with something under way
};

}  // namespace

std::unique_ptr<Communicator> join_switch(Communicator& beside, const SwitchAccess& access) {
  const auto tell = [&](const SwitchGrant& grant) {
    if (beside.rank() != 0 || grant.slots >= grant.slots_wanted) return;
    fmt::print(stderr,
               "peel: the switch gave {} of the {} slots that this job asked for, so sums may be slower; start it with "
               "more --slots or fewer --jobs\n",
               grant.slots, grant.slots_wanted);
  };
  return std::make_unique<SwitchAndMore>(make_switch({.address = access.address,
                                                      .secret = read_secret(access.secret_file),
                                                      .job = access.job,
                                                      .rank = beside.rank(),
                                                      .size = beside.size(),
                                                      .mtu = access.mtu,
                                                      .granted = tell}),
                                         beside);
}

}  // namespace peel::cli

#else

namespace peel::cli {

std::unique_ptr<Communicator> join_switch(Communicator&, const SwitchAccess&) {
  throw Failure("this peel was built without the transport over a switch, which needs Linux");
}

}  // namespace peel::cli

#endif

namespace peel::cli {

SwitchThreads::SwitchThreads(unsigned workers, const SwitchAccess& access)
    : beside_(make_inprocess(workers)), through_(workers) {
  on_threads(workers, [&](unsigned rank) { through_[rank] = join_switch(*beside_[rank], access); });
}

std::vector<Entrant> SwitchThreads::entrants(const Gradients& gradients, const ContestOptions& options) {
  std::vector<Entrant> all = host_entrants(std::move(through_), gradients, options);
  for (std::size_t rank = 0; options.view == View::dense && rank < all.size(); ++rank) {
    all[rank].baselines = {
        {.name = "inprocess", .dense = [&beside = *beside_[rank]](Dense x) {
           constexpr std::chrono::minutes kPatience{10};
           Collective what{.type = x.type, .data = {static_cast<std::byte*>(x.data), x.size * size_of(x.type)}};
           perform(beside, what, beside.open_channel(), kPatience);
         }}};
  }
  return all;
}

}  // namespace peel::cli
