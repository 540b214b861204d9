#include "peel/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "peel/error.h"
#include "plan/integer_math.h"
#include "plan/mapping.h"
#include "plan/sizing.h"

namespace peel {

using detail::divide_up;
using detail::Geometry;
using detail::Wide;

namespace {

static_assert(std::endian::native == std::endian::little, "messages are little-endian, and so must be the machine");

constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 43;  // up to here dividing by `blocks` is exact
constexpr std::uint32_t kMaxBlocks = 1u << 21;
constexpr std::uint32_t kMaxGrain = 1024;
constexpr std::int32_t kMaxScale = 900;  // 2^scale and its inverse are ordinary doubles
constexpr std::uint32_t kDescriptorVersion = 1;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

ElementType counter_type(CellType cells, ElementType type) {
  switch (cells) {
    case CellType::fixed32:
      return ElementType::int32;
    case CellType::fixed64:
      return ElementType::int64;
    case CellType::float32:
      return ElementType::float32;
    default:
      return type;
  }
}

std::size_t counter_bytes(CellType cells, ElementType type) { return size_of(counter_type(cells, type)); }

CellType choose_cells(const PlanOptions& o) {
  if (o.cells != CellType::automatic) return o.cells;
  if (o.codec == Codec::packed) return CellType::native;
  return size_of(o.type) == 8 ? CellType::fixed64 : CellType::fixed32;
}

void check_shape(std::uint64_t elements, std::uint32_t grain, std::uint32_t phase, std::uint32_t workers) {
  if (elements > kMaxElements) refuse("A plan holds at most 2^43 elements; split the array.");
  if (grain == 0 || grain > kMaxGrain || !std::has_single_bit(grain)) {
    refuse("The grain must be a power of two from 1 to 1024.");
  }
  if (phase >= grain) refuse("The phase must be below the grain.");
  if (workers == 0) refuse("A plan needs at least one worker.");
  if (workers >= 0x7FFFFFFFu) refuse("A plan holds at most 2^31 - 2 workers, so that a fixed32 sum cannot wrap.");
}

void check_cells(Codec codec, CellType cells, ElementType type, std::int32_t scale) {
  if (static_cast<unsigned>(type) > 7) refuse("The element type is unknown.");
  if (codec == Codec::sketch && cells == CellType::native) {
    refuse("A sketch needs fixed32, fixed64 or float32 cells; native values are for packed.");
  }
  if (type == ElementType::int64 && cells != CellType::native && cells != CellType::fixed64) {
    refuse("int64 elements need fixed64 cells to stay exact.");
  }
  if (is_integer(type) && cells == CellType::float32) {
    refuse("Integer elements need fixed32 or fixed64 cells to stay exact.");
  }
  const bool fixed = cells == CellType::fixed32 || cells == CellType::fixed64;
  if (scale != 0 && (!fixed || is_integer(type))) {
    refuse("A scale belongs to fixed cells of floating-point elements; leave it 0 here.");
  }
  if (scale < -kMaxScale || scale > kMaxScale) refuse("The scale must lie between -900 and 900.");
}

void set_shape(Geometry& g, std::uint64_t elements, std::uint32_t grain, std::uint32_t phase) {
  g.elements = elements;
  g.grain = grain;
  g.grain_log2 = static_cast<std::uint32_t>(std::countr_zero(grain));
  g.phase = phase;
  g.lead = (grain - phase) & (grain - 1);
  g.items = elements == 0 ? 0 : (elements + g.lead + grain - 1) >> g.grain_log2;
  g.group_log2 = g.grain_log2 >= 3 ? 0 : 3 - g.grain_log2;  // 8 elements
}

void set_sketch(Geometry& g, detail::SketchSize size) {
  if (size.blocks > kMaxBlocks) refuse("The sketch would need more than 2^21 blocks; split the array.");
  g.blocks = size.blocks;
  g.subtable = size.subtable;
  g.block_inverse = size.blocks == 1 ? 0 : ~std::uint64_t{0} / size.blocks + 1;
  g.permutation_bits = detail::permutation_bits(detail::local_ids(g.items, g.blocks, g.group_log2), g.subtable);
}

std::uint64_t item_bits(const Geometry& g) {
  const std::uint64_t bits = 8 * counter_bytes(g.cells, g.type) * g.grain;
  return g.codec == Codec::sketch ? bits * 139 / 100 : bits;
}

// Picks the index and returns how many items the payload must hold.
std::uint64_t set_index(Geometry& g, const PlanOptions& o) {
  const std::uint64_t expected = g.expected_items;
  const detail::BloomSize bloom = detail::size_bloom(g.items, expected, item_bits(g), g.codec);
  g.index = o.index;
  if (g.index == Index::automatic) {
    std::uint64_t best = g.items + expected * item_bits(g);
    g.index = Index::bitmap;
    if (o.allow_bloom && expected != 0 && bloom.total_bits < best) {
      best = bloom.total_bits;
      g.index = Index::bloom;
    }
    if (o.allow_list && detail::expected_list_bits(g.items, expected) + expected * item_bits(g) < best) {
      g.index = Index::list;
    }
  }
  if (g.index != Index::bloom) return expected;
  g.bloom_rows = bloom.rows;
  g.bloom_hashes = bloom.hashes;
  return bloom.candidates;
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The layout of docs/format.md, "Plan descriptor". `advice` is what workers may differ in.
void write_descriptor(const Geometry& g, std::byte* out, bool advice) {
  std::memset(out, 0, Plan::kDescriptorBytes);
  put<std::uint32_t>(out, kDescriptorVersion);
  put(out + 4, g.type);
  put(out + 5, g.codec);
  put(out + 6, g.cells);
  put(out + 7, g.index);
  put(out + 8, g.elements);
  put(out + 16, advice ? g.expected_items : std::uint64_t{0});
  put(out + 24, g.seed);
  put(out + 32, g.workers);
  put(out + 36, g.scale);
  put(out + 40, g.grain);
  put(out + 44, g.phase);
  put(out + 48, g.blocks);
  put(out + 52, g.subtable);
  put(out + 56, g.bloom_rows);
  put(out + 64, g.bloom_hashes);
}

std::uint64_t hash_agreement(const Geometry& g) {
  std::byte descriptor[Plan::kDescriptorBytes];
  write_descriptor(g, descriptor, /*advice=*/false);
  return XXH3_64bits(descriptor, sizeof descriptor);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  const auto hundredths = static_cast<std::uint64_t>(static_cast<Wide>(part) * 10000 / whole);
  const std::string fraction = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + "." + (fraction.size() < 2 ? "0" : "") + fraction + "%";
}

}  // namespace

Plan Plan::make(const PlanOptions& o) {
  check_shape(o.elements, o.grain, o.phase, o.workers);
  if (static_cast<unsigned>(o.codec) > 1) refuse("The codec is unknown; use packed or sketch.");
  if (static_cast<unsigned>(o.index) > 3) refuse("The index is unknown; use auto, bitmap, bloom or list.");
  if (static_cast<unsigned>(o.cells) > 4)
    refuse("The cell type is unknown; use auto, native, fixed32, fixed64 or float32.");
  if (o.headroom_permille > 1'000'000) refuse("The headroom is in thousandths, at most 1,000,000.");
  if (o.payload_bytes != 0 && o.codec != Codec::sketch) {
    refuse("Only a sketch's payload can be fixed in size; a packed one follows its index.");
  }

  Plan plan;
  Geometry& g = plan.geometry_;
  set_shape(g, o.elements, o.grain, o.phase);
  g.type = o.type;
  g.codec = o.codec;
  g.cells = choose_cells(o);
  check_cells(g.codec, g.cells, g.type, o.scale);
  g.seed = o.seed;
  g.workers = o.workers;
  g.scale = o.scale;
  const Wide roomy = static_cast<Wide>(std::min(o.expected_items, g.items)) * (1000 + o.headroom_permille) / 1000;
  g.expected_items = static_cast<std::uint64_t>(std::min<Wide>(roomy, g.items));

  const std::uint64_t candidates = set_index(g, o);
  if (g.codec == Codec::sketch) {
    const std::uint64_t cells = o.payload_bytes / (counter_bytes(g.cells, g.type) * g.grain);
    set_sketch(g, o.payload_bytes != 0 ? detail::fit_sketch(g.items, cells)
                                       : detail::size_sketch(g.items, candidates, g.group_log2));
  }
  plan.fingerprint_ = hash_agreement(g);
  return plan;
}

Plan Plan::parse(std::span<const std::byte> descriptor) {
  const auto corrupt = [](const char* sentence) { throw Error(ErrorCode::corrupt_message, sentence); };
  if (descriptor.size() != kDescriptorBytes)
    corrupt("A plan descriptor has 96 bytes; this one is truncated or too long.");
  const std::byte* in = descriptor.data();
  if (get<std::uint32_t>(in) != kDescriptorVersion) {
    throw Error(ErrorCode::unsupported, "This plan was written by another version of the format; use that release.");
  }
  Plan plan;
  Geometry& g = plan.geometry_;
  const auto type = get<std::uint8_t>(in + 4), codec = get<std::uint8_t>(in + 5);
  const auto cells = get<std::uint8_t>(in + 6), index = get<std::uint8_t>(in + 7);
  if (type > 7 || codec > 1 || cells < 1 || cells > 4 || index < 1 || index > 3) {
    corrupt("The plan names an unknown type, codec, cell or index; the message is damaged.");
  }
  g.type = static_cast<ElementType>(type);
  g.codec = static_cast<Codec>(codec);
  g.cells = static_cast<CellType>(cells);
  g.index = static_cast<Index>(index);
  g.workers = get<std::uint32_t>(in + 32);
  g.scale = get<std::int32_t>(in + 36);
  try {
    check_shape(get<std::uint64_t>(in + 8), get<std::uint32_t>(in + 40), get<std::uint32_t>(in + 44), g.workers);
    check_cells(g.codec, g.cells, g.type, g.scale);
  } catch (const Error& error) {
    corrupt((std::string("The plan in this message is damaged: ") + error.what()).c_str());
  }
  set_shape(g, get<std::uint64_t>(in + 8), get<std::uint32_t>(in + 40), get<std::uint32_t>(in + 44));
  g.expected_items = get<std::uint64_t>(in + 16);
  g.seed = get<std::uint64_t>(in + 24);
  const auto blocks = get<std::uint32_t>(in + 48), subtable = get<std::uint32_t>(in + 52);
  if (g.codec == Codec::sketch) {
    if (blocks == 0 || blocks > kMaxBlocks || subtable == 0 || subtable > detail::kMaxSubtable ||
        detail::local_ids(g.items, blocks, g.group_log2) > (std::uint64_t{1} << 32)) {
      corrupt("The plan's sketch has impossible sizes; the message is damaged.");
    }
    set_sketch(g, {blocks, subtable});
  }
  if (g.index == Index::bloom) {  // else a row or a hash is a stray byte
    g.bloom_rows = get<std::uint64_t>(in + 56);
    g.bloom_hashes = get<std::uint32_t>(in + 64);
    if (g.bloom_rows == 0 || g.bloom_rows > (kMaxElements >> 9) + 64 || g.bloom_hashes == 0 || g.bloom_hashes > 63) {
      corrupt("The plan's Bloom filter has impossible sizes; the message is damaged.");
    }
  }
  if (g.expected_items > g.items) corrupt("The plan expects more items than it has; the message is damaged.");
  std::byte again[kDescriptorBytes];
  write_descriptor(g, again, /*advice=*/true);
  if (std::memcmp(again, in, kDescriptorBytes) != 0) corrupt("The plan has stray bytes; the message is damaged.");
  plan.fingerprint_ = hash_agreement(g);
  return plan;
}

std::vector<std::byte> Plan::serialise() const {
  std::vector<std::byte> out(kDescriptorBytes);
  write_descriptor(geometry_, out.data(), /*advice=*/true);
  return out;
}

std::uint64_t Plan::elements() const noexcept { return geometry_.elements; }
ElementType Plan::type() const noexcept { return geometry_.type; }
Codec Plan::codec() const noexcept { return geometry_.codec; }
CellType Plan::cells() const noexcept { return geometry_.cells; }
Index Plan::index() const noexcept { return geometry_.index; }
std::uint32_t Plan::grain() const noexcept { return geometry_.grain; }
std::uint32_t Plan::phase() const noexcept { return geometry_.phase; }
std::uint32_t Plan::workers() const noexcept { return geometry_.workers; }
std::int32_t Plan::scale() const noexcept { return geometry_.scale; }
std::uint64_t Plan::seed() const noexcept { return geometry_.seed; }
std::uint64_t Plan::items() const noexcept { return geometry_.items; }
std::uint64_t Plan::expected_items() const noexcept { return geometry_.expected_items; }
std::uint64_t Plan::blocks() const noexcept { return geometry_.blocks; }
std::uint64_t Plan::cells_per_block() const noexcept { return std::uint64_t{geometry_.subtable} * detail::kSubtables; }
std::size_t Plan::cell_bytes() const noexcept { return counter_bytes(geometry_.cells, geometry_.type); }
ElementType Plan::payload_type() const noexcept { return counter_type(geometry_.cells, geometry_.type); }

std::uint64_t Plan::index_words() const noexcept {
  const Geometry& g = geometry_;
  switch (g.index) {
    case Index::bloom:
      return g.bloom_rows * detail::kBloomRowWords + 1;
    case Index::list:
      return divide_up(detail::expected_list_bits(g.items, g.expected_items), 64) + 1;
    default:
      return divide_up(g.items, 64) + 1;
  }
}

std::uint64_t Plan::index_bytes() const noexcept { return index_words() * 8; }

std::uint64_t Plan::payload_bytes() const noexcept {
  const Geometry& g = geometry_;
  if (g.codec == Codec::sketch) return blocks() * cells_per_block() * g.grain * cell_bytes();
  std::uint64_t items = g.expected_items;
  if (g.index == Index::bloom) items += (g.items - items) >> g.bloom_hashes;
  return items * g.grain * cell_bytes();
}

std::uint64_t Plan::dense_bytes() const noexcept { return geometry_.elements * size_of(geometry_.type); }

std::uint64_t Plan::lower_bound_bytes() const noexcept {
  const Geometry& g = geometry_;
  return peel::lower_bound_bytes(g.elements, std::min(g.expected_items * g.grain, g.elements),
                                 static_cast<std::uint32_t>(8 * size_of(g.type)));
}

namespace {

bool rounds_to_fixed(const Geometry& g) {
  return (g.cells == CellType::fixed32 || g.cells == CellType::fixed64) && !is_integer(g.type);
}

}  // namespace

std::uint64_t Plan::most_workers() const noexcept {
  return rounds_to_fixed(geometry_) ? geometry_.workers : kMostWorkers;
}

double Plan::error_bound() const noexcept {
  const Geometry& g = geometry_;
  if (!rounds_to_fixed(g)) return 0;
  return std::ldexp(static_cast<double>(g.workers), -g.scale - 1);
}

std::uint64_t Plan::fingerprint() const noexcept { return fingerprint_; }

std::string Plan::describe() const {
  const Geometry& g = geometry_;
  std::string text(name(g.codec));
  text += " of " + std::to_string(g.elements) + " " + std::string(name(g.type)) + ", " + std::to_string(g.workers) +
          (g.workers == 1 ? " worker" : " workers") + ", " + std::string(name(g.cells)) + " cells";
  if (error_bound() != 0) text += " at scale " + std::to_string(g.scale);
  text += ", grain " + std::to_string(g.grain);
  if (g.phase != 0) text += " from element " + std::to_string(g.phase);
  text += ", expecting " + std::to_string(g.expected_items) + " of " + std::to_string(g.items) + " items\n";
  text += "index: " + std::string(name(g.index));
  if (g.index == Index::bloom) {
    text += " of " + std::to_string(g.bloom_rows) + " rows, " + std::to_string(g.bloom_hashes) + " hashes";
  }
  text += ", " + std::to_string(index_bytes()) + " bytes\npayload: ";
  if (g.codec == Codec::sketch) {
    text += std::to_string(g.blocks) + " blocks of " + std::to_string(cells_per_block()) + " cells, ";
  }
  text += std::to_string(payload_bytes()) + " bytes\n";
  text += "message: " + percent(message_bytes(), dense_bytes()) + " of dense, " +
          percent(message_bytes(), lower_bound_bytes()) + " of the lower bound";
  return text;
}

std::uint64_t lower_bound_bytes(std::uint64_t elements, std::uint64_t nonzeros, std::uint32_t bits) {
  nonzeros = std::min(nonzeros, elements);
  // log2(2^bits - 1) is `bits` but for types of a byte or less, and rounded up here.
  const std::uint64_t value_bits = nonzeros * bits;
  return divide_up(detail::entropy_bits(elements, nonzeros) + value_bits, 8);
}

std::int32_t fit_scale(double largest, CellType cells, std::uint32_t workers) {
  if (cells != CellType::fixed32 && cells != CellType::fixed64) refuse("Only fixed32 and fixed64 cells have a scale.");
  if (workers == 0) refuse("A plan needs at least one worker.");
  if (!std::isfinite(largest)) {
    throw Error(ErrorCode::not_finite, "Fixed cells cannot hold NaN or infinity; use packed with native cells.");
  }
  largest = std::fabs(largest);
  if (largest == 0) return 0;
  const std::uint64_t limit = ((std::uint64_t{1} << (cells == CellType::fixed32 ? 31 : 63)) - 1) / workers;
  // The largest s with round(largest * 2^s) <= limit. frexp is exact, so every machine gets the same s.
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  std::int32_t scale = static_cast<std::int32_t>(std::bit_width(limit)) - exponent;
  const auto fits = [&](std::int32_t s) {
    const double scaled = std::nearbyint(std::ldexp(largest, s));
    return scaled < 0x1p63 && static_cast<std::uint64_t>(scaled) <= limit;
  };
  while (!fits(scale)) --scale;
  if (scale < -kMaxScale) {
    throw Error(ErrorCode::overflow, "Values this large are too large for fixed cells; use packed with native cells.");
  }
  return std::min(scale, kMaxScale);
}

}  // namespace peel
