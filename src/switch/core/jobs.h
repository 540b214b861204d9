// Who may use the switch: jobs, their workers and their shares of the slots. A job is admitted when its first worker
// joins and gets its slots then, one run of them; what it does not get then it never gets, so that no job waits for
// another. Tells a listener what changes, which keeps the slots themselves, and collects what workers are to be told.
//
// Slots are dealt in blocks, as many as there may be jobs. A job that asks for more than a block gets further ones only
// as long as one is left for every job that may still come: so the last job has as good a place as the first.
//
// Signs of life. A worker that is in sends one a few times a second, also while it computes. One that is silent is
// asked; if its host answers that there is no such socket, to a question that only it can have seen, its process is
// dead, unless the host has taken a connection for it meanwhile. Silence alone proves nothing for long: a process may
// be stopped, a machine busy. Only after `Limits::silence` it does. Hosts limit such answers, so a silent worker is
// also asked by a TCP connection, if it has a port for that: see switch/net/contact.h. A worker whose data are accepted
// is not given up for its silence: a flood may keep signs of life from being read while the lanes are well.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "switch/core/journal.h"
#include "switch/core/secrets.h"
#include "switch/net/contact.h"
#include "switch/wire/wire.h"

namespace peel::aggregator {

using Time = std::chrono::milliseconds;  // of a clock that only goes forward

using IpAddress = std::array<std::uint8_t, 16>;  // IPv4 as ::ffff:a.b.c.d; all zero: none in particular

struct Endpoint {
  IpAddress address{};
  std::uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
};
std::string text_of(const Endpoint& endpoint);
bool is_four(const IpAddress& address) noexcept;

struct Limits {
  std::uint16_t jobs = 32;
  std::uint32_t slots = 16384;                // of all jobs together
  std::uint16_t job_slots = 512;              // of one job
  std::uint16_t words = PEEL_WIRE_MAX_WORDS;  // of one packet
  std::uint8_t lanes = 1;
  Time silence = std::chrono::seconds(10);  // a worker without a sign of life for so long is gone
  bool sign = false;                        // the check of packets is keyed
};

// What connections to the TCP port of a worker tell.
struct Witness {
  std::uint16_t port = 0;  // none
  bool trusted = false;    // a connection was taken
  bool refused = false;    // and one is not any more, since the worker was heard
  bool asked = false;      // one is under way, or is to be
  unsigned tests = 0;      // connections before it was trusted
  Time when{};             // the last one was asked for
  Time taken{};            // the last one that was taken was asked for
};

struct Member {
  Endpoint endpoint;  // where its data come from
  IpAddress here{};   // and which address of this switch they go to
  std::uint64_t incarnation = 0;
  std::uint64_t challenge = 0;  // with which it was let in
  Secret secret;
  Time heard{};
  Time worked{};              // data of it were found to have been accepted since the look before
  std::uint64_t packets = 0;  // of data, at that time
  Endpoint pulse;             // where its signs of life come from; port 0: none came yet, and it is asked at `endpoint`
  IpAddress pulse_here{};
  std::uint64_t sequence = 0;  // of the last one
  Time pinged{};
  std::array<std::uint64_t, 8> pings{};  // the sequences of the last questions; 0: none, or it came back
  std::size_t next_ping = 0;             // where the next one goes
  unsigned refusals = 0;                 // questions since it was heard that its host says nobody is there for
  Witness witness;
};

struct Job {
  std::uint16_t number = 0;
  std::string name;
  std::uint64_t cookie = 0;
  std::array<std::uint8_t, PEEL_WIRE_KEY_BYTES> key{};  // of its packets, where they are signed
  std::uint8_t workers = 0;
  std::uint16_t words = 0;  // the least that a member can take; final when all are in
  std::uint32_t first_slot = 0;
  std::uint16_t slot_count = 0;
  std::uint64_t joined = 0;  // bitmaps of workers
  std::uint64_t gone = 0;
  bool superseded = false;  // the name belongs to a newer job; this one may still be read
  bool stranded = false;    // a worker could not be let in, so it will never be complete
  std::vector<Member> members;

  [[nodiscard]] std::uint64_t everybody() const noexcept { return ~std::uint64_t{0} >> (64 - workers); }
  [[nodiscard]] bool complete() const noexcept { return joined == everybody(); }
};

// Whether results get to a worker that comes.
enum class Entry : std::uint8_t {
  open,
  closed,   // they cannot
  unknown,  // not yet: it gets no answer, and so asks again
};

class JobListener {
 public:
  virtual ~JobListener() = default;
  // Its slots must forget what they held; nobody is in yet. False: there is no room for it.
  [[nodiscard]] virtual bool began(const Job& job) = 0;
  // A worker comes, who is written down in `members`. Unless it is open, it stays out.
  [[nodiscard]] virtual Entry let_in(const Job&, unsigned /*worker*/) { return Entry::open; }
  virtual void changed(const Job& job) = 0;  // workers came or went, or packets have fewer words
  virtual void ended(const Job& job) = 0;
  // Data packets of a worker that were accepted, so far.
  [[nodiscard]] virtual std::uint64_t packets_of(const Job&, unsigned /*worker*/) const { return 0; }
};

// A worker is to be told how its job stands, or asked whether it is still there.
struct Notice {
  std::uint16_t job = 0;
  std::uint64_t cookie = 0;
  std::uint8_t worker = 0;
  peel_wire_verb verb = PEEL_VERB_STATE;
};

// A connection that is to be tried.
struct Approach {
  std::uint16_t job = 0;
  std::uint64_t cookie = 0;
  std::uint8_t worker = 0;
  Endpoint to;
  IpAddress here{};
};

class JobTable {
 public:
  // `draw` gives cookies and keys.
  JobTable(const Limits& limits, std::function<std::uint64_t()> draw, JobListener& listener, Journal journal = {});

  // What a worker asks for, and who it is.
  struct Request {
    std::string name;
    std::uint64_t incarnation = 0;
    std::uint64_t challenge = 0;
    std::uint8_t worker = 0;
    std::uint8_t workers = 0;
    std::uint16_t words = 0;
    std::uint16_t slots = 0;
    Endpoint from;
    IpAddress here{};
    Secret secret;
  };
  struct Answer {
    const Job* job = nullptr;  // none: refused, or without a reason not to be answered
    peel_wire_reason reason = PEEL_REASON_NONE;
    bool silent = false;  // who has the name was not heard of for a while, and may be dead
  };
  // The same request again gets the same answer.
  Answer join(const Request& request, Time now);
  // Whether that worker was in. The job ends with its last worker.
  bool leave(std::uint16_t number, std::uint64_t cookie, std::uint8_t worker, std::uint64_t incarnation);

  struct SignOfLife {
    std::uint16_t job = 0;
    std::uint64_t cookie = 0;
    std::uint8_t worker = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    Endpoint from;
    IpAddress here{};
    std::uint16_t life_port = 0;
  };
  // The job; none if the worker is not in any more.
  const Job* keep_alive(const SignOfLife& sign, Time now);
  // The host of a worker says that nobody takes this question any more.
  void refuse_ping(std::uint16_t number, std::uint8_t worker, std::uint64_t sequence);
  // Connections to try, at most so many; those to silent workers come first. Each must get its outcome.
  std::vector<Approach> take_approaches(std::size_t most);
  void end_approach(const Approach& approach, detail::Contact contact);
  // To be called some times a second: asks the silent, gives up the dead, and ends jobs that have nobody.
  void tick(Time now);

  // No new jobs from now on; everybody is told.
  void drain();
  // Nobody combines anything any more.
  void refuse_all();
  [[nodiscard]] bool draining() const noexcept { return draining_; }

  // What was collected since the last time.
  std::vector<Notice> take_notices();

  [[nodiscard]] const Job* find(std::uint16_t number) const noexcept {
    return number < jobs_.size() ? jobs_[number].get() : nullptr;
  }
  // The job that a request to join is for, if it is of a member, who asks again. It changes nothing that lanes read.
  [[nodiscard]] const Job* job_of(const std::string& name, std::uint8_t worker, std::uint64_t incarnation,
                                  const Endpoint& from) const noexcept;
  // The member that a packet names, if it is in with this cookie and incarnation.
  [[nodiscard]] const Member* find(std::uint16_t number, std::uint64_t cookie, std::uint8_t worker,
                                   std::uint64_t incarnation) const noexcept;
  [[nodiscard]] const std::vector<std::unique_ptr<Job>>& jobs() const noexcept { return jobs_; }  // with gaps
  [[nodiscard]] const Limits& limits() const noexcept { return limits_; }
  [[nodiscard]] std::uint32_t block_slots() const noexcept;  // what every job gets that asks for so many

 private:
  [[nodiscard]] Job* current(const std::string& name) const noexcept;
  static Answer refuse_taken(const Job& job, Time now);
  Answer admit(const Request& request, Time now);
  Answer join_stranded(Job& job, const Request& request, Time now);
  Answer join_current(Job& job, const Request& request, Time now);
  Answer begin(const Request& request, Time now);
  Entry let_in(Job& job, const Request& request, Time now);
  [[nodiscard]] std::optional<std::uint16_t> free_number() const;
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  [[nodiscard]] Run free_slots(std::uint32_t wanted) const;
  [[nodiscard]] bool has_departed(const Request& request) const;
  void supersede(Job& job, const Request& request);
  void end_superseded(const std::string& name);
  void forgive(Time now);
  void tick_joining(Job& job, Time now);
  void tick_members(Job& job, Time now);
  [[nodiscard]] static bool is_vouched_for(const Member& member, Time now) noexcept;
  void look_at_data(const Job& job, unsigned worker, Member& member, Time now) const;
  void approach(Job& job, std::uint8_t worker, Time now);
  void lose(Job& job, std::uint8_t worker, std::string_view how);
  void tell(const Job& job);
  void end(std::size_t number, std::string_view why);
  void note(std::string_view what, const Job& job, std::vector<std::pair<std::string_view, std::string>> facts) const;

  Limits limits_;
  std::function<std::uint64_t()> draw_;
  JobListener& listener_;
  Journal journal_;
  std::vector<std::unique_ptr<Job>> jobs_;
  struct Departure {
    std::string name;
    std::uint64_t incarnation = 0;
    std::uint8_t worker = 0;
  };
  std::deque<Departure> departed_;
  std::vector<Notice> notices_;
  std::deque<Approach> approaches_;  // one for each member at most
  bool draining_ = false;
  Time ticked_{};
};

}  // namespace peel::aggregator
