// What is wrong with the arguments of a verb, in the same words on the host and on a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "peel/gradient.h"
#include "peel/plan.h"

namespace peel::detail {

[[noreturn]] void refuse(const std::string& sentence);  // throws peel::Error (invalid_argument)

// `count` elements, or items of them, of the plan's type; and an array of the plan's length.
void check_array(const Plan& plan, const void* data, std::uint64_t count, ElementType type);
void check_dense(const Plan& plan, const void* data, std::uint64_t size, ElementType type);

void check_packed(const Plan& plan);  // the plan is one of two rounds

// How many workers two messages hold together; throws where one does not say, or where the plan has no room for them.
std::uint64_t add_workers(const Plan& plan, std::optional<std::uint64_t> a, std::optional<std::uint64_t> b);
// A message holds no more workers than its plan has room for, as far as it says.
void check_workers(const Plan& plan, std::optional<std::uint64_t> workers);

// An array in which grains are counted.
void check_counted(ConstDense x, const PlanOptions& options);

// What only the data can tell.
[[noreturn]] void refuse_overflow(const Plan& plan);
[[noreturn]] void refuse_lacking_items();

}  // namespace peel::detail
