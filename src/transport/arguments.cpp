#include "transport/arguments.h"

#include <algorithm>
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

// Pieces of each worker's part: one in host memory, any number in device memory.
std::size_t pieces_of(const Collective& what, unsigned workers) {
  return what.memory == Memory::host ? 1 : std::max<std::size_t>(1, what.into.size() / workers);
}

void check_send(const Collective& what, unsigned workers) {
  const std::size_t wanted =
      pieces_of(what, workers) * (what.kind == Collective::Kind::all_gather ? 1 : std::size_t{workers});
  if (what.send.size() == wanted) return;
  refuse("An " + std::string(name(what.kind)) + " among " + std::to_string(workers) + " workers needs " +
         std::to_string(wanted) + " buffers to send, not " + std::to_string(what.send.size()) + ".");
}

bool lie_evenly(const Collective& what, std::size_t pieces) {
  if (what.kind != Collective::Kind::all_gather) return false;
  for (std::size_t i = 0; i < what.into.size(); ++i) {
    const std::span<std::byte> first = what.into[i % pieces];
    if (what.into[i].size() != first.size()) return false;
    if (what.into[i].data() != first.data() + i / pieces * first.size()) return false;
  }
  return true;
}

// What a transport reads and writes on the device without another look.
void check_into(const Collective& what, unsigned workers) {
  if (!what.into.empty() && what.into.size() % workers == 0) {
    if (!what.even || lie_evenly(what, pieces_of(what, workers))) return;
    refuse(
        "What is gathered evenly must be equally long for all workers and lie one after another in `into`; leave "
        "`even` out otherwise.");
  }
  refuse("An " + std::string(name(what.kind)) + " in device memory among " + std::to_string(workers) +
         " workers needs a place in `into` for each of them, or several, and not " + std::to_string(what.into.size()) +
         " in all.");
}

void check_scratch(const Collective& what, unsigned workers) {
  const std::size_t wanted = or_scratch_bytes(what.data.size(), workers);
  if (what.scratch.size() < wanted) {
    refuse("A bit_or of " + std::to_string(what.data.size()) + " bytes of device memory among " +
           std::to_string(workers) + " workers needs " + std::to_string(wanted) + " bytes of scratch, not " +
           std::to_string(what.scratch.size()) + "; ask or_scratch_bytes() how many.");
  }
  if (reinterpret_cast<std::uintptr_t>(what.scratch.data()) % sizeof(std::uint64_t) != 0) {
    refuse("The scratch of a bit_or must be aligned to 64-bit words.");
  }
}

}  // namespace

void check_arguments(const Collective& what, unsigned workers) {
  const bool moves = what.kind == Collective::Kind::all_to_all || what.kind == Collective::Kind::all_gather;
  if (moves) {
    check_send(what, workers);
  } else if (what.kind != Collective::Kind::settle) {
    check_data(what);
  }
  if (what.memory == Memory::host && (what.kind == Collective::Kind::settle || !what.fetch.empty())) {
    refuse("There is nothing to settle or to fetch in host memory; leave it out.");
  }
  if (what.memory != Memory::device || workers == 1) return;
  if (moves) check_into(what, workers);
  if (what.kind == Collective::Kind::bit_or) check_scratch(what, workers);
}

void require_host_memory(const Collective& what, std::string_view transport) {
  if (what.memory == Memory::host) return;
  throw Error(ErrorCode::unsupported, "The transport " + std::string(transport) +
                                          " cannot reach the memory of a device; pass host memory or use make_nccl.");
}

}  // namespace peel::detail
