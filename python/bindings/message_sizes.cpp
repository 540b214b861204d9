#include "message_sizes.h"

#include <string>

#include "peel/error.h"

namespace peel::python {
namespace {

[[noreturn]] void mismatch(const std::string& sentence) { throw Error(ErrorCode::plan_mismatch, sentence); }

void check_index(const Plan& plan, std::uint64_t words) {
  if (plan.index() == Index::list) {
    if (words >= 2) return;
    mismatch("The index has " + std::to_string(words) +
             " words where a list has at least 2; pass a message of this plan.");
  }
  if (words != plan.index_words()) {
    mismatch("The index has " + std::to_string(words) + " words where the plan asks for " +
             std::to_string(plan.index_words()) + "; pass a message of this plan.");
  }
}

void check_payload(const Plan& plan, std::uint64_t bytes) {
  if (plan.codec() == Codec::sketch) {
    if (bytes == plan.payload_bytes()) return;
    mismatch("The payload has " + std::to_string(bytes) + " bytes where the plan asks for " +
             std::to_string(plan.payload_bytes()) + "; pass a message of this plan.");
  }
  const std::uint64_t item_bytes = plan.grain() * plan.cell_bytes();
  if (bytes % item_bytes != 0) {
    mismatch("The payload has " + std::to_string(bytes) + " bytes, which is no multiple of the " +
             std::to_string(item_bytes) + " that an item of the plan has; pass a message of this plan.");
  }
}

}  // namespace

void check_message_sizes(const Plan& plan, std::uint64_t words, std::uint64_t bytes) {
  check_index(plan, words);
  check_payload(plan, bytes);
}

void check_value_count(const Plan& plan, std::uint64_t items, std::uint64_t values) {
  if (values % plan.grain() == 0 && values / plan.grain() == items) return;
  throw Error(ErrorCode::invalid_argument, "There are " + std::to_string(values) + " values for " +
                                               std::to_string(items) + " items; the plan has " +
                                               std::to_string(plan.grain()) + " for each.");
}

}  // namespace peel::python
