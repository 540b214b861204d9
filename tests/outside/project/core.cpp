// A gradient of each of two workers, encoded, merged and decoded; and summed in one call by two threads.
#include <peel/peel.h>

#include <cstdio>
#include <thread>

int main() {
  std::vector<float> a(1'000'000), b(1'000'000), sum(1'000'000);
  a[7] = 0.5F, a[900'000] = -3, b[7] = 0.25F;

  const auto plan = peel::Plan::make(
      {.elements = a.size(), .expected_items = 1'000, .workers = 2, .codec = peel::Codec::sketch, .scale = 24});
  peel::Message mine(plan), theirs(plan);
  peel::encode(plan, a, mine);
  peel::encode(plan, b, theirs);
  peel::merge(plan, mine, theirs);
  const peel::Recovery recovery = peel::decode(plan, mine, sum);
  if (recovery.lost != 0 || sum[7] != 0.75F || sum[900'000] != -3) {
    std::puts("the decoded sum is wrong");
    return 1;
  }

  auto workers = peel::make_inprocess(2);
  const auto reduce = [](peel::Communicator& communicator, std::vector<float>& x) {
    peel::State state;
    for (int step = 0; step < 3; ++step) peel::allreduce(communicator, x, state);
  };
  std::thread other([&] { reduce(*workers[1], b); });
  reduce(*workers[0], a);
  other.join();
  if (a != b || a[7] != 4 * 0.75F || a[900'000] != 4 * -3.0F) {
    std::puts("the sum of two threads is wrong");
    return 1;
  }
}
