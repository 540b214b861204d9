#include "cli/transports.h"

#include <algorithm>
#include <array>
#include <thread>

#include "cli/failure.h"
#include "cli/mpi_workers.h"
#include "cli/nccl_workers.h"
#include "peel/error.h"
#include "peel/inprocess.h"
#if defined(PEEL_HAVE_SWITCH)
#include "cli/xdp_plane.h"
#endif

namespace peel::cli {
namespace {

// `load` throws Failure where the library below it is missing.
template <typename Load>
TransportInfo ask(const char* name, Load load) {
  try {
    return {name, load().version()};
  } catch (const Failure& failure) {
    return {name, "", failure.what()};
  }
}

std::string sum_with(Communicator& communicator) {
  std::array<float, 1000> x{};
  x.fill(static_cast<float>(communicator.rank() + 1));
  Collective what{.type = ElementType::float32, .data = std::as_writable_bytes(std::span(x))};
  try {
    perform(communicator, what, communicator.open_channel(), std::chrono::seconds(10));
  } catch (const Error& error) {
    return error.what();
  }
  return std::count(x.begin(), x.end(), 3.0F) == 1000 ? "" : "the sum of two workers is wrong";
}

}  // namespace

std::vector<TransportInfo> known_transports() {
  std::vector<TransportInfo> all = {{"inprocess", ""}, ask("mpi", load_mpi), ask("nccl", load_nccl)};
#if defined(PEEL_HAVE_SWITCH)
  all.push_back({"switch", ""});
#endif
  return all;
}

std::vector<TransportInfo> known_planes() {
#if defined(PEEL_HAVE_SWITCH)
  return {{"udp", ""}, ask("xdp", load_xdp)};
#else
  return {};
#endif
}

std::string inprocess_problem() {
  const std::vector<std::unique_ptr<Communicator>> workers = make_inprocess(2);
  std::string other;
  std::thread second([&] { other = sum_with(*workers[1]); });
  const std::string own = sum_with(*workers[0]);
  second.join();
  return own.empty() ? other : own;
}

}  // namespace peel::cli
