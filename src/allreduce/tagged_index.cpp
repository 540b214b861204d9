#include "allreduce/tagged_index.h"

#include "allreduce/calibration.h"

namespace peel::detail {

void TaggedIndex::request_or(Chunk& chunk, const Vitals& own, Requests& requests) {
  ChunkScratch& scratch = chunk.scratch;
  index_words_ = scratch.message.index.size();
  scratch.message.index.resize(index_words_ + kVitalWords);
  write_vitals(chunk.view.type(), own, vitals(scratch));
  request(chunk, Collective::Kind::bit_or, requests).data =
      std::as_writable_bytes(std::span<std::uint64_t>(scratch.message.index));
}

void TaggedIndex::request_summary(Chunk& chunk, Requests& requests) {
  const auto timing = chunk.place->timing(chunk, &Report::encode_s, "peel calibrate");
  const Plan native = plan_for(Strategy::split, chunk.options, chunk.world, chunk.shape, chunk.history);
  chunk.view.scan(native, chunk.scratch.support, chunk.execution());
  chunk.scratch.message.index.resize(0);
  request_or(chunk, own_vitals(chunk), requests);
}

Vitals TaggedIndex::take(Chunk& chunk) const {
  const Vitals seen = read_vitals(chunk.view.type(), vitals(chunk.scratch));
  chunk.scratch.message.index.resize(index_words_);
  return seen;
}

std::span<std::uint64_t, kVitalWords> TaggedIndex::vitals(ChunkScratch& scratch) const {
  return std::span<std::uint64_t, kVitalWords>(scratch.message.index.data() + index_words_, kVitalWords);
}

}  // namespace peel::detail
