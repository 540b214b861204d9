// The engine: has the workers agree, lets the chunks of the array run, and hands out what they ask for.
#include "peel/exchange.h"

#include <algorithm>
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

// A state is of one array with one cut: another one starts anew. It may also have been restored from one with another
// grain, or with one that was found.
bool is_of(const StateData& state, const World& world, const SummedArray& array, const Layout& layout) {
  const std::uint32_t grain = state.options.grain;
  return state.elements == array.elements() && state.type == array.type() && state.workers == world.size &&
         state.chunks.size() == layout.chunks.size() &&
         std::all_of(state.chunks.begin(), state.chunks.end(), [&](const ChunkHistory& history) {
           return grain == 0 || (history.grain == grain && history.phase == 0);
         });
}

void forget(StateData& state, std::size_t chunks) {
  state.unasked = 0;
  state.chunks.assign(chunks, {});
  for (ChunkHistory& history : state.chunks) history.grain = std::max(1u, state.options.grain);
}

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
        if (!writes_at_once()) queue_.advance();
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
    if (refused.empty() && is_understood()) {
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
    if (!is_of(state_, world_, array_, plans_.layout())) forget(state_, plans_.layout().chunks.size());
    state_.elements = array_.elements();
    state_.type = array_.type();
    state_.workers = world_.size;
  }

  // Options that no plan can have are told to every worker.
  void choose() {
    try {
      plans_.choose(state_, world_, array_, disabled_);
    } catch (const Error& error) {
      agreement_->refuse(error.what());
    }
  }

  // A chunk may be encoded while the opening is under way, which may yet refuse it or plan it anew; so nothing may be
  // written then. A dense course averages in place, and gains nothing by an early start; on a device a sketch does so,
  // too.
  [[nodiscard]] bool writes_at_once() const {
    if (array_.scattered() || plans_.choices().empty()) return false;
    const Strategy first = plans_.choices()[0].strategy;
    return first == Strategy::dense || (first == Strategy::sketch && array_.on_device() && state_.options.average);
  }

  // All workers count these steps alike, from one at which they agreed.
  [[nodiscard]] bool is_understood() {
    if (state_.unasked == 0 || state_.agreed_terms != agreement_->lasting_terms()) return false;
    --state_.unasked;
    return true;
  }

  // Called at the end of an exchange that opened.
  void trust_if_dense() {
    const bool dense = !array_.scattered() && !accounting_.report.reset && plans_.all_dense();
    state_.unasked = dense ? state_.options.unasked_steps : 0;
    state_.agreed_terms = agreement_->lasting_terms();
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
      forget(state_, plans_.layout().chunks.size());
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
    if (asked_) trust_if_dense();
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
