#include "allreduce/tagged_index.h"

#include "allreduce/calibration.h"

namespace peel::detail {

void TaggedIndex::ask(Chunk& chunk, const Vitals& own, Asks& asks) {
  ChunkScratch& scratch = chunk.scratch;
  index_words_ = scratch.message.index.size();
  scratch.message.index.resize(index_words_ + kVitalWords);
  write_vitals(chunk.view.type(), own, vitals(scratch));
  Collective& index = scratch.collectives[0];
  index.kind = Collective::Kind::bit_or;
  index.data = std::as_writable_bytes(std::span<std::uint64_t>(scratch.message.index));
  asks.push_back(&index);
}

void TaggedIndex::ask_vitals(Chunk& chunk, Asks& asks) {
  const Timed timed(chunk.report.encode_s, "peel calibrate");
  const Plan native = plan_for(Strategy::split, chunk.options, chunk.world, chunk.shape, chunk.history);
  chunk.view.scan(native, chunk.scratch.support, chunk.execution());
  chunk.scratch.message.index.resize(0);
  ask(chunk, own_vitals(chunk), asks);
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
