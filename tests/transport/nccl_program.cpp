// nccl_program [WORKERS...]: all collectives over NCCL, on host and on device memory, and all-reduces by every
// strategy, with sums known exactly. Without numbers: worlds of 1, 2 and 4 workers, as far as this NCCL lets them share
// the GPUs. Needs a GPU; says so where there is none. `make test-gpu` runs it.
//
//   PEEL_NCCL_PARTS="collectives host device speed faults"   what is checked
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device_mirror.h"
#include "nccl_channel.h"
#include "nccl_checks.h"
#include "nccl_collectives.h"
#include "nccl_device_allreduce.h"
#include "nccl_host_allreduce.h"
#include "nccl_world.h"
#include "peel/inprocess.h"

namespace peel::testing {
namespace {

using Kind = Collective::Kind;

// ---- what goes wrong

void check_disorder(NcclWorker& worker, Everybody& everybody) {
  Communicator& communicator = worker.communicator();
  Channel older(communicator);
  Channel newer(communicator);
  std::uint64_t one = 1;
  Collective what{.kind = Kind::bit_or, .data = std::as_writable_bytes(std::span(&one, 1))};
  newer.perform(what);
  expect(code_of([&] { older.perform(what); }) == ErrorCode::invalid_argument, communicator, "an older channel");
  expect(code_of([&] { newer.perform(what); }) == ErrorCode::transport, communicator, "a broken communicator");
  everybody.arrive_and_wait();
  worker.close();
}

// The last worker stays away: the others must learn of it within the time-out, with their kernels waiting. The mirror
// is not released, since they do not end before the communicator is aborted.
void check_timeout(NcclWorker& worker, Everybody& everybody, Memory memory) {
  Communicator& communicator = worker.communicator();
  Channel channel(communicator);
  std::vector<float> x(2'000'000, 1.0F);
  Mirror mirror(x.size() * sizeof(float) + 1024, worker.stream());
  everybody.arrive_and_wait();
  Collective what{.kind = Kind::sum, .type = ElementType::float32, .memory = memory};
  what.data = std::as_writable_bytes(std::span(x));
  if (memory == Memory::device) what.data = mirror.take(what.data.size()).device;
  mirror.upload();
  channel.perform(what);
  if (communicator.rank() + 1 != communicator.size()) {
    const steady_clock::time_point begin = steady_clock::now();
    const ErrorCode code = code_of([&] { channel.perform(what, milliseconds(700)); });
    const bool in_time = steady_clock::now() - begin < std::chrono::seconds(5);
    expect(code == ErrorCode::timeout && in_time, communicator, "a worker that stays away");
  }
  everybody.arrive_and_wait();
  worker.abort();
  everybody.arrive_and_wait();
  worker.drop();
}

// ---- all together

bool wanted(const std::string& part) {
  const char* const parts = std::getenv("PEEL_NCCL_PARTS");
  return parts == nullptr || (" " + std::string(parts) + " ").find(" " + part + " ") != std::string::npos;
}

void check_everything(NcclWorker& worker, Everybody& everybody, Communicator& host) {
  Communicator& communicator = worker.communicator();
  Mirror mirror(mirror_bytes(communicator.size()), worker.stream());
  cudaStream_t other = nullptr;
  require(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  everybody.arrive_and_wait();
  if (wanted("collectives")) check_collectives(communicator, mirror);
  if (wanted("host")) check_host_allreduces(communicator);
  if (wanted("device")) check_device_allreduces({communicator, host, mirror, other});
  if (wanted("speed")) tell_speeds(communicator, mirror);
  everybody.arrive_and_wait();
  worker.close();
  mirror.release();
  require(cudaStreamDestroy(other), "cudaStreamDestroy");
}

void check_faults(unsigned workers) {
  run_nccl_world(workers, check_disorder);
  for (const Memory memory : {Memory::host, Memory::device}) {
    if (workers == 1) break;
    run_nccl_world(workers,
                   [=](NcclWorker& worker, Everybody& everybody) { check_timeout(worker, everybody, memory); });
  }
}

void check_world(unsigned workers, int version) {
  std::printf("nccl_program: %u workers on %d GPUs, NCCL %d\n", workers, devices(), version);
  const std::vector<std::unique_ptr<Communicator>> host = make_inprocess(workers);
  run_nccl_world(workers, [&](NcclWorker& worker, Everybody& everybody) {
    check_everything(worker, everybody, *host[worker.communicator().rank()]);
  });
  if (wanted("faults")) check_faults(workers);
}

int run(std::vector<unsigned> worlds) {
  constexpr int kSharesGpus = 23'000;
  int version = 0;
  require(ncclGetVersion(&version), "ncclGetVersion");
  const bool asked = !worlds.empty();
  if (!asked) worlds = {1, 2, 4};
  for (const unsigned workers : worlds) {
    if (!asked && static_cast<int>(workers) > devices() && version < kSharesGpus) {
      std::printf("nccl_program: skipped %u workers, since they can share GPUs from NCCL 2.30 on, and this is %d\n",
                  workers, version);
    } else {
      check_world(workers, version);
    }
  }
  std::printf("nccl_program: %u checks, %u wrong\n", checks.load(), failures.load());
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace peel::testing

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what it found so far is to be seen if it is killed
  peel::testing::share_gpus();
  if (peel::testing::devices() == 0) {
    std::puts("nccl_program: skipped, since there is no GPU here");
    return 0;
  }
  try {
    std::vector<unsigned> worlds;
    for (int i = 1; i < count; ++i) worlds.push_back(static_cast<unsigned>(std::max(1, std::atoi(arguments[i]))));
    return peel::testing::run(worlds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_program: %s\n", error.what());
    return 1;
  }
}
