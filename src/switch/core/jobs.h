// Who may use the switch: jobs, their workers and their shares of the slots. A job is admitted when its first worker
// joins and gets its slots then, one run of them; what it does not get then it never gets, so that no job waits for
// another. Tells a listener what changes, which keeps the slots themselves.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "switch/wire/wire.h"

namespace peel::aggregator {

using Time = std::chrono::milliseconds;  // of a clock that only goes forward

// IPv4 as ::ffff:a.b.c.d.
struct Endpoint {
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;
  auto operator<=>(const Endpoint&) const = default;
};

struct Limits {
  std::uint16_t jobs = 32;
  std::uint32_t slots = 4096;                 // of all jobs together
  std::uint16_t job_slots = 512;              // of one job
  std::uint16_t words = PEEL_WIRE_MAX_WORDS;  // of one packet
  std::uint8_t lanes = 1;
  Time expiry = std::chrono::minutes(5);  // a job that nobody heard of for so long is over
};

struct Job {
  std::uint16_t number = 0;
  std::uint64_t name = 0;
  std::uint64_t cookie = 0;
  std::uint8_t workers = 0;
  std::uint16_t words = 0;
  std::uint32_t first_slot = 0;
  std::uint16_t slot_count = 0;
  std::uint64_t joined = 0;  // bitmaps of workers
  std::uint64_t gone = 0;
  bool superseded = false;  // the name belongs to a newer job; this one may still be read
  bool stranded = false;    // a worker could not be let in, so it will never be complete
  Time heard{};             // of its control packets
  std::vector<Endpoint> endpoints;
  std::vector<std::uint64_t> incarnations;

  [[nodiscard]] std::uint64_t everybody() const noexcept { return ~std::uint64_t{0} >> (64 - workers); }
};

class JobListener {
 public:
  virtual ~JobListener() = default;
  // Its slots must forget what they held; nobody is in yet. False: there is no room for it.
  [[nodiscard]] virtual bool began(const Job& job) = 0;
  // A worker comes, whose endpoint is written down. False: results cannot get there, and it stays out.
  [[nodiscard]] virtual bool let_in(const Job&, unsigned /*worker*/) { return true; }
  virtual void changed(const Job& job) = 0;  // workers came or went
  virtual void ended(const Job& job) = 0;
  // When a job was last heard of by its data packets.
  [[nodiscard]] virtual Time heard(const Job& job) const = 0;
};

class JobTable {
 public:
  // `draw` gives cookies.
  JobTable(const Limits& limits, std::function<std::uint64_t()> draw, JobListener& listener);

  // What a worker asks for, and who it is.
  struct Request {
    std::uint64_t name = 0;
    std::uint64_t incarnation = 0;
    std::uint8_t worker = 0;
    std::uint8_t workers = 0;
    std::uint16_t words = 0;
    std::uint16_t slots = 0;
    Endpoint from;
  };
  struct Answer {
    const Job* job = nullptr;  // none: refused
    peel_wire_reason reason = PEEL_REASON_NONE;
  };
  // The same request again gets the same answer.
  Answer join(const Request& request, Time now);
  // Whether that worker was in. The job ends with its last worker.
  bool leave(std::uint16_t number, std::uint64_t cookie, std::uint8_t worker, std::uint64_t incarnation);
  // Ends the jobs that are silent.
  void expire(Time now);

  [[nodiscard]] Time last_heard(const Job& job) const { return std::max(job.heard, listener_.heard(job)); }
  [[nodiscard]] const Job* find(std::uint16_t number) const noexcept {
    return number < jobs_.size() ? jobs_[number].get() : nullptr;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Job>>& jobs() const noexcept { return jobs_; }  // with gaps
  [[nodiscard]] const Limits& limits() const noexcept { return limits_; }

 private:
  Job* current(std::uint64_t name);
  Answer join_stranded(Job& job, const Request& request, Time now);
  Answer join_current(Job& job, const Request& request, Time now);
  Answer begin(const Request& request, Time now);
  bool let_in(Job& job, const Request& request);
  std::optional<std::uint16_t> free_number() const;
  // The first gap of `wanted` slots, or the largest one, and how long it is.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  Run free_slots(std::uint32_t wanted) const;
  [[nodiscard]] bool has_departed(const Request& request) const;
  void supersede(Job& job, const Request& request);
  void end_superseded(std::uint64_t name);
  void end(std::size_t number);

  Limits limits_;
  std::function<std::uint64_t()> draw_;
  JobListener& listener_;
  std::vector<std::unique_ptr<Job>> jobs_;
  struct Departure {
    std::uint64_t name = 0;
    std::uint64_t incarnation = 0;
    std::uint8_t worker = 0;
  };
  std::deque<Departure> departed_;
};

}  // namespace peel::aggregator
