// The switch in user space, over real sockets: workers that are threads, several lanes and jobs, packets of both MTUs.
#include "switch/udp/plane.h"

#include <gtest/gtest.h>

#include <thread>

#include "peel/error.h"
#include "peel/switch.h"
#include "refusal.h"
#include "switch/udp/status.h"
#include "switch/wire/control.h"
#include "transport/crowd.h"
#include "transport/known_collectives.h"

namespace peel::aggregator {
namespace {

constexpr const char* kSecret = "open sesame";

class Running {
 public:
  explicit Running(std::uint8_t lanes, std::uint32_t slots = 256) {
    limits_.lanes = lanes;
    limits_.slots = slots;
    // A free port, with free ones behind it: what is taken by others is not ours to choose.
    for (int attempt = 0; !plane_; ++attempt) {
      try {
        plane_ = std::make_unique<UdpPlane>(detail::resolve("127.0.0.1:0"), limits_, Keys{kSecret, {}}, 1);
      } catch (const Error&) {
        if (attempt == 50) throw;
      }
    }
    thread_ = std::thread([this] { plane_->run(stop_); });
  }
  ~Running() {
    stop_ = true;
    thread_.join();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] detail::Address address() const { return plane_->address(); }

  std::vector<std::unique_ptr<Communicator>> join(unsigned size, const std::string& job, unsigned mtu) const {
    std::vector<std::unique_ptr<Communicator>> all(size);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        all[rank] = make_switch({.address = address().text(),
                                 .secret = kSecret,
                                 .job = job,
                                 .rank = rank,
                                 .size = size,
                                 .slots = 64,
                                 .mtu = mtu,
                                 .timeout = std::chrono::seconds(20)});
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all;
  }

 private:
  Limits limits_;
  std::unique_ptr<UdpPlane> plane_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void expect_known(std::vector<std::unique_ptr<Communicator>>& all, std::size_t elements) {
  const auto errors = test::run_crowd(all, [&](Communicator& communicator) {
    test::Knower knower(communicator);
    for (const ElementType type : {ElementType::int32, ElementType::int64}) knower.sum(type, elements);
    knower.bit_or(elements);
    knower.sum(ElementType::int8, 777);
    EXPECT_EQ(knower.complaint(), "");
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(UdpPlane, CombinesOverSockets) {
  for (const std::uint8_t lanes : {1, 3}) {
    const Running plane(lanes);
    for (const unsigned mtu : {1500U, 9000U, 0U}) {
      auto all = plane.join(3, "job", mtu);
      expect_known(all, 200'000);
    }
  }
}

TEST(UdpPlane, ServesSeveralJobsAndTellsOfThem) {
  const Running plane(2);
  auto first = plane.join(2, "first", 1500);
  auto second = plane.join(4, "second", 9000);
  std::thread other([&] { expect_known(first, 50'000); });
  expect_known(second, 50'000);
  other.join();
  Status status = ask_status(plane.address(), kSecret, std::chrono::seconds(10));
  ASSERT_EQ(status.jobs.size(), 2u);
  EXPECT_EQ(status.total.jobs, 2);
  EXPECT_EQ(status.total.slots_held, 128u);
  const bool is_first = status.jobs[0].name == detail::job_name("first");
  EXPECT_EQ(status.jobs[is_first ? 0 : 1].workers, 2);
  EXPECT_EQ(status.jobs[is_first ? 1 : 0].joined, 15u);
  EXPECT_GT(status.jobs[0].completed, 100u);
  EXPECT_EQ(status.jobs[0].completed + status.jobs[1].completed, status.total.completed);
  first.clear();
  second.clear();
  status = ask_status(plane.address(), kSecret, std::chrono::seconds(10));
  EXPECT_EQ(status.total.jobs, 0);
  EXPECT_EQ(status.total.slots_held, 0u);
  testing::expect_refusal(ErrorCode::timeout, "did not answer",
                          [&] { (void)ask_status(plane.address(), "wrong", std::chrono::milliseconds(50)); });
}

TEST(UdpPlane, RefusesAnAddressThatIsTaken) {
  const Running plane(1);
  testing::expect_refusal(ErrorCode::transport, "Choose another address", [&] {
    (void)UdpPlane(plane.address(), Limits{}, Keys{kSecret, {}}, 1);
  });
}

}  // namespace
}  // namespace peel::aggregator
