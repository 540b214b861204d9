#include "allreduce/validation.h"

#include <bit>
#include <cstdint>

#include "peel/codec.h"
#include "peel/error.h"

namespace peel::detail {

namespace {

// Whatever the array is.
std::string refusal_of_options(const StateOptions& o, const World& world, const SummedArray& array) {
  const ElementType type = array.type();
  if (array.elements() > std::uint64_t{1} << 43) return "an array has at most 2^43 elements; split it.";
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
  if (array.sparse() && strategy == Strategy::dense)
    return "a sparse gradient has no dense sum; use another strategy or auto.";
  if (array.scattered() && strategy != Strategy::automatic && strategy != Strategy::dense &&
      strategy != Strategy::split) {
    return "a reduce-scatter can be dense or split; use one of them or auto.";
  }
  if (array.scattered() && !world.moves_buffers) {
    return "this transport can only SUM and OR, and a reduce-scatter has to move buffers; use an all-reduce.";
  }
  if (o.estimate_bytes != 0 && strategy != Strategy::automatic && strategy != Strategy::sketch) {
    return "estimates come from sketches; use strategy sketch or auto with estimate_bytes.";
  }
  return "";
}

std::string refusal_of_dense(const World& world, const SummedArray& array) {
  const Dense& x = array.dense();
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
  if (x.memory == Memory::device && array.scattered()) {
    return "a reduce-scatter works on host memory; use an all-reduce, or copy the array to the host.";
  }
  if (reinterpret_cast<std::uintptr_t>(x.data) % size_of(x.type) != 0) {
    return "its array is not aligned to the element size; copy it to aligned memory.";
  }
  return "";
}

// As one that this build lacks, or a name in PEEL_BACKEND that no backend has.
std::string refusal_of_backend(Backend named, Backend& backend) {
  try {
    backend = resolve(named);
    return "";
  } catch (const Error& error) {
    return std::string("its backend is not to be had. ") + error.what();
  }
}

std::string refusal_of_residual(const Dense& x, const Dense& residual) {
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

std::string refusal_of_sparse(const StateOptions& o, const ConstSparse& x) {
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
  return "";
}

}  // namespace

std::string refusal(const StateOptions& options, const World& world, const SummedArray& array, Backend& backend) {
  std::string refused = array.sparse() ? refusal_of_sparse(options, array.items()) : refusal_of_dense(world, array);
  if (refused.empty()) refused = refusal_of_options(options, world, array);
  if (refused.empty() && !array.on_device()) refused = refusal_of_backend(options.execution.backend, backend);
  if (refused.empty() && array.keeps_residual()) refused = refusal_of_residual(array.dense(), array.residual());
  return refused;
}

}  // namespace peel::detail
