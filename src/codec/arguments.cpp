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
