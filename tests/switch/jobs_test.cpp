// Who is let in, on what terms, and what becomes of jobs whose workers leave, die or start anew.
#include <gtest/gtest.h>

#include <sstream>

#include "draw.h"
#include "switch/wire_packets.h"

namespace peel::aggregator {
namespace {

using testing::Applicant;
using testing::Bytes;
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
  void pass(Time time) {
    for (const Time end = applicant.now + time; applicant.now < end;) {
      applicant.now += std::min(end - applicant.now, Time{100});
      aggregator.jobs().tick(applicant.now);
    }
  }
  peel_control keep_alive(peel_control job, unsigned worker) {
    job.worker = static_cast<std::uint8_t>(worker);
    return applicant.keep_alive(job, endpoint(worker), ++sequence);
  }
  // All are in, and were heard of.
  peel_control join_all(unsigned workers, std::uint64_t incarnation = 1) {
    for (unsigned worker = 0; worker < workers; ++worker) applicant.join(worker, workers, "job", incarnation);
    const peel_control job = applicant.join(0, workers, "job", incarnation);
    for (unsigned worker = 0; worker < workers; ++worker) keep_alive(job, worker);
    return job;
  }
  // A process ends without a word; all others live on.
  void kill(const peel_control& job, unsigned dead) {
    for (int i = 0; i < 40 && (aggregator.jobs().find(job.job)->gone >> dead & 1) == 0; ++i) {
      for (unsigned worker = 0; worker < job.workers; ++worker) {
        if (worker != dead) keep_alive(job, worker);
      }
      pass(Time{100});
      for (const Outgoing& one : aggregator.admission().notices()) aggregator.admission().take_refused(one.datagram);
    }
  }

  Aggregator aggregator{limits(), {Secrets(testing::kSecret), {}}, 1};
  Applicant applicant{aggregator};
  std::uint64_t sequence = 0;
};

TEST_F(Jobs, AdmitsAndRemembers) {
  const peel_control first = applicant.join(0, 2);
  EXPECT_EQ(first.verb, PEEL_VERB_ADMITTED);
  EXPECT_EQ(first.joined, 1u);
  EXPECT_EQ(first.slot_count, 3);
  EXPECT_EQ(first.words, 100);
  const peel_control second = applicant.join(1, 2);
  EXPECT_EQ(second.joined, 3u);
  EXPECT_EQ(second.cookie, first.cookie);
  EXPECT_EQ(applicant.join(0, 2).cookie, first.cookie) << "asking twice changes nothing";
  EXPECT_EQ(applicant.join(0, 2).joined, 3u);
}

TEST_F(Jobs, TakeTheFewestWordsWhateverTheOrder) {
  for (const auto& words : {std::vector<std::uint16_t>{80, 50, 60}, {50, 80, 60}, {60, 80, 50}}) {
    const std::string name = std::to_string(words[0]);
    peel_control last{};
    for (unsigned worker = 0; worker < 3; ++worker) {
      peel_control request = Applicant::request(worker, 3, name.c_str());
      request.words = words[worker];
      last = applicant.join(request, endpoint(worker));
    }
    EXPECT_EQ(last.joined, 7u);
    EXPECT_EQ(last.words, 50);
    EXPECT_EQ(applicant.join(0, 3, name.c_str()).words, 50) << "as everybody hears";
  }
}

TEST_F(Jobs, TellWhoHasAnotherSecretAndLetHimDoNothing) {
  const peel_control refused = applicant.join(Applicant::request(0, 2), endpoint(0), "guess");
  EXPECT_EQ(refused.verb, PEEL_VERB_REFUSED);
  EXPECT_EQ(refused.reason, PEEL_REASON_BAD_SECRET);
  EXPECT_EQ(aggregator.tally().dropped[PEEL_DROP_UNSIGNED], 1u);
  EXPECT_EQ(aggregator.jobs().find(0), nullptr);
  const peel_control admitted = applicant.join(0, 2);
  for (const peel_wire_verb verb : {PEEL_VERB_LEAVE, PEEL_VERB_KEEPALIVE}) {
    peel_control forged = admitted;
    forged.verb = static_cast<std::uint8_t>(verb);
    forged.sequence = 9;
    EXPECT_EQ(applicant.ask(forged, endpoint(0), "guess").verb, 0);
  }
  EXPECT_EQ(aggregator.jobs().find(admitted.job)->gone, 0u);
  EXPECT_EQ(aggregator.jobs().find(admitted.job)->members[0].sequence, 0u);
}

// Of a request that somebody saw: it holds for the address that it came from, and not for long.
TEST_F(Jobs, ReplayedRequestsAreNotAnswered) {
  for (const peel_wire_verb verb : {PEEL_VERB_JOIN, PEEL_VERB_QUERY, PEEL_VERB_PROBE}) {
    applicant.now = {};
    peel_control request = applicant.prove(Applicant::request(0, 2), endpoint(0), verb);
    request.data_port = 1000;
    Bytes datagram = testing::to_bytes(request);
    if (verb == PEEL_VERB_PROBE) datagram.resize(request.data_port);
    const auto replay = [&](const Endpoint& from) {
      return testing::open(applicant.answer(from, datagram, applicant.now));
    };
    EXPECT_EQ(replay(endpoint(7)).reason, PEEL_REASON_BAD_CHALLENGE);
    EXPECT_EQ(replay(endpoint(0, 5001)).reason, PEEL_REASON_BAD_CHALLENGE);
    EXPECT_EQ(replay(endpoint(0)).reason, PEEL_REASON_NONE);
    applicant.now = std::chrono::seconds(60);
    EXPECT_EQ(replay(endpoint(0)).reason, PEEL_REASON_BAD_CHALLENGE);
  }
  EXPECT_EQ(aggregator.tally().dropped[PEEL_DROP_UNPROVEN], 9u);
}

// Somebody on the path who makes them longer or shorter has nobody believe in a path that is not there.
TEST_F(Jobs, ProbesHaveTheLengthThatTheySay) {
  peel_control request = applicant.prove(Applicant::request(0, 2), endpoint(0), PEEL_VERB_PROBE);
  request.data_port = 1000;
  for (const std::size_t bytes : {999, 1000, 1001}) {
    Bytes datagram = testing::to_bytes(request);
    datagram.resize(bytes);
    const Bytes reply = applicant.answer(endpoint(0), datagram, applicant.now);
    EXPECT_EQ(reply.size(), bytes == 1000 ? bytes : 0);
    EXPECT_EQ(testing::open(reply).data_port, reply.size());
  }
}

TEST_F(Jobs, NoReplyIsLongerThanItsRequest) {
  const peel_control admitted = applicant.join(0, 1);
  for (int i = 0; i < 40; ++i) applicant.join(0, 1, ("filler " + std::to_string(i)).c_str());
  for (unsigned verb = 0; verb < 256; ++verb) {
    for (const bool proven : {false, true}) {
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{40}, std::size_t{71}, sizeof(peel_control) - 1, sizeof(peel_control),
            sizeof(peel_control) + 1, std::size_t{PEEL_WIRE_QUERY_BYTES}, std::size_t{9000}, std::size_t{65507}}) {
        peel_control request = admitted;
        if (proven) request.challenge = applicant.prove(request, endpoint(0), PEEL_VERB_JOIN).challenge;
        request.verb = static_cast<std::uint8_t>(verb);
        request.sequence = 1;
        Bytes datagram = detail::sign(testing::kSecret, request);
        datagram.resize(bytes);
        applicant.now += Time{1};
        EXPECT_LE(applicant.answer(endpoint(0), datagram, applicant.now).size(), bytes) << verb;
      }
    }
  }
}

TEST_F(Jobs, StrangersHaveABudget) {
  unsigned answers = 0;
  for (int i = 0; i < 10'000; ++i) answers += applicant.ask(Applicant::request(0, 2), endpoint(0)).verb != 0 ? 1 : 0;
  EXPECT_EQ(answers, 500u) << "of one address, at once";
  EXPECT_EQ(applicant.ask(Applicant::request(0, 2), endpoint(1)).verb, PEEL_VERB_CHALLENGE) << "others have their own";
  applicant.now += Time{100};
  for (int i = 0; i < 10'000; ++i) answers += applicant.ask(Applicant::request(0, 2), endpoint(0)).verb != 0 ? 1 : 0;
  EXPECT_EQ(answers, 700u) << "and some more with time";
  for (unsigned from = 0; from < 250; ++from) {
    for (int i = 0; i < 100; ++i) answers += applicant.ask(Applicant::request(0, 2), endpoint(from)).verb != 0 ? 1 : 0;
  }
  EXPECT_LE(answers, 700u + 7000u) << "of all together";
  EXPECT_GT(aggregator.tally().dropped[PEEL_DROP_BUDGET], 20'000u);
}

TEST_F(Jobs, MembersAreNotOfTheBudget) {
  const peel_control admitted = applicant.join(0, 1);
  while (applicant.ask(Applicant::request(0, 2), endpoint(0)).verb != 0) {
  }
  EXPECT_EQ(applicant.keep_alive(admitted, endpoint(0), 1).verb, PEEL_VERB_STATE);
}

// Who saw the packets of a member may send in its name, and does not get more done by it than any stranger.
TEST_F(Jobs, MembersHaveABudgetOfTheirOwn) {
  peel_control sign = applicant.join(0, 1);
  sign.verb = PEEL_VERB_KEEPALIVE;
  for (int i = 0; i < 10'000; ++i) {
    ++sign.sequence;
    applicant.answer(Applicant::pulse(endpoint(0)), testing::to_bytes(sign, "a guess at the secret"), applicant.now);
  }
  EXPECT_LE(aggregator.tally().dropped[PEEL_DROP_UNSIGNED], 600u);
  EXPECT_GT(aggregator.tally().dropped[PEEL_DROP_BUDGET], 9'000u);
  applicant.now += Time{100};
  EXPECT_EQ(applicant.keep_alive(sign, endpoint(0), 1).verb, PEEL_VERB_STATE);
}

// Ten requests to join and twenty signs of life a second.
TEST_F(Jobs, WhatMembersMaySendIsNeverDropped) {
  const peel_control job = applicant.join(0, 2);
  const peel_control again = applicant.prove(Applicant::request(0, 2), endpoint(0), PEEL_VERB_JOIN);
  while (applicant.ask(Applicant::request(0, 2), endpoint(0)).verb != 0) {  // strangers have used up theirs
  }
  for (int i = 0; i < 100; ++i) {
    applicant.now += Time{50};
    while (applicant.ask(Applicant::request(0, 2), endpoint(0)).verb != 0) {
    }
    if (i % 2 == 0) {
      EXPECT_EQ(applicant.ask(again, endpoint(0)).verb, PEEL_VERB_ADMITTED) << i;
    }
    EXPECT_EQ(keep_alive(job, 0).verb, PEEL_VERB_STATE) << i;
  }
}

TEST_F(Jobs, LanesGoOnWhileMembersAskAgain) {
  const auto stops_lanes = [&](unsigned worker, std::uint64_t incarnation) {
    const peel_control join =
        applicant.prove(Applicant::request(worker, 2, "job", incarnation), endpoint(worker), PEEL_VERB_JOIN);
    const Bytes datagram = testing::to_bytes(join);
    const Arrival arrival{endpoint(worker), {}, datagram};
    const Admission::Reading reading = aggregator.admission().read(arrival, applicant.now);
    EXPECT_TRUE(reading.request);
    return reading.touches_slots();
  };
  applicant.join(0, 2);
  EXPECT_FALSE(stops_lanes(0, 1));
  EXPECT_TRUE(stops_lanes(1, 1)) << "who comes";
  EXPECT_TRUE(stops_lanes(0, 2)) << "who begins anew";
}

TEST_F(Jobs, ReplayedRequestsToJoinAreNoSignsOfLife) {
  const peel_control join = applicant.prove(Applicant::request(0, 2), endpoint(0), PEEL_VERB_JOIN);
  applicant.ask(join, endpoint(0));
  const peel_control job = applicant.join(1, 2);
  for (unsigned worker = 0; worker < 2; ++worker) keep_alive(job, worker);
  for (int i = 0; i < 105; ++i) {
    const bool is_in = (aggregator.jobs().find(job.job)->gone & 1) == 0;
    EXPECT_EQ(applicant.ask(join, endpoint(0)).verb, is_in ? PEEL_VERB_ADMITTED : PEEL_VERB_REFUSED) << i;
    keep_alive(job, 1);
    pass(Time{100});
  }
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 1u);
}

TEST_F(Jobs, EveryJobGetsItsBlockAndNobodyTheBlockOfOthers) {
  peel_control greedy = Applicant::request(0, 1, "a");
  greedy.slot_count = 1000;
  for (const char* name : {"a", "b", "c"}) {
    detail::set_name(greedy.name, name);
    EXPECT_EQ(applicant.join(greedy, endpoint(0)).slot_count, 3) << name;
  }
  detail::set_name(greedy.name, "d");
  const peel_control refused = applicant.join(greedy, endpoint(0));
  EXPECT_EQ(refused.verb, PEEL_VERB_REFUSED) << "and no waiting";
  EXPECT_EQ(refused.reason, PEEL_REASON_NO_ROOM);
}

TEST(JobSlots, ThatAreNobodysMayBeHadInAdditionUpToTheQuota) {
  Limits limits;
  limits.jobs = 2;
  limits.slots = 40;
  limits.job_slots = 16;
  Aggregator aggregator{limits, {Secrets(testing::kSecret), {}}, 1};
  EXPECT_EQ(aggregator.jobs().block_slots(), 16u);
  const Applicant applicant{aggregator};
  peel_control greedy = Applicant::request(0, 1, "a");
  greedy.slot_count = 1000;
  EXPECT_EQ(applicant.join(greedy, endpoint(0)).slot_count, 16);
  const Limits defaults;
  Aggregator wide{defaults, {Secrets(testing::kSecret), {}}, 1};
  const Applicant many{wide};
  for (unsigned i = 0; i < defaults.jobs; ++i) {
    peel_control full = Applicant::request(0, 1, std::to_string(i).c_str());
    full.slot_count = 512;
    EXPECT_EQ(many.join(full, endpoint(0)).slot_count, 512) << i;
  }
}

// What blocks leave over goes to who asks for it: here eight jobs may come, and each has five slots for certain.
TEST(JobSlots, AreDealtSoThatTheLastJobHasAsGoodAPlaceAsTheFirst) {
  Limits limits;
  limits.jobs = 8;
  limits.slots = 47;
  limits.job_slots = 20;
  Aggregator aggregator{limits, {Secrets(testing::kSecret), {}}, 1};
  const Applicant applicant{aggregator};
  testing::SeededDraw random(3);
  std::vector<peel_control> in;
  for (int i = 0; i < 2000; ++i) {
    if (in.size() == 8 || (!in.empty() && random.one_in(2))) {
      const std::size_t which = random.below(in.size());
      applicant.leave(in[which], endpoint(0));
      in.erase(in.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    peel_control request = Applicant::request(0, 1, std::to_string(i).c_str(), static_cast<std::uint64_t>(i) + 1);
    request.slot_count = static_cast<std::uint16_t>(random.between(1, 30));
    const_cast<Time&>(applicant.now) += Time{100};
    const peel_control admitted = applicant.join(request, endpoint(0));
    ASSERT_EQ(admitted.verb, PEEL_VERB_ADMITTED) << i;
    EXPECT_GE(admitted.slot_count, std::min<unsigned>(request.slot_count, 5));
    EXPECT_LE(admitted.slot_count, std::min<unsigned>(request.slot_count, 20));
    in.push_back(admitted);
  }
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

// Its former life may still be there, or somebody else has taken the same name: the first one is not disturbed.
TEST_F(Jobs, ANameWhoseWorkersLiveIsTaken) {
  const peel_control first = applicant.join(0, 2);
  applicant.join(1, 2);
  EXPECT_EQ(applicant.join(0, 2, "job", 2).reason, PEEL_REASON_TAKEN);
  EXPECT_EQ(aggregator.jobs().find(first.job)->gone, 0u);
  EXPECT_EQ(applicant.join(0, 2).cookie, first.cookie);
}

// Whoever starts anew with another number of workers waits for the old ones to be dead, as with the same number.
TEST_F(Jobs, ATakenNameSaysWhetherItsWorkersAreHeardOf) {
  const peel_control old = join_all(3);
  const peel_control first = applicant.join(0, 2, "job", 2);
  EXPECT_EQ(first.reason, PEEL_REASON_TAKEN);
  EXPECT_EQ(first.flags, 0);
  keep_alive(old, 0);
  pass(Time{800});
  EXPECT_EQ(applicant.join(0, 2, "job", 2).flags, PEEL_FLAG_SILENT);
  kill(old, 2);
  EXPECT_EQ(applicant.join(0, 2, "job", 2).verb, PEEL_VERB_ADMITTED);
}

TEST_F(Jobs, AWorkerThatDiedAndStartsAnewGetsANewJob) {
  const peel_control old = join_all(2);
  kill(old, 0);
  EXPECT_EQ(aggregator.jobs().find(old.job)->gone, 1u) << "the other one learns that nobody will answer";
  const peel_control anew = applicant.join(0, 2, "job", 2);
  EXPECT_EQ(anew.verb, PEEL_VERB_ADMITTED);
  EXPECT_NE(anew.cookie, old.cookie);
  EXPECT_EQ(anew.joined, 1u);
  EXPECT_EQ(applicant.join(1, 2, "job", 2).cookie, anew.cookie);
  EXPECT_EQ(applicant.join(1, 2, "job", 2).joined, 3u);
}

// Slots of jobs that nobody can finish are the first to go.
// Incarnations are no times: whoever starts later may have a smaller one.
TEST_F(Jobs, AClockThatIsBehindIsNoMatter) {
  const peel_control old = join_all(2, 1'000'000);
  kill(old, 1);
  const peel_control fresh = join_all(2, 7);
  EXPECT_EQ(fresh.verb, PEEL_VERB_ADMITTED);
  EXPECT_EQ(fresh.joined, 3u);
  EXPECT_NE(fresh.cookie, old.cookie);
}

TEST_F(Jobs, StartingAnewNeedsNoMoreRoom) {
  for (std::uint64_t i = 1; i < 50; ++i) {
    const peel_control job = join_all(2, i);
    ASSERT_EQ(job.joined, 3u) << i;
    kill(job, 0);
  }
}

TEST_F(Jobs, WhoIsSilentIsAskedAndWhoAnswersLives) {
  const peel_control job = join_all(2);
  for (int i = 0; i < 600; ++i) {  // a minute
    pass(Time{100});
    for (const Outgoing& one : aggregator.admission().notices()) {
      const peel_control ping = testing::open(one.datagram);
      EXPECT_EQ(ping.verb, PEEL_VERB_PING);
      EXPECT_EQ(one.to, Applicant::pulse(endpoint(ping.worker)));
      EXPECT_EQ(keep_alive(job, ping.worker).gone, 0u);
    }
  }
  ASSERT_NE(aggregator.jobs().find(job.job), nullptr);
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  EXPECT_GT(sequence, 50u);
}

// A stopped process: its host takes what comes, and nobody answers.
TEST_F(Jobs, SilenceForSecondsIsNoDeath) {
  const peel_control job = join_all(2);
  std::size_t questions = 0;
  for (int i = 0; i < 50; ++i) {
    keep_alive(job, 1);
    pass(Time{100});
    questions += aggregator.admission().notices().size();
  }
  EXPECT_GT(questions, 10u);
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  keep_alive(job, 0);
  for (int i = 0; i < 101; ++i) {
    keep_alive(job, 1);
    pass(Time{100});
  }
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 1u) << "but for as long as the switch was told it is";
}

// A flood may keep signs of life from being read, while lanes have sockets of their own.
TEST_F(Jobs, AWorkerWhoseDataComeIsNotSilent) {
  const peel_control job = join_all(2);
  const auto send_data = [&](std::uint32_t round) {
    for (unsigned worker = 0; worker < 2; ++worker) {
      const Bytes datagram = testing::to_bytes(testing::data_header(job, worker, 0, round), {1, 2});
      aggregator.on_data(0, endpoint(worker), datagram, applicant.now);
    }
  };
  for (std::uint32_t round = 0; round < 30; ++round) {
    send_data(round);
    pass(Time{1000});
  }
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  EXPECT_GT(aggregator.tally().completed, 29u);
  pass(Time{9000});
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  pass(Time{2500});
  EXPECT_EQ(aggregator.jobs().find(job.job), nullptr) << "nothing at all came for longer than is allowed";
}

// The switch itself was stopped: it reads late what came in time.
TEST_F(Jobs, AStoppedSwitchTakesNobodyForDead) {
  const peel_control job = join_all(2);
  for (int i = 0; i < 3; ++i) {
    applicant.now += std::chrono::minutes(2);
    aggregator.jobs().tick(applicant.now);
    ASSERT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  }
  for (int i = 0; i < 95; ++i) pass(Time{100});
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  pass(Time{600});
  EXPECT_EQ(aggregator.jobs().find(job.job), nullptr) << "but who stays silent is";
}

TEST_F(Jobs, ADeadProcessIsNoticedWithinTwoSecondsAndTheOthersAreTold) {
  const peel_control job = join_all(3);
  Time took{};
  bool told = false;
  while (aggregator.jobs().find(job.job)->gone == 0 && took < Time{5000}) {
    for (const unsigned worker : {0U, 2U}) keep_alive(job, worker);
    pass(Time{50});
    took += Time{50};
    for (const Outgoing& one : aggregator.admission().notices()) {
      const peel_control sent = testing::open(one.datagram);
      if (sent.verb == PEEL_VERB_PING) aggregator.admission().take_refused(one.datagram);
      if (sent.verb == PEEL_VERB_STATE && sent.gone == 2) told = true;
    }
  }
  for (const Outgoing& one : aggregator.admission().notices()) told |= testing::open(one.datagram).gone == 2;
  EXPECT_LT(took, Time{2000});
  EXPECT_TRUE(told);
  EXPECT_EQ(keep_alive(job, 0).gone, 2u);
}

TEST_F(Jobs, ADeathBeforeTheFirstSignOfLifeIsNoticedAsSoon) {
  applicant.join(0, 2);
  const peel_control job = applicant.join(1, 2);
  ASSERT_EQ(job.joined, 3u);
  const Time began = applicant.now;
  kill(job, 1);
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 2u);
  EXPECT_LT(applicant.now - began, Time{2000});
}

// An answer of the network may take longer than it takes to ask again.
TEST_F(Jobs, AnAnswerToAnEarlierQuestionCountsToo) {
  const peel_control job = join_all(2);
  std::deque<Bytes> on_the_way;
  for (int i = 0; i < 25; ++i) {
    keep_alive(job, 1);
    pass(Time{100});
    for (const Outgoing& one : aggregator.admission().notices()) on_the_way.push_back(one.datagram);
    if (on_the_way.size() < 5) continue;
    aggregator.admission().take_refused(on_the_way.front());
    on_the_way.pop_front();
  }
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 1u);
}

// The network may say what it wants of packets that it did not see.
TEST_F(Jobs, RefusalsThatQuoteNothingKillNobody) {
  const peel_control job = join_all(2);
  for (int i = 0; i < 50; ++i) {
    keep_alive(job, 1);
    pass(Time{100});
    const auto notices = aggregator.admission().notices();
    peel_control forged = detail::make_control(PEEL_VERB_PING);
    forged.job = job.job;
    forged.cookie = job.cookie;
    forged.sequence = static_cast<std::uint64_t>(i);
    aggregator.admission().take_refused(testing::to_bytes(forged));
    aggregator.admission().take_refused({});
    // One question that comes back again and again counts once.
    if (i == 12 && !notices.empty()) {
      for (int k = 0; k < 5; ++k) aggregator.admission().take_refused(notices[0].datagram);
    }
  }
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
}

TEST_F(Jobs, ReplayedSignsOfLifeCountForNothing) {
  const peel_control job = join_all(2);
  pass(Time{300});
  EXPECT_EQ(applicant.keep_alive(job, endpoint(0), 1000).verb, PEEL_VERB_STATE);
  const Time heard = aggregator.jobs().find(job.job)->members[0].heard;
  pass(Time{300});
  EXPECT_EQ(applicant.keep_alive(job, endpoint(0), 1000).verb, 0) << "again";
  EXPECT_EQ(applicant.keep_alive(job, endpoint(0), 999).verb, 0) << "late";
  EXPECT_EQ(applicant.keep_alive(job, endpoint(5), 1001).verb, 0) << "from another host";
  EXPECT_EQ(aggregator.jobs().find(job.job)->members[0].heard, heard);
  EXPECT_EQ(aggregator.tally().dropped[PEEL_DROP_STALE], 2u);
  EXPECT_EQ(aggregator.tally().dropped[PEEL_DROP_FORGED], 1u);
  peel_control farewell = job;
  farewell.verb = PEEL_VERB_LEAVE;
  EXPECT_EQ(applicant.ask(farewell, endpoint(5)).verb, 0) << "nor does anybody leave from elsewhere";
  EXPECT_EQ(aggregator.jobs().find(job.job)->gone, 0u);
  peel_control other = job;
  other.cookie ^= 1;
  EXPECT_EQ(applicant.keep_alive(other, endpoint(0), 1002).reason, PEEL_REASON_UNKNOWN_JOB);
}

TEST_F(Jobs, HalfJoinedDeadWorkersGiveTheirSlotsBackInSeconds) {
  applicant.join(0, 3);
  const peel_control alive = applicant.join(1, 3);
  for (int i = 0; i < 31; ++i) {
    pass(Time{100});
    applicant.join(1, 3);
  }
  const peel_control anew = applicant.join(1, 3);
  EXPECT_NE(anew.cookie, alive.cookie) << "begun anew, for who still asks";
  EXPECT_EQ(anew.joined, 2u);
  pass(Time{3100});
  EXPECT_EQ(aggregator.jobs().find(anew.job), nullptr) << "and over when nobody does";
}

TEST_F(Jobs, DrainingTellsEverybodyAndTakesNobody) {
  const peel_control job = join_all(2);
  applicant.join(0, 2, "half");
  aggregator.jobs().drain();
  const auto notices = aggregator.admission().notices();
  ASSERT_EQ(notices.size(), 2u);
  for (const Outgoing& one : notices) EXPECT_EQ(testing::open(one.datagram).flags, PEEL_FLAG_DRAINING);
  EXPECT_EQ(applicant.join(0, 1, "another").reason, PEEL_REASON_DRAINING);
  EXPECT_EQ(applicant.join(0, 2).verb, PEEL_VERB_ADMITTED) << "who is in, is in";
  EXPECT_EQ(applicant.join(0, 2, "half").reason, PEEL_REASON_DRAINING) << "but who waits for others waits in vain";
  const auto send = [&](unsigned worker, std::uint32_t round) {
    return aggregator.on_data(0, endpoint(worker), testing::to_bytes(testing::data_header(job, worker, 0, round), {1}),
                              applicant.now);
  };
  send(0, 0);
  EXPECT_EQ(send(1, 0).to, Outcome::To::everybody) << "what is under way goes on";
  aggregator.jobs().refuse_all();
  EXPECT_EQ(send(0, 1).header.operation, PEEL_REASON_WORKER_GONE) << "until it does not";
}

TEST_F(Jobs, TenantsHaveSecretsOfTheirOwn) {
  Aggregator shared{limits(),
                    {Secrets(std::vector<Tenant>{{"", "the secret of the operator"},
                                                 {"a/", "the secret of the tenant a"},
                                                 {"a/", "the next secret of tenant a"},
                                                 {"a/x/", "the secret of a team of a"}}),
                     {}},
                    1};
  Applicant one{shared};
  const auto verb = [&](const char* job, const char* secret) {
    static std::uint64_t incarnation = 0;
    for (int i = 0; i < 40; ++i) shared.jobs().tick(one.now += Time{100});  // ends what was tried before
    return one.join(Applicant::request(0, 2, job, ++incarnation), endpoint(0), secret).verb;
  };
  EXPECT_EQ(verb("a/1", "the secret of the tenant a"), PEEL_VERB_ADMITTED);
  EXPECT_EQ(verb("a/1", "the next secret of tenant a"), PEEL_VERB_ADMITTED) << "while one replaces the other";
  EXPECT_EQ(verb("a/1", "the secret of the operator"), PEEL_VERB_REFUSED);
  EXPECT_EQ(verb("a/x/1", "the secret of the tenant a"), PEEL_VERB_REFUSED);
  EXPECT_EQ(verb("a/x/1", "the secret of a team of a"), PEEL_VERB_ADMITTED);
  EXPECT_EQ(verb("b", "the secret of the operator"), PEEL_VERB_ADMITTED);
  EXPECT_EQ(verb("b", "the secret of the tenant a"), PEEL_VERB_REFUSED);
  shared.admission().set_secrets(Secrets(std::vector<Tenant>{{"a/", "the next secret of tenant a"}}));
  EXPECT_EQ(verb("a/1", "the secret of the tenant a"), PEEL_VERB_REFUSED);
  EXPECT_EQ(verb("a/1", "the next secret of tenant a"), PEEL_VERB_ADMITTED);
  EXPECT_EQ(verb("b", "the secret of the operator"), PEEL_VERB_REFUSED) << "nobody's jobs are nobody's";
}

TEST_F(Jobs, TenantsSeeTheirOwnJobs) {
  Aggregator shared{limits(),
                    {Secrets(std::vector<Tenant>{{"a/", "the secret of the tenant a"},
                                                 {"a/x", "the secret of another one"},
                                                 {"", "the secret of the operator"}}),
                     {}},
                    1};
  const Applicant one{shared};
  one.join(Applicant::request(0, 1, "a/1"), endpoint(0), "the secret of the tenant a");
  one.join(Applicant::request(0, 1, "a/x1"), endpoint(0), "the secret of another one");
  one.join(Applicant::request(0, 1, "b"), endpoint(0), "the secret of the operator");
  const auto listed = [&](const char* prefix, const char* secret) {
    peel_control query = one.prove(Applicant::request(0, 1, prefix), endpoint(0), PEEL_VERB_QUERY);
    query.slot_count = 0;
    const Bytes reply = one.answer(endpoint(0), testing::to_bytes(query, secret), {});
    if (testing::open(reply, secret).verb != PEEL_VERB_STATUS) return -1;
    peel_status status;
    std::memcpy(&status, reply.data() + sizeof(peel_control), sizeof status);
    return int{status.following};
  };
  EXPECT_EQ(listed("", "the secret of the operator"), 3);
  EXPECT_EQ(listed("a/", "the secret of the tenant a"), 1) << "not those of another tenant, though they begin so too";
  EXPECT_EQ(listed("a/x", "the secret of another one"), 1);
  EXPECT_EQ(listed("", "the secret of the tenant a"), -1);
  EXPECT_EQ(listed("b", "the secret of the tenant a"), -1);
}

TEST_F(Jobs, LeaveLinesInTheJournal) {
  std::vector<std::string> lines;
  const Journal journal = [&](const Event& event) {
    std::ostringstream line;
    line << event.what;
    for (const auto& [key, value] : event.facts) line << ' ' << key << '=' << value;
    lines.push_back(line.str());
  };
  Aggregator noted{limits(), {Secrets(testing::kSecret), {}}, 1, journal};
  Applicant one{noted};
  const peel_control admitted = one.join(0, 1, "run 7");
  one.join(0, 2, "run 7", 3);
  one.join(0, 2, "run 7", 3);  // says nothing new
  one.join(Applicant::request(0, 2, "run 8"), endpoint(4), "guess");
  one.join(Applicant::request(0, 2, "run 8"), endpoint(4), "guess");
  one.leave(admitted, endpoint(0));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "join job=run 7 number=0 worker=0 workers=1 from=10.0.0.1:5000 slots=3 slots_wanted=4 words=100",
                       "refuse job=run 7 worker=0 workers=2 from=10.0.0.1:5000 why=the name is taken",
                       "refuse job=run 8 from=10.0.0.5:5000 why=wrong secret",
                       "leave job=run 7 number=0 worker=0 from=10.0.0.1:5000",
                       "end job=run 7 number=0 why=over",
                   }));
}

// A plane whose results get to some endpoints only.
struct Ways : JobListener {
  [[nodiscard]] bool began(const Job&) override { return has_room; }
  [[nodiscard]] Entry let_in(const Job& job, unsigned worker) override {
    const Endpoint& from = job.members[worker].endpoint;
    if (from == unseen) return Entry::unknown;
    return from == none ? Entry::closed : Entry::open;
  }
  void changed(const Job&) override {}
  void ended(const Job&) override { ++endings; }

  Endpoint none = endpoint(9);
  Endpoint unseen = endpoint(8);
  bool has_room = true;
  int endings = 0;
};

struct JobsWithoutAWay : ::testing::Test {
  [[nodiscard]] JobTable::Answer join(unsigned worker, const Endpoint& from, std::uint64_t incarnation = 1,
                                      const char* name = "7") {
    return table.join({.name = name,
                       .incarnation = incarnation,
                       .challenge = 0,
                       .worker = static_cast<std::uint8_t>(worker),
                       .workers = 3,
                       .words = 10,
                       .slots = 2,
                       .from = from,
                       .here = {},
                       .secret = {}},
                      {});
  }

  Ways ways;
  JobTable table{Jobs::limits(), [] { return 1; }, ways};
};

TEST_F(JobsWithoutAWay, TellAllTheirWorkers) {
  EXPECT_NE(join(0, endpoint(0), 1, "8").job, nullptr);
  EXPECT_NE(join(0, endpoint(0)).job, nullptr);
  EXPECT_EQ(join(1, endpoint(9)).reason, PEEL_REASON_NO_PORT);
  EXPECT_EQ(join(0, endpoint(0)).reason, PEEL_REASON_NO_PORT) << "who was in before";
  EXPECT_EQ(join(2, endpoint(2)).reason, PEEL_REASON_NO_PORT) << "who comes later";
  EXPECT_EQ(join(1, endpoint(9)).reason, PEEL_REASON_NO_PORT) << "and who asks again";
  EXPECT_NE(join(1, endpoint(1), 1, "8").job, nullptr) << "another job does not notice";
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

// It will ask again, so nobody is told anything.
TEST_F(JobsWithoutAWay, WaitForOneWhoseWayIsUnknown) {
  const auto is_silent = [](const JobTable::Answer& answer) {
    return answer.job == nullptr && answer.reason == PEEL_REASON_NONE;
  };
  EXPECT_TRUE(is_silent(join(0, endpoint(8)))) << "the first worker";
  EXPECT_EQ(table.jobs()[0], nullptr);
  EXPECT_NE(join(0, endpoint(0)).job, nullptr);
  EXPECT_TRUE(is_silent(join(1, endpoint(8))));
  EXPECT_NE(join(2, endpoint(2)).job, nullptr) << "the others go on";
  table.tick(std::chrono::seconds(2));
  EXPECT_TRUE(is_silent(join(1, endpoint(8), 2))) << "another life of that worker";
  const Job* job = join(1, endpoint(1), 3).job;
  ASSERT_NE(job, nullptr);
  EXPECT_TRUE(job->complete());
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
  EXPECT_EQ(applicant.join(Applicant::request(0, 2), endpoint(5)).reason, PEEL_REASON_DISAGREEMENT)
      << "two processes with one rank";
  peel_control wrong = Applicant::request(3, 2);
  EXPECT_EQ(applicant.join(wrong, endpoint(3)).reason, PEEL_REASON_BAD_REQUEST);
  wrong = Applicant::request(0, 65, "other");
  EXPECT_EQ(applicant.join(wrong, endpoint(3)).reason, PEEL_REASON_BAD_REQUEST);
  wrong = Applicant::request(0, 1, "");
  EXPECT_EQ(applicant.join(wrong, endpoint(3)).reason, PEEL_REASON_BAD_REQUEST);
}

TEST_F(Jobs, AreListedInPages) {
  Limits many;
  many.jobs = 50;
  Aggregator crowded(many, {Secrets(testing::kSecret), {}}, 1);
  const Applicant one{crowded};
  for (int i = 0; i < 50; ++i) one.join(0, 1, std::to_string(i).c_str());
  for (const std::size_t bytes : {PEEL_WIRE_SHORT_QUERY_BYTES + 0, 1000, PEEL_WIRE_QUERY_BYTES + 0}) {
    unsigned listed = 0;
    for (std::uint16_t first = 0; first < 50;) {
      peel_control query = one.prove(Applicant::request(0, 1, ""), endpoint(9), PEEL_VERB_QUERY);
      query.slot_count = first;
      Bytes question = testing::to_bytes(query);
      question.resize(bytes);
      const auto reply = one.answer(endpoint(9), question, {});
      ASSERT_TRUE(detail::is_signed(testing::kSecret, reply));
      ASSERT_LE(reply.size(), bytes);
      peel_status status;
      std::memcpy(&status, reply.data() + sizeof(peel_control), sizeof status);
      EXPECT_EQ(status.jobs, 50);
      ASSERT_GT(status.following, 0);
      listed += status.following;
      first = static_cast<std::uint16_t>(first + status.following);
    }
    EXPECT_EQ(listed, 50u) << bytes;
  }
}

// Counting them may take long, so those who ask again and again get what was counted a moment ago.
TEST_F(Jobs, CountBusySlotsNowAndThen) {
  struct Slow : Census {
    mutable int counted = 0;
    [[nodiscard]] Tally tally() const override { return {}; }
    [[nodiscard]] JobTally tally_of(const Job&) const override { return {}; }
    [[nodiscard]] std::uint32_t busy_slots(const Job&) const override { return static_cast<std::uint32_t>(++counted); }
  } census;
  struct Desk {
    Admission one;
    Admission& admission() { return one; }
  } desk{Admission(aggregator.jobs(), census, {Secrets(testing::kSecret), {}})};
  Applicant asker{desk};
  applicant.join(0, 1);
  const auto busy = [&](Time when) {
    asker.now = when;
    peel_control query = asker.prove(Applicant::request(0, 1, ""), endpoint(9), PEEL_VERB_QUERY);
    query.slot_count = 0;
    const Bytes reply = asker.answer(endpoint(9), testing::to_bytes(query), when);
    peel_job_status record;
    std::memcpy(&record, reply.data() + sizeof(peel_control) + sizeof(peel_status), sizeof record);
    return record.busy;
  };
  EXPECT_EQ(busy(Time{1000}), 1u);
  EXPECT_EQ(busy(Time{1099}), 1u);
  EXPECT_EQ(busy(Time{1100}), 2u);
  EXPECT_EQ(census.counted, 2);
}

}  // namespace
}  // namespace peel::aggregator
