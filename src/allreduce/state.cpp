#include "peel/state.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "allreduce/history.h"
#include "peel/error.h"

namespace peel {

using detail::ChunkHistory;
using detail::StateData;

namespace {

constexpr std::uint32_t kMagic = 0x54535050;  // "PPST"
constexpr std::uint32_t kVersion = 1;

struct SavedHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t elements = 0;
  std::uint64_t step = 0;
  std::uint32_t workers = 0;
  std::uint32_t type = 0;
  std::uint64_t chunks = 0;
};
static_assert(std::has_unique_object_representations_v<SavedHeader>);
static_assert(std::has_unique_object_representations_v<ChunkHistory>);

[[noreturn]] void corrupt() {
  throw Error(ErrorCode::corrupt_message, "These bytes are not a saved state, or are damaged; start with a new one.");
}

// Keeps exchanges and other threads away for as long as it lives.
class Claim {
 public:
  explicit Claim(StateData& state) : state_(state) {
    if (state_.claim()) return;
    throw Error(ErrorCode::invalid_argument,
                "This state is in use by an exchange or by another thread; save, restore or change it before the step "
                "or after.");
  }
  ~Claim() { state_.release(); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  StateData& state_;
};

// What an exchange may rely on: sizes are sizes of this array, and no sum of them wraps.
bool sound(const ChunkHistory& chunk, std::uint64_t elements) {
  constexpr std::int32_t kLargestExponent = 2000;  // past those of doubles
  return std::has_single_bit(chunk.grain) && chunk.grain <= 1024 && chunk.phase < chunk.grain &&
         std::max({chunk.items, chunk.own_items, chunk.items_then}) <= elements && chunk.variation_permille <= 1000 &&
         chunk.has_magnitude <= 1 && std::abs(std::int64_t{chunk.magnitude}) <= kLargestExponent;
}

}  // namespace

State::State(StateOptions options) : data_(std::make_unique<StateData>()) {
  data_->options = std::move(options);
  data_->options.execution.workspace = nullptr;
}
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

const StateOptions& State::options() const noexcept { return data_->options; }
bool State::asks() const noexcept { return data_->unasked == 0; }
const Totals& State::totals() const noexcept { return data_->totals; }
const Report& State::last() const noexcept { return data_->last; }

std::optional<std::uint64_t> State::union_elements() const noexcept {
  const std::vector<ChunkHistory>& chunks = data_->chunks;
  const bool known = std::all_of(chunks.begin(), chunks.end(), [](const ChunkHistory& one) { return one.steps != 0; });
  if (chunks.empty() || !known) return std::nullopt;
  std::uint64_t elements = 0;
  for (const ChunkHistory& one : chunks) elements += one.items * one.grain;
  return std::min(elements, data_->elements);
}

void State::set_estimate_bytes(std::uint64_t bytes) {
  const Claim claim(*data_);
  data_->options.estimate_bytes = bytes;
}

std::vector<std::byte> State::serialise() const {
  const Claim claim(*data_);
  const SavedHeader header{.elements = data_->elements,
                           .step = data_->step,
                           .workers = data_->workers,
                           .type = static_cast<std::uint32_t>(data_->type),
                           .chunks = data_->chunks.size()};
  const std::size_t body = data_->chunks.size() * sizeof(ChunkHistory);
  std::vector<std::byte> bytes(sizeof(header) + body + sizeof(std::uint64_t));
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (body != 0) std::memcpy(bytes.data() + sizeof(header), data_->chunks.data(), body);
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), sizeof(header) + body);
  std::memcpy(bytes.data() + sizeof(header) + body, &checksum, sizeof(checksum));
  return bytes;
}

void State::restore(std::span<const std::byte> bytes) {
  const Claim claim(*data_);
  SavedHeader header;
  std::uint64_t checksum = 0;
  if (bytes.size() < sizeof(header) + sizeof(checksum)) corrupt();
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::size_t body = bytes.size() - sizeof(header) - sizeof(checksum);
  std::memcpy(&checksum, bytes.data() + sizeof(header) + body, sizeof(checksum));
  if (header.magic != kMagic || checksum != XXH3_64bits(bytes.data(), sizeof(header) + body)) corrupt();
  if (header.version != kVersion) {
    throw Error(ErrorCode::unsupported, "This state was saved by another version; start with a new one.");
  }
  if (header.type > 7 || header.chunks != body / sizeof(ChunkHistory) || body % sizeof(ChunkHistory) != 0) corrupt();
  std::vector<ChunkHistory> chunks(header.chunks);
  if (body != 0) std::memcpy(chunks.data(), bytes.data() + sizeof(header), body);
  if (!std::all_of(chunks.begin(), chunks.end(), [&](const auto& one) { return sound(one, header.elements); })) {
    corrupt();
  }
  data_->elements = header.elements;
  data_->step = header.step;
  data_->workers = header.workers;
  data_->type = static_cast<ElementType>(header.type);
  data_->chunks = std::move(chunks);
  data_->unasked = 0;
}

}  // namespace peel
