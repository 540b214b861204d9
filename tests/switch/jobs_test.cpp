// Who is let in, on what terms, and what becomes of jobs whose workers leave, die or start anew.
#include <gtest/gtest.h>

#include "switch/wire_packets.h"

namespace peel::aggregator {
namespace {

using testing::Applicant;
using testing::endpoint;

struct Jobs : ::testing::Test {
  static Limits limits() {
    Limits some;
    some.jobs = 3;
    some.slots = 10;
    some.job_slots = 6;
    some.words = 100;
    return some;
  }
  Aggregator aggregator{limits(), {testing::kSecret, {}}, 1};
  Applicant applicant{aggregator};
};

TEST_F(Jobs, AdmitsAndRemembers) {
  const peel_control first = applicant.join(0, 2);
  EXPECT_EQ(first.verb, PEEL_VERB_ADMITTED);
  EXPECT_EQ(first.joined, 1u);
  EXPECT_EQ(first.slot_count, 4);
  EXPECT_EQ(first.words, 100);
  const peel_control second = applicant.join(1, 2);
  EXPECT_EQ(second.joined, 3u);
  EXPECT_EQ(second.cookie, first.cookie);
  EXPECT_EQ(applicant.join(0, 2).cookie, first.cookie) << "asking twice changes nothing";
  EXPECT_EQ(applicant.join(0, 2).joined, 3u);
}

TEST_F(Jobs, AnswersNobodyWithoutTheSecret) {
  const peel_control hello = Applicant::request(0, 2);
  EXPECT_EQ(applicant.ask(hello, endpoint(0), "guess").verb, 0);
  EXPECT_EQ(aggregator.tally().dropped[PEEL_DROP_UNSIGNED], 1u);
}

// Of a request to join that somebody saw: it holds for the address that it came from, and not for long.
TEST_F(Jobs, ReplayedRequestsDoNotJoin) {
  peel_control request = Applicant::request(0, 2);
  request.challenge = applicant.ask(request, endpoint(0)).challenge;
  request.verb = PEEL_VERB_JOIN;
  EXPECT_EQ(applicant.ask(request, endpoint(7)).reason, PEEL_REASON_BAD_CHALLENGE);
  EXPECT_EQ(applicant.ask(request, endpoint(0, 5001)).reason, PEEL_REASON_BAD_CHALLENGE);
  applicant.now = std::chrono::seconds(60);
  EXPECT_EQ(applicant.ask(request, endpoint(0)).reason, PEEL_REASON_BAD_CHALLENGE);
}

TEST_F(Jobs, KeepQuotasAndGiveWhatIsLeft) {
  peel_control greedy = Applicant::request(0, 1, "a");
  greedy.slot_count = 1000;
  EXPECT_EQ(applicant.join(greedy, endpoint(0)).slot_count, 6) << "no more than the quota";
  greedy.name = detail::job_name("b");
  EXPECT_EQ(applicant.join(greedy, endpoint(0)).slot_count, 4) << "what is left";
  greedy.name = detail::job_name("c");
  const peel_control refused = applicant.join(greedy, endpoint(0));
  EXPECT_EQ(refused.verb, PEEL_VERB_REFUSED) << "and no waiting";
  EXPECT_EQ(refused.reason, PEEL_REASON_NO_ROOM);
}

TEST_F(Jobs, FreeTheirSlotsWhenAllHaveLeft) {
  for (int i = 0; i < 20; ++i) {
    const peel_control a = applicant.join(0, 2, "job", 2 * i + 1);
    const peel_control b = applicant.join(1, 2, "job", 2 * i + 1);
    ASSERT_EQ(b.joined, 3u) << i;
    applicant.leave(a, endpoint(0));
    EXPECT_EQ(aggregator.jobs().find(a.job)->gone, 1u);
    applicant.leave(b, endpoint(1));
    EXPECT_EQ(aggregator.jobs().find(a.job), nullptr);
  }
}

TEST_F(Jobs, LateCopiesOfARequestJoinNothing) {
  peel_control request = Applicant::request(0, 1);
  request.challenge = applicant.ask(request, endpoint(0)).challenge;
  request.verb = PEEL_VERB_JOIN;
  const peel_control admitted = applicant.ask(request, endpoint(0));
  applicant.leave(admitted, endpoint(0));
  EXPECT_EQ(applicant.ask(request, endpoint(0)).verb, PEEL_VERB_REFUSED);
  EXPECT_EQ(applicant.join(0, 1, "job", 2).verb, PEEL_VERB_ADMITTED);
}

TEST_F(Jobs, AWorkerThatStartsAnewGetsANewJob) {
  const peel_control old = applicant.join(0, 2);
  applicant.join(1, 2);
  const peel_control anew = applicant.join(0, 2, "job", 2);
  EXPECT_EQ(anew.verb, PEEL_VERB_ADMITTED);
  EXPECT_NE(anew.cookie, old.cookie);
  EXPECT_EQ(anew.joined, 1u);
  EXPECT_EQ(aggregator.jobs().find(old.job)->gone, 1u) << "the other one learns that nobody will answer";
  EXPECT_EQ(applicant.join(1, 2).cookie, anew.cookie) << "who still waits for others waits in the new one";
}

// Slots of jobs that nobody can finish are the first to go.
TEST_F(Jobs, StartingAnewNeedsNoMoreRoom) {
  for (std::uint64_t i = 1; i < 50; ++i) {
    ASSERT_EQ(applicant.join(0, 2, "job", i).verb, PEEL_VERB_ADMITTED) << i;
    ASSERT_EQ(applicant.join(1, 2, "job", i).joined, 3u) << i;
  }
}

// A plane whose results get to some endpoints only.
struct Ways : JobListener {
  [[nodiscard]] bool began(const Job&) override { return has_room; }
  [[nodiscard]] bool let_in(const Job& job, unsigned worker) override { return job.endpoints[worker] != none; }
  void changed(const Job&) override {}
  void ended(const Job&) override { ++endings; }
  [[nodiscard]] Time heard(const Job&) const override { return {}; }

  Endpoint none = endpoint(9);
  bool has_room = true;
  int endings = 0;
};

struct JobsWithoutAWay : ::testing::Test {
  [[nodiscard]] JobTable::Answer join(unsigned worker, const Endpoint& from, std::uint64_t incarnation = 1,
                                      std::uint64_t name = 7) {
    return table.join({.name = name,
                       .incarnation = incarnation,
                       .worker = static_cast<std::uint8_t>(worker),
                       .workers = 3,
                       .words = 10,
                       .slots = 2,
                       .from = from},
                      {});
  }

  Ways ways;
  JobTable table{Jobs::limits(), [] { return 1; }, ways};
};

TEST_F(JobsWithoutAWay, TellAllTheirWorkers) {
  EXPECT_NE(join(0, endpoint(0), 1, 8).job, nullptr);
  EXPECT_NE(join(0, endpoint(0)).job, nullptr);
  EXPECT_EQ(join(1, endpoint(9)).reason, PEEL_REASON_NO_PORT);
  EXPECT_EQ(join(0, endpoint(0)).reason, PEEL_REASON_NO_PORT) << "who was in before";
  EXPECT_EQ(join(2, endpoint(2)).reason, PEEL_REASON_NO_PORT) << "who comes later";
  EXPECT_EQ(join(1, endpoint(9)).reason, PEEL_REASON_NO_PORT) << "and who asks again";
  EXPECT_NE(join(1, endpoint(1), 1, 8).job, nullptr) << "another job does not notice";
}

TEST_F(JobsWithoutAWay, MayStartAnew) {
  EXPECT_NE(join(0, endpoint(0)).job, nullptr);
  EXPECT_EQ(join(1, endpoint(9)).reason, PEEL_REASON_NO_PORT);
  for (unsigned worker : {1, 0, 2}) {
    const Job* job = join(worker, endpoint(worker), 2).job;
    ASSERT_NE(job, nullptr) << worker;
    EXPECT_EQ(job->joined == 7, worker == 2);
  }
}

TEST_F(JobsWithoutAWay, DoNotBegin) {
  EXPECT_EQ(join(0, endpoint(9)).reason, PEEL_REASON_NO_PORT);
  EXPECT_EQ(ways.endings, 1);
  ways.has_room = false;
  EXPECT_EQ(join(0, endpoint(0)).reason, PEEL_REASON_NO_ROOM);
  EXPECT_EQ(ways.endings, 2);
  ways.has_room = true;
  EXPECT_NE(join(0, endpoint(0)).job, nullptr);
}

TEST_F(Jobs, ThatDifferAreRefused) {
  applicant.join(0, 2);
  EXPECT_EQ(applicant.join(1, 3).reason, PEEL_REASON_DISAGREEMENT);
  peel_control small = Applicant::request(1, 2);
  small.words = 10;
  EXPECT_EQ(applicant.join(small, endpoint(1)).reason, PEEL_REASON_DISAGREEMENT);
  EXPECT_EQ(applicant.join(Applicant::request(0, 2), endpoint(5)).reason, PEEL_REASON_DISAGREEMENT)
      << "two processes with one rank";
  peel_control wrong = Applicant::request(3, 2);
  EXPECT_EQ(applicant.join(wrong, endpoint(3)).reason, PEEL_REASON_BAD_REQUEST);
  wrong = Applicant::request(0, 65, "other");
  EXPECT_EQ(applicant.join(wrong, endpoint(3)).reason, PEEL_REASON_BAD_REQUEST);
}

TEST_F(Jobs, ExpireWhenTheyAreSilent) {
  const peel_control job = applicant.join(0, 1, "quiet");
  const peel_control busy = applicant.join(0, 1, "busy");
  applicant.now = std::chrono::minutes(4);
  aggregator.on_data(0, endpoint(0), testing::to_bytes(testing::data_header(busy, 0, 0, 0), {1}), applicant.now);
  applicant.now = std::chrono::minutes(6);
  applicant.ask(Applicant::request(0, 1), endpoint(0));
  EXPECT_EQ(aggregator.jobs().find(job.job), nullptr);
  ASSERT_NE(aggregator.jobs().find(busy.job), nullptr);
}

// Data packets are heard by others' clocks, which may have been read later than that of the request.
TEST_F(Jobs, AreNotSilentForLongerThanTheyWereThere) {
  const peel_control job = applicant.join(0, 1);
  aggregator.on_data(0, endpoint(0), testing::to_bytes(testing::data_header(job, 0, 0, 0), {1}), Time{5});
  const auto reply = aggregator.on_control(
      endpoint(9), detail::sign(testing::kSecret, detail::make_control(PEEL_VERB_QUERY)), Time{2});
  ASSERT_EQ(reply.size(), sizeof(peel_control) + sizeof(peel_status) + sizeof(peel_job_status));
  peel_job_status record;
  std::memcpy(&record, reply.data() + sizeof(peel_control) + sizeof(peel_status), sizeof record);
  EXPECT_EQ(record.silent_ms, 0u);
}

TEST_F(Jobs, AreListedInPages) {
  Limits many;
  many.jobs = 50;
  Aggregator crowded(many, {testing::kSecret, {}}, 1);
  const Applicant one{crowded};
  for (int i = 0; i < 50; ++i) one.join(0, 1, std::to_string(i).c_str());
  unsigned listed = 0;
  for (std::uint16_t first = 0; first < 50;) {
    peel_control query = detail::make_control(PEEL_VERB_QUERY);
    query.slot_count = first;
    const auto reply = crowded.on_control(endpoint(9), detail::sign(testing::kSecret, query), {});
    ASSERT_LE(reply.size() + PEEL_WIRE_IP_BYTES, 1500u);
    peel_status status;
    std::memcpy(&status, reply.data() + sizeof(peel_control), sizeof status);
    EXPECT_EQ(status.jobs, 50);
    ASSERT_GT(status.following, 0);
    listed += status.following;
    first = static_cast<std::uint16_t>(first + status.following);
  }
  EXPECT_EQ(listed, 50u);
}

}  // namespace
}  // namespace peel::aggregator
