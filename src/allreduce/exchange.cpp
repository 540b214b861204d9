// The engine: opens, runs the courses of a few chunks at a time, and hands out what they ask for in one fixed order.
//
// Chunks under way stand in a queue. The first one steps when all it asked for is complete, and goes to the end of the
// queue; a chunk that is done makes room for the next. So the order of collectives depends on what was asked, never on
// which of them happened to complete first, and is the same on every worker.
#include "peel/exchange.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "allreduce/course.h"
#include "allreduce/estimate.h"
#include "allreduce/layout.h"
#include "allreduce/opening.h"
#include "allreduce/scatter.h"
#include "peel/error.h"

namespace peel {

namespace {

using namespace detail;

bool disabled() {
  const char* value = std::getenv("PEEL_DISABLE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// What is wrong with the arguments, or nothing.
std::string refusal(const StateData& state, const World& world, ElementType type, std::uint64_t elements,
                    Outcome outcome, bool sparse) {
  const StateOptions& o = state.options;
  if (elements > std::uint64_t{1} << 43) return "an array has at most 2^43 elements; split it.";
  if (o.grain > 1024 || (o.grain != 0 && !std::has_single_bit(o.grain))) {
    return "the grain must be 0 (found by itself) or a power of two from 1 to 1024.";
  }
  const Strategy strategy = o.strategy;
  if (!world.moves_buffers && (strategy == Strategy::split || strategy == Strategy::gather)) {
    return "this transport can only SUM and OR; use packed, sketch or auto.";
  }
  if (strategy == Strategy::dense && !world.sums.has(type)) {
    if (world.sums == SumTypes::integers()) return "this transport adds integers only; use packed, sketch or auto.";
    return "this transport cannot add " + std::string(name(type)) + "; use another strategy or auto.";
  }
  if (o.index == Index::list && strategy != Strategy::split && strategy != Strategy::gather) {
    return "lists cannot be combined by OR; use index bitmap, bloom or auto (split and gather code lists by "
           "themselves).";
  }
  if (o.average && is_integer(type)) return "integers have no average; sum them, or convert them to floats.";
  if (sparse && strategy == Strategy::dense) return "a sparse gradient has no dense sum; use another strategy or auto.";
  if (outcome == Outcome::scattered && strategy != Strategy::automatic && strategy != Strategy::dense &&
      strategy != Strategy::split) {
    return "a reduce-scatter can be dense or split; use one of them or auto.";
  }
  if (outcome == Outcome::scattered && !world.moves_buffers) {
    return "this transport can only SUM and OR, and a reduce-scatter has to move buffers; use an all-reduce.";
  }
  if (o.estimate_bytes != 0 && strategy != Strategy::automatic && strategy != Strategy::sketch) {
    return "estimates come from sketches; use strategy sketch or auto with estimate_bytes.";
  }
  return "";
}

std::string refusal(const StateData& state, const World& world, Dense x, Outcome outcome) {
  if (x.data == nullptr && x.size != 0) return "its array is a null pointer; pass the elements.";
  if (static_cast<unsigned>(x.type) > 7) return "its element type is unknown.";
  if (x.memory == Memory::device && world.device == nullptr) {
    return "its array is in device memory, which this transport cannot reach; use NCCL, or copy it to the host.";
  }
  if (x.memory == Memory::device && world.device->workers() < world.size) {
    return "its device was made for fewer workers; make one for all of them.";
  }
  if (x.memory == Memory::device && !world.sums.has(x.type)) {
    return "this transport cannot add " + std::string(name(x.type)) +
           ", and only in host memory are they turned into what it can; copy the array to the host.";
  }
  if (x.memory == Memory::device && outcome == Outcome::scattered) {
    return "a reduce-scatter works on host memory; use an all-reduce, or copy the array to the host.";
  }
  if (reinterpret_cast<std::uintptr_t>(x.data) % size_of(x.type) != 0) {
    return "its array is not aligned to the element size; copy it to aligned memory.";
  }
  return refusal(state, world, x.type, x.size, outcome, /*sparse=*/false);
}

std::string refusal(Dense x, Dense residual) {
  if (is_integer(x.type)) return "integers have no residual; sum floats, or do without estimates.";
  if (residual.size != x.size || residual.type != x.type || residual.memory != x.memory) {
    return "its residual is not like its array; give one of the same length and type, in the same memory.";
  }
  if (residual.data == nullptr && x.size != 0) return "its residual is a null pointer; pass memory for it.";
  if (reinterpret_cast<std::uintptr_t>(residual.data) % size_of(x.type) != 0) {
    return "its residual is not aligned to the element size; use aligned memory.";
  }
  return "";
}

std::string refusal(const StateData& state, const World& world, ConstSparse x) {
  const StateOptions& o = state.options;
  if (o.elements == 0 || o.grain == 0) {
    return "a sparse gradient needs .elements and .grain in the options of its state: the length of the whole array, "
           "and of one row.";
  }
  if (x.values == nullptr && !x.items.empty()) return "its values are a null pointer; pass them.";
  if (static_cast<unsigned>(x.type) > 7) return "its element type is unknown.";
  if (reinterpret_cast<std::uintptr_t>(x.values) % size_of(x.type) != 0) {
    return "its values are not aligned to the element size; copy them to aligned memory.";
  }
  std::uint64_t next = 0;
  const std::uint64_t end = (o.elements + o.grain - 1) / o.grain;
  for (const std::uint64_t item : x.items) {
    if (item < next) return "its item numbers do not increase; sort them and add up those that occur twice.";
    if (item >= end) return "item " + std::to_string(item) + " is past the end of the array.";
    next = item + 1;
  }
  return refusal(state, world, x.type, o.elements, Outcome::everywhere, /*sparse=*/true);
}

std::string sums_in_words(const SumTypes& sums) {
  if (sums == SumTypes::all()) return "";
  if (sums == SumTypes::integers()) return ", integers only";
  std::string text = ", adds only";
  for (unsigned type = 0; type < 8; ++type) {
    if (sums.has(static_cast<ElementType>(type))) text.append(" ").append(name(static_cast<ElementType>(type)));
  }
  return text;
}

// Of the memory of a GPU: about what they have had for years, and the same on every worker, as a measurement is not.
constexpr double kDeviceCopySpeed = 1e12;  // bytes per second

// One chunk under way.
struct Active {
  Chunk chunk;
  std::unique_ptr<Course> course;
  std::size_t slot = 0;
  unsigned outstanding = 0;
  std::uint32_t rounds = 0;
};

}  // namespace

class Exchange::Impl {
 public:
  Impl(State& state, const World& world, Dense x, Outcome outcome)
      : state_(state.data()), world_(world), outcome_(outcome), dense_(x), type_(x.type), elements_(x.size) {
    if (on_device()) world_.link.copy_bytes_per_second = kDeviceCopySpeed;
    open_or_release(refused_or_claimed(refusal(state_, world_, x, outcome)));
  }
  Impl(State& state, const World& world, Dense x, Dense residual)
      : state_(state.data()), world_(world), dense_(x), residual_(residual), type_(x.type), elements_(x.size) {
    if (on_device()) world_.link.copy_bytes_per_second = kDeviceCopySpeed;
    const std::string refused = refusal(state_, world_, x, Outcome::everywhere);
    open_or_release(refused_or_claimed(refused.empty() ? refusal(x, residual) : refused));
  }
  Impl(State& state, const World& world, ConstSparse x, Sparse& sum)
      : state_(state.data()),
        world_(world),
        sparse_(x),
        sum_(&sum),
        type_(x.type),
        elements_(state.options().elements) {
    open_or_release(refused_or_claimed(refusal(state_, world_, x)));
  }
  Impl(State& state, const World& world, std::string refused)
      : state_(state.data()), world_(world), type_(ElementType::float32), elements_(0) {
    open_or_release(refused.empty() ? "it gave no reason." : std::move(refused));
  }
  ~Impl() { release(); }

  Collective* next() {
    if (finished_) return nullptr;
    if (phase_ == Phase::begin) {
      phase_ = Phase::opening;
      return hand_out(opening_);
    }
    if (phase_ == Phase::differing) return nullptr;
    if (phase_ == Phase::opening && writes_at_once()) return nullptr;
    if (phase_ == Phase::explain) {
      phase_ = Phase::differing;
      return hand_out(explanation_);
    }
    if (asks_.empty()) prepare();
    if (phase_ != Phase::running || asks_.empty()) return nullptr;
    Collective* ask = asks_.front();
    asks_.erase(asks_.begin());
    return hand_out(*ask);
  }

  void complete(Collective& done) {
    if (&done == &opening_) return opened();
    if (&done == &explanation_) return raise();
    for (const auto& active : queue_) {
      for (Collective& one : active->chunk.slot.collectives) {
        if (&one == &done && active->outstanding != 0) {
          --active->outstanding;
          return;
        }
      }
    }
    throw Error(ErrorCode::invalid_argument, "This collective is not one that the exchange handed out.");
  }

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  [[nodiscard]] bool moving() const noexcept { return phase_ == Phase::running && !finished_; }
  [[nodiscard]] const Report& report() const noexcept { return report_; }

 private:
  enum class Phase : std::uint8_t { begin, opening, explain, differing, running };

  [[nodiscard]] bool sparse() const { return sum_ != nullptr; }
  [[nodiscard]] bool on_device() const { return dense_.memory == Memory::device; }
  [[nodiscard]] const StateOptions& options() const { return state_.options; }

  // What was asked for before all had agreed was not handed out.
  void withdraw() {
    for (const auto& active : queue_) active->course->withdraw();
    asks_.clear();
    queue_.clear();
  }

  // Gives back the state of an exchange that did not finish: the others may think otherwise of it, so all ask again.
  void release() {
    if (!holds_state_) return;
    if (phase_ != Phase::running) withdraw();
    for (Slot& slot : state_.slots) {
      if (slot.device != nullptr) slot.device->abandon();
      slot.device = nullptr;
    }
    state_.unasked = 0;
    state_.release();
  }

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
    start_ = std::chrono::steady_clock::now();
    report_.workers = world_.size;
    report_.exactness = Exactness::rounded_once;
    if (refused.empty()) remember_array();
    if (world_.size == 1) {
      if (!refused.empty()) throw Error(ErrorCode::invalid_argument, "Worker 0 cannot take part: " + refused);
      return finish_alone();
    }
    terms_.refuse(refused);
    name_terms();
    lasting_terms_ = terms_.fingerprint();
    terms_.add("number of the exchange", std::to_string(world_.number));
    if (refused.empty() && is_understood()) return plan_dense();
    if (holds_state_) state_.unasked = 0;  // until all have agreed again
    if (refused.empty()) plan_chunks();
    // A state that is not ours may change while it is read.
    opening_words_ = make_opening(terms_.fingerprint(), holds_state_ ? choices_fingerprint() : 0,
                                  (disabled() ? kOpeningDisabled : 0) | (terms_.refused() ? kOpeningRefused : 0));
    opening_.kind = Collective::Kind::bit_or;
    opening_.data = std::as_writable_bytes(std::span<std::uint64_t>(opening_words_));
  }

  // A chunk may be encoded while the opening is under way, which may yet refuse it or plan it anew; so nothing may be
  // written then. A dense course averages in place, and gains nothing by an early start; on a device a sketch does so,
  // too.
  [[nodiscard]] bool writes_at_once() const {
    if (outcome_ == Outcome::scattered || choices_.empty()) return false;
    const bool averages_first = on_device() && options().average && choices_[0].strategy == Strategy::sketch;
    return averages_first || choices_[0].strategy == Strategy::dense;
  }

  // All workers count these steps alike, from one at which they agreed.
  [[nodiscard]] bool is_understood() {
    if (state_.unasked == 0 || state_.agreed_terms != lasting_terms_) return false;
    --state_.unasked;
    return true;
  }

  void plan_dense() {
    for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
      choices_.push_back(
          {Strategy::dense, plan_for(Strategy::dense, options(), world_, shape_of(c), state_.chunks[c])});
    }
    phase_ = Phase::running;
    asked_ = false;
  }

  // Called at the end of an exchange that opened.
  void trust_if_dense() {
    const bool dense = outcome_ == Outcome::everywhere && !report_.reset &&
                       std::all_of(choices_.begin(), choices_.end(),
                                   [](const Choice& choice) { return choice.strategy == Strategy::dense; });
    state_.unasked = dense ? options().unasked_steps : 0;
    state_.agreed_terms = lasting_terms_;
  }

  // Another array than last time: what was learned is of no use.
  void remember_array() {
    layout_ = outcome_ == Outcome::scattered ? cut_shares(options(), elements_, type_, world_.size)
              : sparse()                     ? cut_sparse(options())
              : on_device()                  ? cut_device(options(), elements_, type_)
                                             : cut_dense(options(), elements_, type_);
    const bool same = state_.elements == elements_ && state_.type == type_ && state_.workers == world_.size &&
                      state_.chunks.size() == layout_.chunks.size() && has_given_grain();
    if (!same) forget();
    state_.elements = elements_;
    state_.type = type_;
    state_.workers = world_.size;
  }

  // A state may have been restored from one with another grain, or with one that was found.
  [[nodiscard]] bool has_given_grain() const {
    const std::uint32_t given = options().grain;
    return given == 0 || std::all_of(state_.chunks.begin(), state_.chunks.end(), [&](const ChunkMemory& memory) {
             return memory.grain == given && memory.phase == 0;
           });
  }

  void forget() {
    state_.unasked = 0;
    state_.chunks.assign(layout_.chunks.size(), {});
    for (ChunkMemory& memory : state_.chunks) memory.grain = std::max(1u, options().grain);
  }

  void name_terms() {
    const StateOptions& o = options();
    const auto number = [](auto value) { return std::to_string(value); };
    terms_.add("version", PEEL_VERSION);
    terms_.add("session", number(world_.session));
    terms_.add("workers", number(world_.size));
    terms_.add("elements", number(elements_));
    terms_.add("type", std::string(peel::name(type_)));
    terms_.add("view", sparse() ? "sparse" : "dense");
    terms_.add("memory", std::string(peel::name(dense_.memory)));
    terms_.add("outcome", outcome_ == Outcome::scattered ? "reduce-scatter" : "all-reduce");
    terms_.add("strategy", std::string(peel::name(o.strategy)));
    terms_.add("grain", number(o.grain));
    terms_.add("combines by", o.average ? "average" : "sum");
    terms_.add("index", std::string(peel::name(o.index)));
    terms_.add("cells", std::string(peel::name(o.cells)));
    terms_.add("estimate bytes", number(o.estimate_bytes));
    terms_.add("chunk bytes", number(o.chunk_bytes));
    terms_.add("seed", number(o.seed));
    terms_.add("residual", residual_.data != nullptr ? "yes" : "no");
    terms_.add("unasked steps", number(o.unasked_steps));
    terms_.add("transport",
               std::string(world_.moves_buffers ? "moves buffers" : "sums and ors") + sums_in_words(world_.sums));
  }

  [[nodiscard]] ChunkShape shape_of(std::size_t chunk) const {
    const std::uint64_t elements = layout_.chunks[chunk].end - layout_.chunks[chunk].begin;
    ChunkShape shape{.elements = elements, .type = type_, .sparse = sparse(), .memory = dense_.memory};
    if (!estimates_.empty()) shape.estimate_bytes = estimates_[chunk];
    return shape;
  }

  void plan_chunks() {
    choices_.clear();
    // Once for all chunks: while they run, what is remembered of them changes.
    estimates_.clear();
    if (options().estimate_bytes != 0) estimates_ = share_estimate(options().estimate_bytes, layout_, state_.chunks);
    try {
      for (std::size_t c = 0; c < layout_.chunks.size(); ++c) choices_.push_back(choose_for(c));
    } catch (const Error& error) {  // options that no plan can have: every worker shall know
      terms_.refuse(error.what());
    }
  }

  [[nodiscard]] Choice choose_for(std::size_t c) const {
    const ChunkShape shape = shape_of(c);
    const ChunkMemory& memory = state_.chunks[c];
    if (disabled_) return plain_choice(options(), world_, shape, memory);
    if (outcome_ == Outcome::scattered) {
      return {choose_scatter(options(), memory, shape.elements * world_.size, size_of(type_)),
              plan_for(Strategy::dense, options(), world_, shape, {})};
    }
    Choice choice = choose(options(), world_, shape, memory);
    choice.likely_bytes = likely_bytes(choice, world_, memory);
    return choice;
  }

  // Of what was chosen, not of what it was chosen by: machines may differ in the last bit of a logarithm.
  [[nodiscard]] std::uint64_t choices_fingerprint() const {
    std::vector<std::uint64_t> words;
    for (const Choice& choice : choices_) {
      words.push_back(static_cast<std::uint64_t>(choice.strategy));
      words.push_back(choice.plan.fingerprint());
      words.insert(words.end(), choice.likely_bytes.begin(), choice.likely_bytes.end());
    }
    for (const ChunkMemory& memory : state_.chunks) {
      words.push_back(memory.steps == 0 ? 0 : 1);
      words.push_back(memory.has_magnitude);
    }
    return XXH3_64bits(words.data(), words.size() * sizeof(std::uint64_t));
  }

  void opened() {
    const OpeningResult result = read_opening(opening_words_);
    if (!result.agreed || (result.flags & kOpeningRefused) != 0) return prepare_explanation();
    phase_ = Phase::running;
    const bool disable = (result.flags & kOpeningDisabled) != 0;
    if (result.planned && !disable) return;
    if (!result.planned) {
      report_.reset = true;
      if (options().log) options().log("The workers had chosen differently; all take the common default this step.");
      world_.link = {};
      forget();
    }
    disabled_ = disable;
    withdraw();
    admitted_ = 0;
    free_slots_.clear();
    plan_chunks();
    if (terms_.refused()) {
      throw Error(ErrorCode::invalid_argument, "No worker can take part: " + terms_.refusal());
    }
  }

  void prepare_explanation() {
    if (!world_.moves_buffers) {
      if (terms_.refused()) {
        throw Error(ErrorCode::invalid_argument, "This worker cannot take part: " + terms_.refusal());
      }
      throw Error(ErrorCode::disagreement,
                  "Workers differ in arrays, options or version, or one was called wrongly; compare their logs.");
    }
    own_terms_ = terms_.serialise();
    explanation_.kind = Collective::Kind::all_gather;
    explanation_.send.assign(1, own_terms_);
    explanation_.received.resize(world_.size);
    phase_ = Phase::explain;
  }

  [[noreturn]] void raise() {
    std::vector<std::vector<std::byte>> of_all(world_.size);
    for (unsigned w = 0; w < world_.size; ++w) {
      const Buffer<std::byte>& one = explanation_.received[w];
      of_all[w] = w == world_.rank ? own_terms_ : std::vector<std::byte>(one.data(), one.data() + one.size());
    }
    const bool refused = (read_opening(opening_words_).flags & kOpeningRefused) != 0;
    throw Error(refused ? ErrorCode::invalid_argument : ErrorCode::disagreement, explain_difference(of_all));
  }

  // Lets chunks step until one asks for something, or until the first one has to wait.
  void prepare() {
    for (;;) {
      admit();
      if (queue_.empty()) {
        if (phase_ == Phase::running) finish();
        return;
      }
      Active& first = *queue_.front();
      if (first.outstanding != 0) return;
      first.course->step(first.chunk, asks_);
      if (asks_.empty()) {
        retire(first);
        continue;
      }
      first.outstanding = static_cast<unsigned>(asks_.size());
      report_.rounds = std::max(report_.rounds, ++first.rounds);
      queue_.push_back(std::move(queue_.front()));
      queue_.pop_front();
      return;
    }
  }

  void admit() {
    if (admitted_ == 0 && free_slots_.empty()) {
      for (std::size_t s = 0; s < kChunksInFlight; ++s) free_slots_.push_back(s);
      parts_.assign(sparse() ? layout_.chunks.size() : 0, {});
    }
    while (admitted_ < choices_.size() && !free_slots_.empty()) {
      const std::size_t slot = free_slots_.front();
      free_slots_.pop_front();
      queue_.push_back(make_active(admitted_++, slot));
    }
  }

  std::unique_ptr<Active> make_active(std::size_t number, std::size_t slot_number) {
    Slot& slot = state_.slots[slot_number];
    slot.prepare(world_.size);
    auto active = std::make_unique<Active>(Active{.chunk = {.world = world_,
                                                            .options = options(),
                                                            .memory = state_.chunks[number],
                                                            .slot = slot,
                                                            .report = report_,
                                                            .energy = energy_,
                                                            .shape = shape_of(number),
                                                            .view = view_of(number, slot),
                                                            .choice = choices_[number],
                                                            .residual = residual_of(number)},
                                                  .course = nullptr,
                                                  .slot = slot_number});
    active->course = make_course_for(number, active->chunk);
    if (!active->chunk.estimates()) active->chunk.clear_residual();
    return active;
  }

  [[nodiscard]] Dense residual_of(std::size_t number) const {
    if (residual_.data == nullptr) return {};
    const Share range = layout_.chunks[number];
    return {static_cast<std::byte*>(residual_.data) + range.begin * size_of(type_), range.end - range.begin, type_,
            residual_.memory};
  }

  std::unique_ptr<Course> make_course_for(std::size_t number, Chunk& chunk) {
    if (outcome_ == Outcome::scattered) return make_scatter(dense_, pieces_of(number));
    if (!on_device()) return make_course(chunk.choice.strategy);
    if (chunk.slot.device == nullptr || !chunk.slot.device->is_of(*world_.device)) {
      chunk.slot.device = world_.device->make_slot();
    }
    return world_.device->make_course(chunk.choice.strategy);
  }

  [[nodiscard]] double factor() const { return options().average ? 1.0 / world_.size : 1.0; }

  [[nodiscard]] ChunkView view_of(std::size_t number, Slot& slot) {
    const Share range = layout_.chunks[number];
    if (!sparse()) {
      return ChunkView(Dense(static_cast<std::byte*>(dense_.data) + range.begin * size_of(type_),
                             range.end - range.begin, type_, dense_.memory),
                       factor());
    }
    const std::uint64_t grain = options().grain;
    const std::uint64_t first = range.begin / grain;
    const auto begin = std::lower_bound(sparse_.items.begin(), sparse_.items.end(), first);
    const auto end = std::lower_bound(begin, sparse_.items.end(), (range.end + grain - 1) / grain);
    slot.items.assign(begin, end);
    for (std::uint64_t& item : slot.items) item -= first;
    const std::size_t offset = static_cast<std::size_t>(begin - sparse_.items.begin()) * grain * size_of(type_);
    const auto* values = static_cast<const std::byte*>(sparse_.values);
    return {ConstSparse(slot.items, values == nullptr ? nullptr : values + offset, type_), range.end - range.begin,
            factor(), parts_[number]};
  }

  [[nodiscard]] std::vector<Share> pieces_of(std::size_t number) const {
    std::vector<Share> pieces;
    for (unsigned w = 0; w < world_.size; ++w) {
      const Share share = share_of(elements_, world_.size, w);
      pieces.push_back({std::min(share.end, share.begin + layout_.chunks[number].begin),
                        std::min(share.end, share.begin + layout_.chunks[number].end)});
    }
    return pieces;
  }

  void retire(Active& done) {
    const Choice& choice = done.chunk.choice;
    used_[{choice.strategy, choice.plan.grain()}] += done.chunk.shape.elements;
    report_.index = choice.plan.index();
    free_slots_.push_back(done.slot);
    queue_.pop_front();
  }

  void finish() {
    report_.chunks = static_cast<std::uint32_t>(layout_.chunks.size());
    std::uint64_t most = 0;
    for (const auto& [what, elements] : used_) {
      if (elements > most) {
        most = elements;
        report_.strategy = what.first;
        report_.grain = what.second;
      }
    }
    if (sparse()) join_parts();
    const double ring = outcome_ == Outcome::scattered ? 1 : 2;
    report_.dense_bytes = static_cast<std::uint64_t>(ring * (world_.size - 1) / world_.size *
                                                     static_cast<double>(elements_ * size_of(type_)));
    for (const Slot& slot : state_.slots) report_.workspace_bytes += slot.memory_bytes();
    if (asked_) trust_if_dense();
    report_.estimate_error = energy_.error();
    warn_of_error();
    close();
  }

  void warn_of_error() {
    const std::uint64_t step = state_.step + 1;
    const bool lately = state_.warned_step != 0 && step < state_.warned_step + kStepsBetweenWarnings;
    if (report_.estimate_error <= kLargestEstimateError || lately || !options().log) return;
    state_.warned_step = step;
    const auto percent = [](double share) { return std::to_string(std::lround(100 * share)) + "%"; };
    options().log("Estimates missed " + percent(report_.estimate_error) + " of a gradient, by its norm, and " +
                  percent(kLargestEstimateError) + " is the most that trains about as exact sums do: " +
                  std::to_string(report_.lost) + " of " + std::to_string(report_.items) + " items did not peel in " +
                  std::to_string(options().estimate_bytes) + " bytes. Give estimates a larger share.");
  }

  void finish_alone() {
    report_.strategy = sparse() ? Strategy::gather : Strategy::dense;
    if (sparse()) {
      sum_->type = type_;
      sum_->items.assign(sparse_.items.begin(), sparse_.items.end());
      const std::size_t bytes = sparse_.items.size() * options().grain * size_of(type_);
      const auto* values = static_cast<const std::byte*>(sparse_.values);
      sum_->values.assign(values, values + bytes);
    }
    clear(world_, residual_);
    close();
  }

  void close() {
    report_.total_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    report_.wire_s = std::max(0.0, report_.total_s - report_.encode_s - report_.decode_s);
    report_.step = ++state_.step;
    state_.totals.add(report_);
    state_.last = report_;
    state_.release();
    holds_state_ = false;
    finished_ = true;
  }

  void join_parts() {
    if (parts_.size() == 1) {
      *sum_ = std::move(parts_[0]);
      sum_->type = type_;
      return;
    }
    std::size_t items = 0;
    std::size_t bytes = 0;
    for (const Sparse& part : parts_) {
      items += part.items.size();
      bytes += part.values.size();
    }
    sum_->type = type_;
    sum_->items.clear();
    sum_->values.clear();
    sum_->items.reserve(items);
    sum_->values.reserve(bytes);
    for (std::size_t c = 0; c < parts_.size(); ++c) {
      const std::uint64_t first = layout_.chunks[c].begin / options().grain;
      for (const std::uint64_t item : parts_[c].items) sum_->items.push_back(first + item);
      sum_->values.insert(sum_->values.end(), parts_[c].values.begin(), parts_[c].values.end());
      parts_[c] = {};
    }
  }

  // Of one worker's part, which has several pieces only in device memory.
  [[nodiscard]] std::uint64_t wire_bytes(const Collective& ask, std::size_t part) const {
    const std::size_t pieces = std::max<std::size_t>(1, ask.into.size() / world_.size);
    std::uint64_t bytes = 0;
    for (std::size_t p = 0; p < pieces; ++p) bytes += ask.send[part * pieces + p].size();
    return std::max<std::uint64_t>(bytes, world_.sends_room ? ask.likely_bytes : 0);
  }

  Collective* hand_out(Collective& ask) {
    ask.sequence = sequence_++;
    const std::uint64_t others = world_.size - 1;
    switch (ask.kind) {
      case Collective::Kind::sum:
      case Collective::Kind::bit_or:
        report_.bytes_sent += 2 * others * ask.data.size() / world_.size;
        break;
      case Collective::Kind::all_to_all:
        for (unsigned w = 0; w < world_.size; ++w) report_.bytes_sent += w == world_.rank ? 0 : wire_bytes(ask, w);
        break;
      case Collective::Kind::all_gather:
        report_.bytes_sent += others * wire_bytes(ask, 0);
        break;
      case Collective::Kind::settle:
        break;
    }
    return &ask;
  }

  StateData& state_;
  World world_;
  Outcome outcome_ = Outcome::everywhere;
  Dense dense_;
  Dense residual_;
  ConstSparse sparse_;
  Sparse* sum_ = nullptr;
  ElementType type_;
  std::uint64_t elements_;

  Phase phase_ = Phase::begin;
  bool finished_ = false;
  bool holds_state_ = false;
  bool disabled_ = false;
  bool asked_ = true;  // it opened, or will
  Terms terms_;
  std::uint64_t lasting_terms_ = 0;  // the fingerprint of those that hold for more than one exchange
  Opening opening_words_ = {};
  Collective opening_;
  Collective explanation_;
  std::vector<std::byte> own_terms_;

  Layout layout_;
  std::vector<Choice> choices_;
  std::vector<std::uint64_t> estimates_;  // bytes of each chunk, or none
  std::size_t admitted_ = 0;
  std::deque<std::size_t> free_slots_;
  std::deque<std::unique_ptr<Active>> queue_;
  Asks asks_;  // of the chunk that stepped last, not handed out yet
  std::uint32_t sequence_ = 0;
  std::vector<Sparse> parts_;  // sums of sparse chunks
  std::map<std::pair<Strategy, std::uint32_t>, std::uint64_t> used_;
  Report report_;
  StepEnergy energy_;
  std::chrono::steady_clock::time_point start_;
};

Exchange::Exchange(State& state, const World& world, Dense x, Outcome outcome)
    : impl_(std::make_unique<Impl>(state, world, x, outcome)) {}
Exchange::Exchange(State& state, const World& world, Dense x, Dense residual)
    : impl_(std::make_unique<Impl>(state, world, x, residual)) {}
Exchange::Exchange(State& state, const World& world, ConstSparse x, Sparse& sum)
    : impl_(std::make_unique<Impl>(state, world, x, sum)) {}
Exchange::Exchange(State& state, const World& world, std::string refusal)
    : impl_(std::make_unique<Impl>(state, world, std::move(refusal))) {}
Exchange::~Exchange() = default;
Collective* Exchange::next() { return impl_->next(); }
void Exchange::complete(Collective& done) { impl_->complete(done); }
bool Exchange::finished() const noexcept { return impl_->finished(); }
bool Exchange::moving() const noexcept { return impl_->moving(); }
const Report& Exchange::report() const noexcept { return impl_->report(); }

}  // namespace peel
