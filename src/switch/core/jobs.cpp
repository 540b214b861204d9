#include "switch/core/jobs.h"

#include <algorithm>

namespace peel::aggregator {
namespace {

constexpr std::size_t kRemembered = 1024;  // departures: more than there are within the life of a challenge

std::uint64_t bit_of(std::uint8_t worker) { return std::uint64_t{1} << worker; }

}  // namespace

JobTable::JobTable(const Limits& limits, std::function<std::uint64_t()> draw, JobListener& listener)
    : limits_(limits), draw_(std::move(draw)), listener_(listener), jobs_(limits.jobs) {}

JobTable::Answer JobTable::join(const Request& request, Time now) {
  if (request.workers == 0 || request.workers > PEEL_WIRE_MAX_WORKERS || request.worker >= request.workers ||
      request.words == 0 || request.slots == 0) {
    return {nullptr, PEEL_REASON_BAD_REQUEST};
  }
  if (has_departed(request)) return {nullptr, PEEL_REASON_WORKER_GONE};
  Job* job = current(request.name);
  if (job == nullptr) return begin(request, now);
  if (request.workers != job->workers) return {nullptr, PEEL_REASON_DISAGREEMENT};
  if (job->stranded) return join_stranded(*job, request, now);
  const bool in = (job->joined & bit_of(request.worker)) != 0;
  const std::uint64_t known = job->incarnations[request.worker];
  if (in && request.incarnation < known) return {nullptr, PEEL_REASON_WORKER_GONE};  // of a process that is no more
  const bool anew = in && request.incarnation > known;
  if (in && !anew && job->gone != 0) return {nullptr, PEEL_REASON_WORKER_GONE};
  if (!anew && job->gone == 0) return join_current(*job, request, now);
  // Nothing can come of the old sums.
  supersede(*job, request);
  return begin(request, now);
}

// Whoever asks learns it, also those who were let in before, until somebody starts anew.
JobTable::Answer JobTable::join_stranded(Job& job, const Request& request, Time now) {
  std::uint64_t& known = job.incarnations[request.worker];
  if (known != 0 && request.incarnation > known) {
    supersede(job, request);
    return begin(request, now);
  }
  known = std::max(known, request.incarnation);
  return {nullptr, PEEL_REASON_NO_PORT};
}

JobTable::Answer JobTable::join_current(Job& job, const Request& request, Time now) {
  if (request.words < job.words) return {nullptr, PEEL_REASON_DISAGREEMENT};
  if ((job.joined & bit_of(request.worker)) != 0 && job.endpoints[request.worker] != request.from) {
    return {nullptr, PEEL_REASON_DISAGREEMENT};  // two processes with one rank
  }
  job.heard = now;
  if ((job.joined & bit_of(request.worker)) == 0 && !let_in(job, request)) {
    job.stranded = true;
    return {nullptr, PEEL_REASON_NO_PORT};
  }
  return {&job, PEEL_REASON_NONE};
}

bool JobTable::let_in(Job& job, const Request& request) {
  job.endpoints[request.worker] = request.from;
  job.incarnations[request.worker] = request.incarnation;
  if (!listener_.let_in(job, request.worker)) return false;
  job.joined |= bit_of(request.worker);
  listener_.changed(job);
  return true;
}

JobTable::Answer JobTable::begin(const Request& request, Time now) {
  const std::uint32_t wanted = std::min(request.slots, limits_.job_slots);
  std::optional<std::uint16_t> number = free_number();
  Run run = free_slots(wanted);
  if (!number || run.count == 0) {
    end_superseded(request.name);
    number = free_number();
    run = free_slots(wanted);
  }
  if (!number || run.count == 0) return {nullptr, PEEL_REASON_NO_ROOM};
  auto job = std::make_unique<Job>();
  job->number = *number;
  job->name = request.name;
  job->cookie = draw_();
  job->workers = request.workers;
  job->words = std::min(request.words, limits_.words);
  job->first_slot = run.first;
  job->slot_count = static_cast<std::uint16_t>(run.count);
  job->heard = now;
  job->endpoints.resize(request.workers);
  job->incarnations.resize(request.workers);
  Job& begun = *(jobs_[*number] = std::move(job));
  peel_wire_reason refused = PEEL_REASON_NONE;
  if (!listener_.began(begun)) {
    refused = PEEL_REASON_NO_ROOM;
  } else if (!let_in(begun, request)) {
    refused = PEEL_REASON_NO_PORT;
  }
  if (refused == PEEL_REASON_NONE) return {&begun, refused};
  end(*number);
  return {nullptr, refused};
}

Job* JobTable::current(std::uint64_t name) {
  for (const auto& job : jobs_) {
    if (job && job->name == name && !job->superseded) return job.get();
  }
  return nullptr;
}

std::optional<std::uint16_t> JobTable::free_number() const {
  const auto found = std::find(jobs_.begin(), jobs_.end(), nullptr);
  if (found == jobs_.end()) return std::nullopt;
  return static_cast<std::uint16_t>(found - jobs_.begin());
}

JobTable::Run JobTable::free_slots(std::uint32_t wanted) const {
  std::vector<const Job*> held;
  for (const auto& job : jobs_) {
    if (job) held.push_back(job.get());
  }
  std::sort(held.begin(), held.end(), [](const Job* a, const Job* b) { return a->first_slot < b->first_slot; });
  Run best;
  std::uint32_t first = 0;
  const auto consider = [&](std::uint32_t end) {
    if (best.count < wanted && end - first > best.count) best = {first, std::min(end - first, wanted)};
  };
  for (const Job* job : held) {
    consider(job->first_slot);
    first = job->first_slot + job->slot_count;
  }
  consider(limits_.slots);
  return best;
}

// The others of the old job learn that this worker will not send there again.
void JobTable::supersede(Job& job, const Request& request) {
  job.superseded = true;
  job.gone |= bit_of(request.worker) & job.joined;
  listener_.changed(job);
  if (job.gone == job.joined) end(job.number);
}

bool JobTable::leave(std::uint16_t number, std::uint64_t cookie, std::uint8_t worker, std::uint64_t incarnation) {
  Job* job = number < jobs_.size() ? jobs_[number].get() : nullptr;
  if (job == nullptr || job->cookie != cookie || worker >= job->workers) return false;
  if ((job->joined & bit_of(worker)) == 0 || job->incarnations[worker] != incarnation) return false;
  if (departed_.size() == kRemembered) departed_.pop_front();
  departed_.push_back({job->name, incarnation, worker});
  job->gone |= bit_of(worker);
  listener_.changed(*job);
  if (job->gone == job->joined) end(number);
  return true;
}

// A request to join may come twice, and the second time after its worker has left.
bool JobTable::has_departed(const Request& request) const {
  return std::any_of(departed_.begin(), departed_.end(), [&](const Departure& one) {
    return one.name == request.name && one.worker == request.worker && request.incarnation <= one.incarnation;
  });
}

void JobTable::end_superseded(std::uint64_t name) {
  for (std::size_t number = 0; number < jobs_.size(); ++number) {
    if (jobs_[number] && jobs_[number]->name == name && jobs_[number]->superseded) end(number);
  }
}

void JobTable::expire(Time now) {
  for (std::size_t number = 0; number < jobs_.size(); ++number) {
    const Job* job = jobs_[number].get();
    if (job != nullptr && now - last_heard(*job) > limits_.expiry) end(number);
  }
}

void JobTable::end(std::size_t number) {
  listener_.ended(*jobs_[number]);
  jobs_[number].reset();
}

}  // namespace peel::aggregator
