#include "codec/arguments.h"

#include "peel/error.h"

namespace peel::detail {

namespace {

void check_alignment(const void* data, ElementType type) {
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(type) != 0) {
    refuse("The array is not aligned to its element size; copy it to aligned memory.");
  }
}

}  // namespace

void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void check_array(const Plan& plan, const void* data, std::uint64_t count, ElementType type) {
  if (type != plan.type()) {
    refuse("The array is of " + std::string(name(type)) + " and the plan of " + std::string(name(plan.type())) +
           "; make a plan for this type.");
  }
  if (data == nullptr && count != 0) refuse("The array is a null pointer; pass its elements.");
  check_alignment(data, type);
}

void check_dense(const Plan& plan, const void* data, std::uint64_t size, ElementType type) {
  if (size != plan.elements()) {
    refuse("The array has " + std::to_string(size) + " elements and the plan " + std::to_string(plan.elements()) +
           "; make a plan for this length.");
  }
  check_array(plan, data, size, type);
}

void check_packed(const Plan& plan) {
  if (plan.codec() != Codec::packed) refuse("Only packed messages are made in two rounds; call encode() for a sketch.");
}

std::uint64_t add_workers(const Plan& plan, std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  if (!a || !b) {
    refuse(
        "A message does not say how many workers it holds, so nobody knows whether there is room for another; encode "
        "it again if it is a file of version 1 of the format, else set its number of workers.");
  }
  if (*b > plan.most_workers() || *a > plan.most_workers() - *b) {
    refuse("The cells have room for " + std::to_string(plan.most_workers()) + " workers, and the messages hold " +
           std::to_string(*a) + " and " + std::to_string(*b) + "; encode with a plan for more workers.");
  }
  return *a + *b;
}

void check_workers(const Plan& plan, std::optional<std::uint64_t> workers) {
  if (!workers || *workers <= plan.most_workers()) return;
  refuse("The message holds " + std::to_string(*workers) + " workers where its cells have room for " +
         std::to_string(plan.most_workers()) + ", so its sums may have wrapped; encode with a plan for more workers.");
}

void check_counted(ConstDense x, const PlanOptions& options) {
  if (x.size != options.elements || x.type != options.type || (x.data == nullptr && x.size != 0)) {
    refuse("The array's length and type must be those of the options.");
  }
  check_alignment(x.data, x.type);
}

void refuse_overflow(const Plan& plan) {
  throw Error(ErrorCode::overflow, "On some worker a value did not fit scale " + std::to_string(plan.scale()) +
                                       " with " + std::to_string(plan.workers()) +
                                       " workers; encode again with a smaller scale (fit_scale gives it).");
}

void refuse_lacking_items() {
  throw Error(ErrorCode::corrupt_message,
              "The combined index lacks an item of this worker; OR the indexes of all workers before encode_values.");
}

}  // namespace peel::detail
