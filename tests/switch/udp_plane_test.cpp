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

constexpr const char* kSecret = "open sesame, open sesame";

class Running {
 public:
  explicit Running(std::uint8_t lanes, std::uint32_t slots = 256, const char* listen = "127.0.0.1:0") {
    limits_.lanes = lanes;
    limits_.slots = slots;
    limits_.jobs = 4;
    // A free port, with free ones behind it: what is taken by others is not ours to choose.
    for (int attempt = 0; !plane_; ++attempt) {
      try {
        plane_ = std::make_unique<UdpPlane>(detail::resolve(listen), limits_, Keys{Secrets(kSecret), {}}, 1);
      } catch (const Error&) {
        if (attempt == 50) throw;
      }
    }
    thread_ = std::thread([this] { plane_->run(orders_); });
  }
  ~Running() { stop(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] detail::Address address() const { return plane_->address(); }
  void stop() {
    orders_.stop = true;
    if (thread_.joinable()) thread_.join();
  }

  std::vector<std::unique_ptr<Communicator>> join(unsigned size, const std::string& job, unsigned mtu,
                                                  const std::string& asked = "") const {
    std::vector<std::unique_ptr<Communicator>> all(size);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        all[rank] = make_switch({.address = asked.empty() ? address().text() : asked,
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
  Orders orders_;
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
  Status status = ask_status({plane.address(), kSecret, ""}, std::chrono::seconds(10));
  ASSERT_EQ(status.jobs.size(), 2u);
  EXPECT_EQ(status.total.jobs, 2);
  EXPECT_EQ(status.total.slots_held, 128u);
  const bool is_first = detail::name_of(status.jobs[0].name) == "first";
  EXPECT_EQ(status.jobs[is_first ? 0 : 1].workers, 2);
  EXPECT_EQ(status.jobs[is_first ? 1 : 0].joined, 15u);
  EXPECT_GT(status.jobs[0].completed, 100u);
  EXPECT_EQ(status.jobs[0].completed + status.jobs[1].completed, status.total.completed);
  first.clear();
  second.clear();
  status = ask_status({plane.address(), kSecret, ""}, std::chrono::seconds(10));
  EXPECT_EQ(status.total.jobs, 0);
  EXPECT_EQ(status.total.slots_held, 0u);
  testing::expect_refusal(ErrorCode::disagreement, "another secret", [&] {
    (void)ask_status({plane.address(), "another secret than its own", ""}, std::chrono::seconds(10));
  });
}

// Whoever asks one of several addresses of a host hears from that one, also where the switch listens on all of them.
TEST(UdpPlane, AnswersFromTheAddressThatWasAsked) {
  for (const char* listen : {"0.0.0.0:0", "[::]:0"}) {
    const Running plane(2, 256, listen);
    for (const char* host : {"127.0.0.1", "127.0.0.2", "127.9.9.9"}) {
      const std::string asked = std::string(host) + ":" + std::to_string(plane.address().port());
      EXPECT_EQ(ask_status({detail::resolve(asked), kSecret, ""}, std::chrono::seconds(10)).total.jobs, 0);
      auto all = plane.join(2, host, 1500, asked);
      expect_known(all, 20'000);
    }
  }
}

TEST(UdpPlane, DrainsWhenItIsToldToStop) {
  Running plane(1);
  auto all = plane.join(2, "job", 1500);
  std::vector<std::thread> threads;
  std::array<std::string, 2> said;
  for (unsigned rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        std::vector<std::int32_t> x(5000, 1);
        while (true) {
          std::fill(x.begin(), x.end(), 1);
          Collective what{.data = std::as_writable_bytes(std::span(x))};
          perform(*all[rank], what, 0, std::chrono::seconds(60));
          if (std::count(x.begin(), x.end(), 2) != 5000) said[rank] = "wrong";
        }
      } catch (const Error& error) {
        said[rank] += error.what();
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  plane.stop();
  for (std::thread& thread : threads) thread.join();
  for (const std::string& sentence : said)
    EXPECT_NE(sentence.find("is being shut down"), std::string::npos) << sentence;
}

TEST(UdpPlane, RefusesAnAddressThatIsTaken) {
  const Running plane(1);
  testing::expect_refusal(ErrorCode::transport, "Choose another address", [&] {
    (void)UdpPlane(plane.address(), Limits{}, Keys{Secrets(kSecret), {}}, 1);
  });
}

}  // namespace
}  // namespace peel::aggregator
