// Whether all workers mean the same: what must be alike, the OR that tells it (opening.h), and the sentence that all
// raise where it is not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allreduce/opening.h"
#include "allreduce/summed_array.h"
#include "peel/exchange.h"

namespace peel::detail {

class Agreement {
 public:
  // `refused` is what is wrong with this worker's arguments, or nothing.
  Agreement(const StateOptions& options, const World& world, const SummedArray& array, std::string refused);

  // Of what holds for more than one exchange.
  [[nodiscard]] std::uint64_t lasting_terms() const noexcept { return lasting_; }
  void refuse(std::string sentence) { terms_.refuse(std::move(sentence)); }
  [[nodiscard]] bool refused() const { return terms_.refused(); }
  [[nodiscard]] const std::string& refusal() const { return terms_.refusal(); }

  // Prepares opening(): `choices` is the fingerprint of what this worker has chosen.
  void open(std::uint64_t choices, bool disabled);
  [[nodiscard]] Collective& opening() noexcept { return opening_; }
  // Of all workers, once the opening is complete.
  [[nodiscard]] OpeningResult result() const { return read_opening(words_); }

  // Where they do not agree: throws what is known without buffers that move, or prepares explanation().
  void ask_why(const World& world);
  [[nodiscard]] Collective& explanation() noexcept { return explanation_; }
  [[noreturn]] void raise(const World& world) const;  // once the explanation is complete

 private:
  Terms terms_;
  std::uint64_t lasting_ = 0;
  Opening words_ = {};
  Collective opening_;
  Collective explanation_;
  std::vector<std::byte> own_terms_;
};

}  // namespace peel::detail
