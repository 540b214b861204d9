#include "allreduce/choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "allreduce/view.h"
#include "items/item_message.h"
#include "peel/error.h"

namespace peel::detail {

namespace {

// What coding costs, as multiples of copying: bytes that could have been copied in the time. Fitted to the encode and
// decode times of bench/network/run, four workers on two Ice Lake cores, where a copy in cache moves 10 GB/s.
constexpr double kScan = 1.2;        // of the array
constexpr double kExpand = 1.5;      // of the array, where sums are written as a whole
constexpr double kPatchItem = 40;    // an item of the union, where they are written one by one
constexpr double kBloom = 2.5;       // of the array: reading a filter out, beside the bitmap's scan and expand
constexpr double kAddDense = 1;      // of each byte received
constexpr double kSketchItem = 500;  // an item: dealing, adding, peeling
constexpr double kListItem = 50;     // an item: coding its position in a list, or decoding it
constexpr double kBitmapItem = 10;   // the same with a bitmap
constexpr double kAddItem = 60;      // an item of one worker
constexpr double kPackMissing = 30;  // an item of the union that a worker does not have: leaving room for it
constexpr double kHandling = 3;      // of each byte of values: packing, copying, unpacking
constexpr double kOpenBitmap = 3;    // of a bitmap that a message becomes: passes to clear, count and add it
// Seconds that a device takes to read a message, however short it is: a handful of kernels one after another. Sums of
// four workers on an H200 took 36 us a message more than their passes over memory do with 26 chunks of 64 MiB, and 60
// with 2 (gather), and 36 with 9 (split).
constexpr double kReadOnDevice = 35e-6;
constexpr double kDenseMargin = 0.95;  // leave dense only for a gain that survives an error of the model

// Coding or decoding the position of one item in an item message.
double position_cost(double items, double positions) { return wants_list(positions, items) ? kListItem : kBitmapItem; }

double real(std::uint64_t value) { return static_cast<double>(value); }

struct Cost {
  double bytes = 0;   // sent by one worker
  double copied = 0;  // bytes that could have been copied in the time of coding
  double rounds = 0;
  double read = 0;  // messages of others, and its own where it comes back
};

Cost cost_of(Strategy strategy, const Plan& plan, const World& world, const ChunkShape& shape,
             const ChunkHistory& history) {
  const double workers = world.size;
  const double share = (workers - 1) / workers;
  const double array = real(plan.dense_bytes());
  const double item_bytes = real(plan.grain() * size_of(plan.type()));
  const double items = real(history.items);
  const double own = real(history.own_items);
  const double positions = real(plan.items());
  const double whole = (kScan + kExpand) * array;  // packed and sketch write every element
  const double scan = is_patched(history.items, plan.items()) ? kScan * array + kPatchItem * items : whole;
  // On a device a message is read as a bitmap over all that its sender may have, however few items there are.
  const double opened = shape.memory == Memory::device ? kOpenBitmap * positions / 8 : 0;
  switch (strategy) {
    case Strategy::dense:
      return {2 * share * array, kAddDense * share * array, 2};
    case Strategy::packed:
      return {2 * share * (real(plan.index_bytes()) + items * real(plan.grain() * plan.cell_bytes())),
              whole + (plan.index() == Index::bloom ? kBloom * array : 0) + kHandling * items * item_bytes +
                  kPackMissing * std::max(0.0, items - own),
              4};
    case Strategy::sketch:
      return {
          2 * share * real(plan.message_bytes()),
          whole + (plan.index() == Index::bloom ? kBloom * array : 0) + items * (kSketchItem + kHandling * item_bytes),
          2};
    case Strategy::split:
      return {
          share * (item_message_bytes(positions, own, item_bytes) + item_message_bytes(positions, items, item_bytes)),
          scan + own * (2 * position_cost(own, positions) + kAddItem) + 2 * items * position_cost(items, positions) +
              kHandling * (own + items) * item_bytes +
              2 * opened,  // everybody's message of one share, then the sums of all shares
          2, 2 * workers};
    default:
      return {(workers - 1) * item_message_bytes(positions, own, item_bytes),
              scan + workers * own * (position_cost(own, positions) + kAddItem) +
                  kHandling * workers * own * item_bytes + workers * opened,
              1,
              workers * (wants_list(positions, own) ? real(pieces_to_open(plan.items(), world.size, plan.dense_bytes()))
                                                    : 1)};  // bitmaps are read where they lie
  }
}

bool possible(const Choice& choice, const World& world, const ChunkShape& shape) {
  switch (choice.strategy) {
    case Strategy::dense:
      return !shape.sparse && world.sums.has(shape.type);
    case Strategy::split:
    case Strategy::gather:
      return world.moves_buffers;
    default:
      return world.sums.has(choice.plan.payload_type());
  }
}

[[noreturn]] void refuse_sum(const std::string& what) {
  throw Error(ErrorCode::unsupported, "this transport cannot add " + what +
                                          "; use another strategy, cell type or element type, or another transport.");
}

Choice require_possible(const Choice& choice, const World& world, const ChunkShape& shape) {
  if (possible(choice, world, shape)) return choice;
  refuse_sum(std::string(name(choice.plan.payload_type())) + ", as the strategy " + std::string(name(choice.strategy)) +
             " does with " + std::string(name(shape.type)));
}

// Cells that hold the type exactly enough, and that the transport can add: wider ones where it must be. Never narrower
// ones: nobody asked for less precision.
CellType integer_cells(ElementType type, const World& world) {
  const bool wide = size_of(type) == 8 || (!world.sums.has(ElementType::int32) && world.sums.has(ElementType::int64));
  return wide ? CellType::fixed64 : CellType::fixed32;
}

// Values three bits larger than the last step's still fit. Doubles beyond 2^900 have no scale that fit_scale allows:
// they overflow any, which the strategies know to mend.
std::int32_t scale_for(CellType cells, const World& world, ElementType type, const ChunkHistory& history) {
  const bool fixed = cells == CellType::fixed32 || cells == CellType::fixed64;
  if (!fixed || is_integer(type) || history.has_magnitude == 0) return 0;
  constexpr std::int32_t kRoom = 3;
  return fit_scale(std::ldexp(1.0, std::min(history.magnitude + kRoom, 900)), cells, world.size);
}

// The bytes of an item message with room for what steps and workers differ by: items that fall anywhere deviate by the
// square root of their number. Room is paid for in every step, and the lack of it with a second collective, so there is
// room for two of these and for the change of late, but not for wild ones. Whole blocks, so that rounding seldom shows.
std::uint64_t roomy_message(double positions, double items, double item_bytes, const ChunkHistory& history) {
  constexpr double kBlock = 512;
  constexpr std::uint32_t kMostPermille = 125;
  const double growth = 1 + std::min(history.variation_permille, kMostPermille) / 1000.0;
  const double most = std::min(positions, items * growth + 2 * std::sqrt(items) + 1);
  return static_cast<std::uint64_t>(std::ceil(item_message_bytes(positions, most, item_bytes) / kBlock) * kBlock);
}

}  // namespace

std::array<std::uint64_t, 2> likely_bytes(const Choice& choice, const World& world, const ChunkHistory& history) {
  if (history.steps == 0) return {};
  const double workers = world.size;
  const double positions = real(choice.plan.items());
  const double item_bytes = real(choice.plan.grain() * size_of(choice.plan.type()));
  const auto message = [&](double share, std::uint64_t items) {
    return roomy_message(positions * share, real(items) * share, item_bytes, history);
  };
  if (choice.strategy == Strategy::gather) return {message(1, history.own_items), 0};
  if (choice.strategy != Strategy::split) return {};
  return {message(1 / workers, history.own_items), message(1 / workers, history.items)};
}

std::uint64_t pieces_to_open(std::uint64_t positions, unsigned workers, std::uint64_t array_bytes) {
  constexpr std::uint64_t kAlways = std::uint64_t{1} << 20;
  const std::uint64_t budget = std::max(array_bytes / 4, kAlways);
  return std::clamp<std::uint64_t>((workers * (positions / 8) + budget - 1) / budget, 1, kMostPieces);
}

Expected expect(Strategy strategy, const Plan& plan, const World& world, const ChunkShape& shape,
                const ChunkHistory& history) {
  const Cost cost = cost_of(strategy, plan, world, shape, history);
  const double wire_s = cost.bytes / world.link.bytes_per_second;
  // A round is a message to or from every other worker. Several chunks are under way, so their bytes hide the latency
  // of messages, but messages do not hide that of each other: 2^24 float32 of four hosts at 0.1% took 22 ms at 1 gbit,
  // with 0.6 of wire and 7 of coding, and 24 at 200 mbit (bench/network/run, 0.1 ms of latency, 32 chunks).
  const double messages_s = cost.rounds * (world.size - 1) * world.link.latency_s;
  // On a device a round is one collective, and rounds of other chunks hide it in part.
  const double round_s = cost.rounds * world.link.latency_s / static_cast<double>(kChunksInFlight);
  return {.bytes = cost.bytes,
          .rounds = static_cast<std::uint32_t>(cost.rounds),
          .wire_s = wire_s,
          .latency_s = shape.memory == Memory::device ? round_s : std::max(0.0, messages_s - wire_s),
          .codec_s = cost.copied / world.link.copy_bytes_per_second +
                     (shape.memory == Memory::device ? kReadOnDevice * cost.read : 0)};
}

double expected_seconds(Strategy strategy, const Plan& plan, const World& world, const ChunkShape& shape,
                        const ChunkHistory& history) {
  const Expected expected = expect(strategy, plan, world, shape, history);
  return expected.wire_s + expected.latency_s + expected.codec_s;
}

Plan plan_for(Strategy strategy, const StateOptions& options, const World& world, const ChunkShape& shape,
              const ChunkHistory& history) {
  PlanOptions o;
  o.elements = shape.elements;
  o.type = shape.type;
  o.workers = world.size;
  o.grain = history.grain;
  o.phase = history.phase;
  o.seed = options.seed;
  o.index = Index::bitmap;
  if (strategy != Strategy::packed && strategy != Strategy::sketch) return Plan::make(o);

  o.expected_items = history.items;
  o.index = options.index;
  o.allow_bloom = history.steps != 0 && !shape.sparse;
  o.headroom_permille = history.headroom_permille();
  o.codec = strategy == Strategy::sketch ? Codec::sketch : Codec::packed;
  o.cells = strategy == Strategy::sketch || options.cells == CellType::native ? options.cells : CellType::automatic;
  if (strategy == Strategy::sketch && (o.cells == CellType::native || o.cells == CellType::automatic)) {
    o.cells = integer_cells(shape.type, world);
  }
  if (strategy == Strategy::packed && !world.sums.has(shape.type)) o.cells = integer_cells(shape.type, world);
  o.scale = scale_for(o.cells, world, shape.type, history);
  if (strategy == Strategy::sketch && shape.estimate_bytes != 0) {
    o.payload_bytes = shape.estimate_bytes;
    // Other cells in every step: what one step cannot tell apart, and feeds back, the next one can.
    o.seed = options.seed + history.steps;
  }
  Plan plan = Plan::make(o);
  if (options.index != Index::automatic || plan.index() != Index::bloom) return plan;
  // A filter saves bytes and costs a pass over all items: take it where the wire is slow enough.
  o.index = Index::bitmap;
  Plan bitmap = Plan::make(o);
  const auto seconds = [&](const Plan& with) {
    const Expected expected = expect(strategy, with, world, shape, history);
    return expected.wire_s +
           expected.codec_s;  // both have the same messages, and other chunks use what bytes are saved
  };
  const bool pays = seconds(plan) < seconds(bitmap);
  return pays ? plan : bitmap;
}

Choice choose(const StateOptions& options, const World& world, const ChunkShape& shape, const ChunkHistory& history) {
  const auto with = [&](Strategy strategy) -> Choice {
    return {strategy, plan_for(strategy, options, world, shape, history)};
  };
  const auto only = [&](Strategy strategy) { return require_possible(with(strategy), world, shape); };
  if (shape.estimate_bytes != 0) return only(Strategy::sketch);
  if (options.strategy != Strategy::automatic) return only(options.strategy);
  if (history.steps == 0 && world.moves_buffers) return with(Strategy::split);
  if (history.steps == 0) {
    const Choice packed = with(Strategy::packed);
    if (possible(packed, world, shape)) return packed;
  }

  std::optional<Choice> best;
  double least = 0;
  for (const Strategy strategy :
       {Strategy::dense, Strategy::split, Strategy::gather, Strategy::packed, Strategy::sketch}) {
    // Sums of fixed cells are rounded to a shared scale: not what somebody gets who did not ask for it.
    if (strategy == Strategy::sketch && world.moves_buffers) continue;
    const Choice choice = with(strategy);
    if (!possible(choice, world, shape)) continue;
    const double seconds = expected_seconds(strategy, choice.plan, world, shape, history) *
                           (strategy == Strategy::dense ? kDenseMargin : 1);
    if (!best || seconds < least) {
      best = choice;
      least = seconds;
    }
  }
  if (!best) refuse_sum(std::string(name(shape.type)) + ", nor the integers that they could be turned into");
  return *best;
}

Choice plain_choice(const StateOptions& options, const World& world, const ChunkShape& shape,
                    const ChunkHistory& history) {
  const Strategy summing = shape.sparse || !world.sums.has(shape.type) ? Strategy::packed : Strategy::dense;
  const Strategy moving = shape.sparse ? Strategy::gather : Strategy::split;
  const Strategy plain = summing == Strategy::packed && world.moves_buffers ? moving : summing;
  return require_possible({plain, plan_for(plain, options, world, shape, history)}, world, shape);
}

}  // namespace peel::detail
