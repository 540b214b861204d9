#include "allreduce/agreement.h"

#include <utility>

#include "items/item_message.h"
#include "peel/error.h"

namespace peel::detail {

namespace {

std::string sums_in_words(const SumTypes& sums) {
  if (sums == SumTypes::all()) return "";
  if (sums == SumTypes::integers()) return ", integers only";
  std::string text = ", adds only";
  for (unsigned type = 0; type < 8; ++type) {
    if (sums.has(static_cast<ElementType>(type))) text.append(" ").append(name(static_cast<ElementType>(type)));
  }
  return text;
}

Terms lasting_terms_of(const StateOptions& o, const World& world, const SummedArray& array) {
  const auto number = [](auto value) { return std::to_string(value); };
  Terms terms;
  terms.add("version", PEEL_VERSION);
  terms.add("item messages", number(+MessageHeader::kVersion));
  terms.add("session", number(world.session));
  terms.add("workers", number(world.size));
  terms.add("elements", number(array.elements()));
  terms.add("type", std::string(name(array.type())));
  terms.add("view", array.sparse() ? "sparse" : "dense");
  terms.add("memory", std::string(name(array.memory())));
  terms.add("outcome", array.scattered() ? "reduce-scatter" : "all-reduce");
  terms.add("strategy", std::string(name(o.strategy)));
  terms.add("grain", number(o.grain));
  terms.add("combines by", o.average ? "average" : "sum");
  terms.add("index", std::string(name(o.index)));
  terms.add("cells", std::string(name(o.cells)));
  terms.add("estimate bytes", number(o.estimate_bytes));
  terms.add("chunk bytes", number(o.chunk_bytes));
  terms.add("seed", number(o.seed));
  terms.add("residual", array.residual().data != nullptr ? "yes" : "no");
  terms.add("unasked steps", number(o.unasked_steps));
  terms.add("transport",
            std::string(world.moves_buffers ? "moves buffers" : "sums and ors") + sums_in_words(world.sums));
  return terms;
}

}  // namespace

Agreement::Agreement(const StateOptions& options, const World& world, const SummedArray& array, std::string refused)
    : terms_(lasting_terms_of(options, world, array)) {
  terms_.refuse(std::move(refused));
  lasting_ = terms_.fingerprint();
  terms_.add("number of the exchange", std::to_string(world.number));
}

void Agreement::open(std::uint64_t choices, bool disabled) {
  words_ = make_opening(terms_.fingerprint(), choices,
                        (disabled ? kOpeningDisabled : 0) | (terms_.refused() ? kOpeningRefused : 0));
  opening_.kind = Collective::Kind::bit_or;
  opening_.data = std::as_writable_bytes(std::span<std::uint64_t>(words_));
}

void Agreement::ask_why(const World& world) {
  if (!world.moves_buffers) {
    if (terms_.refused()) {
      throw Error(ErrorCode::invalid_argument, "This worker cannot take part: " + terms_.refusal());
    }
    throw Error(ErrorCode::disagreement,
                "Workers differ in arrays, options or version, or one was called wrongly; compare their logs.");
  }
  own_terms_ = terms_.serialise();
  explanation_.kind = Collective::Kind::all_gather;
  explanation_.send.assign(1, own_terms_);
  explanation_.received.resize(world.size);
}

void Agreement::raise(const World& world) const {
  std::vector<std::vector<std::byte>> of_all(world.size);
  for (unsigned w = 0; w < world.size; ++w) {
    const Buffer<std::byte>& one = explanation_.received[w];
    of_all[w] = w == world.rank ? own_terms_ : std::vector<std::byte>(one.data(), one.data() + one.size());
  }
  const bool refused = (result().flags & kOpeningRefused) != 0;
  throw Error(refused ? ErrorCode::invalid_argument : ErrorCode::disagreement, explain_difference(of_all));
}

}  // namespace peel::detail
