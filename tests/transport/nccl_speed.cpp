#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "nccl_channel.h"
#include "nccl_collectives.h"

namespace peel::testing {
namespace {

using Kind = Collective::Kind;

double seconds_of(Channel& channel, Collective& what) {
  std::vector<double> times;
  for (int repeat = 0; repeat < 9; ++repeat) {
    std::uint64_t together = 0;
    Collective meet{.kind = Kind::bit_or, .data = std::as_writable_bytes(std::span(&together, 1))};
    channel.perform(meet);
    const steady_clock::time_point begin = steady_clock::now();
    channel.perform(what);
    times.push_back(std::chrono::duration<double>(steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4];
}

void tell_speed(Communicator& communicator, Channel& channel, std::size_t bytes, std::vector<Collective> all) {
  for (Collective& what : all) {
    const double seconds = seconds_of(channel, what);
    if (communicator.rank() != 0) continue;
    std::printf("%-10s %-6s %9zu bytes %10.1f us %7.2f GB/s\n", std::string(name(what.kind)).c_str(),
                what.memory == Memory::device ? "device" : "host", bytes, seconds * 1e6,
                static_cast<double>(bytes) / seconds * 1e-9);
  }
}

}  // namespace

void tell_speeds(Communicator& communicator, Mirror& mirror) {
  Channel channel(communicator);
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10,
                                  std::size_t{1} << 20, std::size_t{64} << 20}) {
    const unsigned workers = communicator.size();
    const std::size_t part = bytes / workers;
    Buffer<std::byte> data(bytes);
    data.fill_zero();
    const std::span<const std::byte> mine = std::span<const std::byte>(data).first(part);
    std::vector<Collective> on_host = {{.kind = Kind::sum, .type = ElementType::int32, .data = data},
                                       {.kind = Kind::bit_or, .data = data},
                                       {.kind = Kind::all_to_all, .send = {workers, mine}},
                                       {.kind = Kind::all_gather, .send = {mine}}};
    tell_speed(communicator, channel, bytes, std::move(on_host));
    if (workers == 1) continue;  // on the device that is nothing to do

    mirror.clear();
    const Twins x = mirror.take(bytes);
    const Twins scratch = mirror.take(or_scratch_bytes(bytes, workers));
    std::vector<std::span<std::byte>> into;
    for (unsigned w = 0; w < workers; ++w) into.push_back(scratch.device.subspan(w * part, part));
    std::vector<Collective> on_device = {
        {.kind = Kind::sum, .type = ElementType::int32, .data = x.device},
        {.kind = Kind::bit_or, .data = x.device, .scratch = scratch.device},
        {.kind = Kind::all_to_all, .send = {workers, x.device.first(part)}, .into = into},
        {.kind = Kind::all_gather, .send = {x.device.first(part)}, .into = into}};
    for (Collective& what : on_device) what.memory = Memory::device;
    mirror.upload();
    tell_speed(communicator, channel, bytes, std::move(on_device));
  }
}

}  // namespace peel::testing
