// The engine: has the workers agree, lets the chunks of the array run, and hands out what they ask for.
#include "peel/exchange.h"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "allreduce/accounting.h"
#include "allreduce/agreement.h"
#include "allreduce/chunk_plans.h"
#include "allreduce/chunk_queue.h"
#include "allreduce/summed_array.h"
#include "allreduce/validation.h"
#include "peel/error.h"

namespace peel {

namespace {

using namespace detail;

bool is_disabled() {
  const char* value = std::getenv("PEEL_DISABLE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// Of the memory of a GPU: about what they have had for years, and the same on every worker, as a measurement is not.
constexpr double kDeviceCopySpeed = 1e12;  // bytes per second

}  // namespace

class Exchange::Impl {
 public:
  Impl(State& state, const World& world, const SummedArray& array)
      : state_(state.data()), world_(world), array_(array), accounting_(world.size) {
    if (array_.on_device()) world_.link.copy_bytes_per_second = kDeviceCopySpeed;
    if (world_.scratch == nullptr) world_.scratch = std::make_shared<ScratchPool>();
    open_or_release(refused_or_claimed(refusal(state_.options, world_, array_, backend_)));
  }
  // Of a worker that has no array, and has not claimed its state.
  Impl(State& state, const World& world, std::string refused)
      : state_(state.data()), world_(world), accounting_(world.size) {
    open_or_release(refused.empty() ? "it gave no reason." : std::move(refused));
  }
  ~Impl() { release(); }

  Collective* next() {
    if (finished_) return nullptr;
    switch (phase_) {
      case Phase::begin:
        phase_ = Phase::opening;
        return accounting_.hand_out(agreement_->opening(), world_);
      case Phase::explain:
        phase_ = Phase::differing;
        return accounting_.hand_out(agreement_->explanation(), world_);
      case Phase::differing:
        return nullptr;
      case Phase::opening:  // chunks may be encoded in the meantime
        if (!plans_.writes_at_once(state_.options, array_)) queue_.advance();
        return nullptr;
      case Phase::running:
        break;
    }
    queue_.advance();
    Collective* const ask = queue_.take();
    if (ask == nullptr && queue_.done()) finish();
    return ask == nullptr ? nullptr : accounting_.hand_out(*ask, world_);
  }

  void complete(Collective& done) {
    if (agreement_ && &done == &agreement_->opening()) return opened();
    if (agreement_ && &done == &agreement_->explanation()) agreement_->raise(world_);
    if (queue_.complete(done)) return;
    throw Error(ErrorCode::invalid_argument, "This collective is not one that the exchange handed out.");
  }

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  [[nodiscard]] bool moving() const noexcept { return phase_ == Phase::running && !finished_; }
  [[nodiscard]] const Report& report() const noexcept { return accounting_.report; }

 private:
  enum class Phase : std::uint8_t { begin, opening, explain, differing, running };

  // Takes the state, and says why this exchange cannot be, or nothing. A refused one gives the state back at once:
  // until all have agreed again, all ask.
  std::string refused_or_claimed(std::string refused) {
    if (!state_.claim()) return "its state is in use by another exchange; give each bucket a state of its own.";
    holds_state_ = refused.empty();
    if (holds_state_) return "";
    state_.unasked = 0;
    state_.release();
    return refused;
  }

  // Gives back the state of an exchange that did not finish: the others may think otherwise of it, so all ask again.
  void release() {
    if (!holds_state_) return;
    if (phase_ != Phase::running) queue_.withdraw();
    queue_.abandon();
    state_.unasked = 0;
    state_.release();
  }

  // A constructor that throws has no destructor to give the state back.
  void open_or_release(const std::string& refused) {
    try {
      open(refused);
    } catch (...) {
      release();
      throw;
    }
  }

  void open(const std::string& refused) {
    if (refused.empty()) remember_array();
    if (world_.size == 1) {
      if (!refused.empty()) throw Error(ErrorCode::invalid_argument, "Worker 0 cannot take part: " + refused);
      return finish_alone();
    }
    agreement_.emplace(state_.options, world_, array_, refused);
    if (refused.empty() && state_.take_unasked_step(agreement_->lasting_terms())) {
      plans_.choose_dense(state_, world_, array_);
      phase_ = Phase::running;
      asked_ = false;
      return;
    }
    if (holds_state_) state_.unasked = 0;  // until all have agreed again
    if (refused.empty()) choose();
    // A state that is not ours may change while it is read.
    agreement_->open(holds_state_ ? plans_.fingerprint(state_) : 0, is_disabled());
  }

  void remember_array() {
    plans_ = ChunkPlans(state_.options, world_, array_);
    state_.remember({array_.elements(), array_.type(), world_.size, plans_.layout().chunks.size()});
  }

  // Options that no plan can have are told to every worker.
  void choose() {
    try {
      plans_.choose(state_, world_, array_, disabled_);
    } catch (const Error& error) {
      agreement_->refuse(error.what());
    }
  }

  void opened() {
    const OpeningResult result = agreement_->result();
    if (!result.agreed || (result.flags & kOpeningRefused) != 0) {
      agreement_->ask_why(world_);
      phase_ = Phase::explain;
      return;
    }
    phase_ = Phase::running;
    disabled_ = (result.flags & kOpeningDisabled) != 0;
    if (result.planned && !disabled_) return;
    if (!result.planned) {
      accounting_.report.reset = true;
      if (state_.options.log) {
        state_.options.log("The workers had chosen differently; all take the common default this step.");
      }
      world_.link = {};
      state_.forget(plans_.layout().chunks.size());
    }
    queue_.withdraw();
    choose();
    if (agreement_->refused()) {
      throw Error(ErrorCode::invalid_argument, "No worker can take part: " + agreement_->refusal());
    }
  }

  void finish() {
    if (array_.sparse()) array_.join(plans_.layout(), state_.options.grain, queue_.parts());
    accounting_.finish(state_, world_, array_, plans_.layout().chunks.size());
    const bool dense = !array_.scattered() && !accounting_.report.reset && plans_.all_dense();
    if (asked_ && dense) state_.trust(agreement_->lasting_terms());
    close();
  }

  void finish_alone() {
    accounting_.report.strategy = array_.sparse() ? Strategy::gather : Strategy::dense;
    array_.take_own(state_.options.grain);
    clear(world_, array_.residual());
    close();
  }

  void close() {
    accounting_.close(state_);
    state_.release();
    holds_state_ = false;
    finished_ = true;
  }

  StateData& state_;
  World world_;
  SummedArray array_;
  ChunkPlans plans_;
  Backend backend_ = Backend::automatic;  // resolved once the arguments are valid
  Accounting accounting_;
  std::optional<Agreement> agreement_;  // none where one worker is alone
  ChunkQueue queue_{world_, state_, array_, plans_, backend_, accounting_};

  Phase phase_ = Phase::begin;
  bool finished_ = false;
  bool holds_state_ = false;
  bool disabled_ = false;
  bool asked_ = true;  // it opened, or will
};

Exchange::Exchange(State& state, const World& world, Dense x, Outcome outcome)
    : impl_(std::make_unique<Impl>(state, world, SummedArray(x, outcome))) {}
Exchange::Exchange(State& state, const World& world, Dense x, Dense residual)
    : impl_(std::make_unique<Impl>(state, world, SummedArray(x, residual))) {}
Exchange::Exchange(State& state, const World& world, ConstSparse x, Sparse& sum)
    : impl_(std::make_unique<Impl>(state, world, SummedArray(x, state.options().elements, sum))) {}
Exchange::Exchange(State& state, const World& world, std::string refusal)
    : impl_(std::make_unique<Impl>(state, world, std::move(refusal))) {}
Exchange::~Exchange() = default;
Collective* Exchange::next() { return impl_->next(); }
void Exchange::complete(Collective& done) { impl_->complete(done); }
bool Exchange::finished() const noexcept { return impl_->finished(); }
bool Exchange::moving() const noexcept { return impl_->moving(); }
const Report& Exchange::report() const noexcept { return impl_->report(); }

}  // namespace peel
