#include "peel/allreduce.h"

#include <string>
#include <utility>

#include "allreduce/drive.h"
#include "peel/error.h"

namespace peel {

namespace detail {

World world_of(Communicator& communicator, const StateOptions& options, ElementType type, Memory memory) {
  World world{.rank = communicator.rank(),
              .size = communicator.size(),
              .device = communicator.device(),
              .scratch = communicator.scratch()};
  if (options.link) {
    world.link = *options.link;
  } else if (world.size > 1) {
    // In all memory that it reaches, whatever x is in: workers may differ in that, which only the opening will tell.
    const bool reaches_device = world.device != nullptr;
    if (!communicator.link(Memory::host)) measure_link(communicator, options.timeout, Memory::host);
    if (reaches_device && !communicator.link(Memory::device)) {
      measure_link(communicator, options.timeout, Memory::device);
    }
    world.link = *communicator.link(reaches_device ? memory : Memory::host);
  }
  world.moves_buffers = communicator.offers(Collective::Kind::all_to_all, type) &&
                        communicator.offers(Collective::Kind::all_gather, type);
  world.sums = {};
  for (unsigned one = 0; one < 8; ++one) {
    const auto number = static_cast<ElementType>(one);
    if (communicator.offers(Collective::Kind::sum, number)) world.sums.add(number);
  }
  return world;
}

bool Drive::advance() {
  try {
    return step();
  } catch (const Error& error) {
    if (!exchange_.moving()) throw;  // nothing was written yet
    throw Error(error.code(), std::string(error.what()) + " The array may be partly summed.");
  }
}

bool Drive::step() {
  bool moved = false;
  if (Collective* ask = exchange_.next()) {
    running_.push_back({ask, communicator_.start(*ask, channel_, timeout_)});
    moved = true;
  }
  for (std::size_t i = 0; i < running_.size();) {
    if (!running_[i].operation->test()) {
      ++i;
      continue;
    }
    Collective* done = running_[i].what;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    exchange_.complete(*done);
    moved = true;
  }
  return moved;
}

namespace {

Report run(Communicator& communicator, Exchange& exchange, const StateOptions& options) {
  if (exchange.finished()) return exchange.report();
  Drive drive(communicator, exchange, communicator.open_channel(), options.timeout);
  while (!drive.finished()) {
    if (!drive.advance() && !drive.finished()) communicator.relax();
  }
  return exchange.report();
}

}  // namespace

}  // namespace detail

Report allreduce(Communicator& communicator, Dense x, State& state) {
  Exchange exchange(state, detail::world_of(communicator, state.options(), x.type, x.memory), x);
  return detail::run(communicator, exchange, state.options());
}

Report allreduce(Communicator& communicator, Dense x, Dense residual, State& state) {
  Exchange exchange(state, detail::world_of(communicator, state.options(), x.type, x.memory), x, residual);
  return detail::run(communicator, exchange, state.options());
}

Report allreduce(Communicator& communicator, ConstSparse x, Sparse& sum, State& state) {
  Exchange exchange(state, detail::world_of(communicator, state.options(), x.type), x, sum);
  return detail::run(communicator, exchange, state.options());
}

Report allreduce(Communicator& communicator, Sparse& x, State& state) {
  Sparse sum;
  const Report report = allreduce(communicator, ConstSparse(x), sum, state);
  std::swap(x, sum);
  return report;
}

Report reduce_scatter(Communicator& communicator, Dense x, State& state) {
  Exchange exchange(state, detail::world_of(communicator, state.options(), x.type), x, Outcome::scattered);
  return detail::run(communicator, exchange, state.options());
}

}  // namespace peel
