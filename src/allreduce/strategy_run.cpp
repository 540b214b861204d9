#include "allreduce/strategy_run.h"

#include <algorithm>
#include <cstring>

#if PEEL_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace peel::detail {

namespace {

// The best grain of the sum is looked for now and then: every worker at the same steps, since all see the same sums.
// Looking takes about 2 ms for 2^20 elements, as long as all the rest: at the first step, when the union changed by a
// quarter, and else once in 64 steps or a little more often.
bool wants_grain(const Chunk& chunk) {
  if (chunk.options.grain != 0 || chunk.view.sparse()) return false;
  const ChunkHistory& history = chunk.history;
  const std::uint64_t then = history.items_then;
  const bool moved = history.items > then + then / 4 || history.items < then - then / 4;
  return history.steps <= 1 || moved || history.steady >= 64;
}

void learn_grain(Chunk& chunk, const GrainChoice& best) {
  ChunkHistory& history = chunk.history;
  const bool other = best.grain != history.grain || best.phase != history.phase;
  // Own items at another grain are not known: assume that they shrink or grow as the union does.
  if (other && history.items != 0) {
    history.own_items =
        static_cast<std::uint64_t>(static_cast<double>(history.own_items) * static_cast<double>(best.expected_items) /
                                   static_cast<double>(history.items));
  }
  history.grain = best.grain;
  history.phase = best.phase;
  history.items = best.expected_items;
  history.own_items = std::min(history.own_items, history.items);
  history.items_then = best.expected_items;
  history.steady = static_cast<std::uint32_t>(best.expected_items % 32);  // so that chunks do not all look at one step
  if (history.steps == 0) history.steps = 1;
}

}  // namespace

Timing::Timing([[maybe_unused]] const char* name) {
#if PEEL_HAVE_NVTX
  nvtxRangePushA(name);
#endif
}

Timing::~Timing() {
#if PEEL_HAVE_NVTX
  nvtxRangePop();
#endif
}

void clear(const World& world, Dense array) {
  const std::size_t bytes = array.size * size_of(array.type);
  if (bytes == 0) return;
  if (array.memory == Memory::device) {
    world.device->clear(array.data, bytes);
  } else {
    std::memset(array.data, 0, bytes);
  }
}

std::unique_ptr<StrategyRun> make_run(Strategy strategy) {
  switch (strategy) {
    case Strategy::packed:
      return make_packed();
    case Strategy::sketch:
      return make_sketch();
    case Strategy::split:
      return make_split();
    case Strategy::gather:
      return make_gather();
    default:
      return make_dense();
  }
}

void StrategyRun::step(Chunk& chunk, Requests& requests) {
  while (requests.empty() && !finished_) {
    if (looks_for_grain_) {
      learn_grain(chunk, chunk.place->best_grain(chunk));
      finish();
    } else {
      advance(chunk, requests);
    }
  }
}

void StrategyRun::finish_with_grain(Chunk& chunk, Requests& requests) {
  if (!wants_grain(chunk)) return finish();
  chunk.place->count_grains(chunk);
  chunk.place->fence(chunk, requests);
  looks_for_grain_ = true;
}

Collective& request(Chunk& chunk, Collective::Kind kind, Requests& requests, std::size_t number) {
  Collective& one = chunk.scratch.collectives[number];
  forget(one);
  one.kind = kind;
  one.memory = chunk.shape.memory;
  requests.push_back(&one);
  return one;
}

void request_sum(Chunk& chunk, ElementType type, std::span<std::byte> numbers, Requests& requests, std::size_t number) {
  Collective& sum = request(chunk, Collective::Kind::sum, requests, number);
  sum.type = type;
  sum.data = numbers;
}

void report_exactness(Report& report, Exactness exactness) {
  // From the most exact to the least.
  constexpr Exactness kOrder[] = {Exactness::rounded_once, Exactness::as_dense, Exactness::fixed_point,
                                  Exactness::estimated};
  const auto rank = [&](Exactness one) { return std::find(std::begin(kOrder), std::end(kOrder), one); };
  if (rank(exactness) > rank(report.exactness)) report.exactness = exactness;
}

void report_scale(Report& report, const Plan& plan) {
  if (plan.error_bound() <= report.error_bound) return;
  report.error_bound = plan.error_bound();
  report.scale = plan.scale();
}

// The smallest message by all indexes that there are: items that are moved may come as a list, and those that are ORed
// as a filter. With a bitmap alone, few elements that lie anywhere would seem to want pairs: half of the bits for twice
// the values.
PlanOptions grain_options(const Chunk& chunk) {
  return {.elements = chunk.view.elements(),
          .type = chunk.view.type(),
          .workers = chunk.world.size,
          .allow_bloom = !chunk.world.moves_buffers,
          .allow_list = chunk.world.moves_buffers};
}

void begin_items(Chunk& chunk, Requests& requests, const char* name) {
  const auto timing = chunk.place->timing(chunk, &Report::encode_s, name);
  chunk.place->encode_items(chunk);
  chunk.place->request_lengths(chunk, requests);
}

bool send_items(Chunk& chunk, Requests& requests) {
  if (!chunk.place->fits(chunk, requests)) return false;
  chunk.place->request_items(chunk, requests);
  return true;
}

void learn_items(Chunk& chunk, const ItemCounts& counts) {
  report_exactness(chunk.report, Exactness::rounded_once);
  chunk.report.items += counts.items;
  chunk.report.union_elements += counts.items * chunk.choice.plan.grain();
  chunk.history.learn(counts.items, (counts.added + chunk.world.size - 1) / chunk.world.size);
}

}  // namespace peel::detail
