#include "allreduce/chunk_queue.h"

#include <algorithm>
#include <utility>

#include "allreduce/scatter.h"

namespace peel::detail {

void ChunkQueue::advance() {
  while (requests_.empty()) {
    admit();
    if (queue_.empty()) return;
    Active& first = *queue_.front();
    if (first.outstanding != 0) return;
    first.chunk.scratch.note_use();  // with what has been received
    first.chunk.place->step(*first.run, first.chunk, requests_);
    first.chunk.scratch.note_use();
    if (requests_.empty()) {
      retire();
      continue;
    }
    first.outstanding = static_cast<unsigned>(requests_.size());
    accounting_.report.rounds = std::max(accounting_.report.rounds, ++first.rounds);
    queue_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

Collective* ChunkQueue::take() {
  if (requests_.empty()) return nullptr;
  Collective* const first = requests_.front();
  requests_.erase(requests_.begin());
  return first;
}

bool ChunkQueue::complete(const Collective& done) {
  for (const auto& active : queue_) {
    for (const Collective& one : active->chunk.scratch.collectives) {
      if (&one != &done || active->outstanding == 0) continue;
      --active->outstanding;
      return true;
    }
  }
  return false;
}

void ChunkQueue::withdraw() {
  for (const auto& active : queue_) active->chunk.place->withdraw();
  requests_.clear();
  queue_.clear();
  admitted_ = 0;
}

void ChunkQueue::abandon() noexcept {
  for (const auto& active : queue_) {
    if (active->chunk.scratch.device != nullptr) active->chunk.scratch.device->abandon();
  }
  queue_.clear();
}

void ChunkQueue::admit() {
  const std::size_t chunks = plans_.choices().size();
  if (admitted_ == 0) parts_.assign(array_.sparse() ? chunks : 1, {});
  while (admitted_ < chunks && queue_.size() < kChunksInFlight) {
    queue_.push_back(make_active(admitted_));
    ++admitted_;
  }
}

std::unique_ptr<ChunkQueue::Active> ChunkQueue::make_active(std::size_t number) {
  auto lent = std::make_unique<LentScratch>(world_.scratch, array_.on_device() ? world_.device : nullptr, world_.size);
  ChunkScratch& scratch = **lent;
  const StateOptions& options = state_.options;
  const Share range = plans_.layout().chunks[number];
  const Choice& choice = plans_.choices()[number];
  const double factor = options.average ? 1.0 / world_.size : 1.0;
  Sparse& part = parts_[array_.sparse() ? number : 0];
  auto active =
      std::make_unique<Active>(Active{.lent = std::move(lent),
                                      .chunk = {.world = world_,
                                                .options = options,
                                                .history = state_.chunks[number],
                                                .scratch = scratch,
                                                .report = accounting_.report,
                                                .energy = accounting_.energy,
                                                .shape = plans_.shape_of(array_, number),
                                                .view = array_.view(range, options.grain, factor, scratch, part),
                                                .choice = choice,
                                                .backend = backend_,
                                                .residual = array_.residual_of(range),
                                                .place = make_place()},
                                      .run = make_run_of(number, choice.strategy)});
  if (!active->chunk.estimates()) active->chunk.clear_residual();
  return active;
}

std::unique_ptr<StrategyRun> ChunkQueue::make_run_of(std::size_t number, Strategy strategy) const {
  if (array_.scattered()) {
    return make_scatter(array_.dense(), array_.pieces_of(plans_.layout().chunks[number], world_.size));
  }
  return make_run(strategy);
}

std::unique_ptr<ChunkPlace> ChunkQueue::make_place() const {
  return array_.on_device() ? world_.device->make_place() : make_host_place();
}

void ChunkQueue::retire() {
  std::uint64_t bytes = 0;
  for (const auto& active : queue_) bytes += active->chunk.scratch.most_used();
  const Chunk& done = queue_.front()->chunk;
  accounting_.retire(done.choice, done.shape.elements, bytes);
  queue_.pop_front();
}

}  // namespace peel::detail
