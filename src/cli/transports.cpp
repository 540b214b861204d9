#include "cli/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>

#include "peel/error.h"
#include "peel/inprocess.h"
#if defined(PEEL_HAVE_MPI)
#include "peel/mpi.h"
#endif
#if defined(PEEL_HAVE_NCCL)
#include "peel/nccl.h"
#endif

namespace peel::cli {
namespace {

#if defined(PEEL_HAVE_MPI)
// "Open MPI v4.1.4": what stands before the first comma or line end; some libraries write a page. May be asked before
// MPI_Init.
std::string mpi_version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "of unknown version";
  text.resize(std::min<std::size_t>(static_cast<std::size_t>(length), text.find_first_of(std::string(",\n\0", 3))));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}
#endif

#if defined(PEEL_HAVE_NCCL)
std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "of unknown version";
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}
#endif

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

std::vector<TransportInfo> available_transports() {
  std::vector<TransportInfo> all = {{"inprocess", ""}};
#if defined(PEEL_HAVE_MPI)
  all.push_back({"mpi", mpi_version()});
#endif
#if defined(PEEL_HAVE_NCCL)
  all.push_back({"nccl", nccl_version()});
#endif
#if defined(PEEL_HAVE_SWITCH)
  all.push_back({"switch", ""});
#endif
  return all;
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
