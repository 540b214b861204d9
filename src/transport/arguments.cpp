#include "transport/arguments.h"

#include <string>

#include "peel/error.h"
#include "transport/combine.h"

namespace peel::detail {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::invalid_argument, sentence); }

void check_data(const Collective& what) {
  const std::size_t element = element_bytes(what.kind, what.type);
  if (what.data.size() % element != 0) {
    refuse("A " + std::string(name(what.kind)) + " of " + std::to_string(what.data.size()) +
           " bytes ends inside an element; pass a multiple of " + std::to_string(element) + ".");
  }
  if (reinterpret_cast<std::uintptr_t>(what.data.data()) % element != 0) {
    refuse("The data of a " + std::string(name(what.kind)) + " must be aligned to their elements, " +
           std::to_string(element) + " bytes.");
  }
}

void check_send(const Collective& what, unsigned workers) {
  const std::size_t wanted = what.kind == Collective::Kind::all_gather ? 1 : workers;
  if (what.send.size() == wanted) return;
  refuse("An " + std::string(name(what.kind)) + " among " + std::to_string(workers) + " workers needs " +
         std::to_string(wanted) + " buffers to send, not " + std::to_string(what.send.size()) + ".");
}

}  // namespace

void check_arguments(const Collective& what, unsigned workers) {
  const bool moves = what.kind == Collective::Kind::all_to_all || what.kind == Collective::Kind::all_gather;
  return moves ? check_send(what, workers) : check_data(what);
}

}  // namespace peel::detail
