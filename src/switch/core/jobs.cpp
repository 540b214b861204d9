#include "switch/core/jobs.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace peel::aggregator {
namespace {

constexpr std::size_t kRemembered = 1024;  // departures: more than there are within the life of a challenge
constexpr Time kJoinSilence{3000};         // requests to join come ten times a second
constexpr Time kAskAfter{750};             // three signs of life are missing
constexpr Time kAskAgain{200};
constexpr Time kStopped{1000};  // between two looks, of which there are twenty a second
constexpr unsigned kRefusalsOfTheDead = 2;
constexpr Time kConnectAgain{500};
constexpr Time kVouched{1500};  // of which three connections are tried
constexpr Time kTestAgain{1000};
constexpr unsigned kTests = 3;  // a connection may be lost on its way, and a firewall takes none

std::uint64_t bit_of(unsigned worker) { return std::uint64_t{1} << worker; }

peel_wire_reason reason_of(Entry entry) { return entry == Entry::closed ? PEEL_REASON_NO_PORT : PEEL_REASON_NONE; }

}  // namespace

bool is_four(const IpAddress& address) noexcept {
  constexpr IpAddress kFour = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  return std::equal(kFour.begin(), kFour.begin() + 12, address.begin());
}

std::string text_of(const Endpoint& endpoint) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool four = is_four(endpoint.address);
  inet_ntop(four ? AF_INET : AF_INET6, endpoint.address.data() + (four ? 12 : 0), text.data(), text.size());
  const std::string host(text.data());
  return (four ? host : "[" + host + "]") + ":" + std::to_string(endpoint.port);
}

JobTable::JobTable(const Limits& limits, std::function<std::uint64_t()> draw, JobListener& listener, Journal journal)
    : limits_(limits), draw_(std::move(draw)), listener_(listener), journal_(std::move(journal)), jobs_(limits.jobs) {}

std::uint32_t JobTable::block_slots() const noexcept {
  return std::clamp<std::uint32_t>(limits_.slots / limits_.jobs, 1, limits_.job_slots);
}

JobTable::Answer JobTable::join(const Request& request, Time now) {
  if (request.workers == 0 || request.workers > PEEL_WIRE_MAX_WORKERS || request.worker >= request.workers ||
      request.words == 0 || request.slots == 0 || request.name.empty()) {
    return {nullptr, PEEL_REASON_BAD_REQUEST};
  }
  return admit(request, now);
}

JobTable::Answer JobTable::admit(const Request& request, Time now) {
  if (has_departed(request)) return {nullptr, PEEL_REASON_WORKER_GONE};
  Job* job = current(request.name);
  const bool in = job != nullptr && request.worker < job->workers && (job->joined & bit_of(request.worker)) != 0;
  const bool known = in && job->members[request.worker].incarnation == request.incarnation;
  if (draining_ && (!known || !job->complete())) return {nullptr, PEEL_REASON_DRAINING};
  if (job == nullptr) return begin(request, now);
  if (job->gone != 0) {  // nothing can come of the old sums
    if (known) return {nullptr, PEEL_REASON_WORKER_GONE};
    supersede(*job, request);
    return begin(request, now);
  }
  // The former life of these workers may still be there, with another number of them.
  if (job->complete() && !known) return refuse_taken(*job, now);
  if (request.workers != job->workers) return {nullptr, PEEL_REASON_DISAGREEMENT};
  if (job->stranded) return join_stranded(*job, request, now);
  if (in && !known) return refuse_taken(*job, now);
  return join_current(*job, request, now);
}

JobTable::Answer JobTable::refuse_taken(const Job& job, Time now) {
  Answer answer{nullptr, PEEL_REASON_TAKEN, false};
  for (unsigned worker = 0; worker < job.workers; ++worker) {
    if ((job.joined >> worker & 1) != 0) answer.silent |= now - job.members[worker].heard >= kAskAfter;
  }
  return answer;
}

// Whoever asks learns it, also those who were let in before, until somebody starts anew.
JobTable::Answer JobTable::join_stranded(Job& job, const Request& request, Time now) {
  Member& member = job.members[request.worker];
  if (member.incarnation != 0 && member.incarnation != request.incarnation) {
    supersede(job, request);
    return begin(request, now);
  }
  member.incarnation = request.incarnation;
  member.heard = now;
  return {nullptr, PEEL_REASON_NO_PORT};
}

JobTable::Answer JobTable::join_current(Job& job, const Request& request, Time now) {
  Member& member = job.members[request.worker];
  if ((job.joined & bit_of(request.worker)) != 0) {
    if (member.endpoint != request.from) return {nullptr, PEEL_REASON_DISAGREEMENT};  // two processes with one rank
    // Once it sends signs of life, only those count: whoever saw this request could send it again for a while.
    if (member.pulse.port == 0) member.heard = now;
    return {&job, PEEL_REASON_NONE};
  }
  const Entry entry = let_in(job, request, now);
  if (entry == Entry::open) return {&job, PEEL_REASON_NONE};
  job.stranded = entry == Entry::closed;
  return {nullptr, reason_of(entry)};
}

Entry JobTable::let_in(Job& job, const Request& request, Time now) {
  Member& member = job.members[request.worker];
  member = {};
  member.endpoint = request.from;
  member.here = request.here;
  member.incarnation = request.incarnation;
  member.challenge = request.challenge;
  member.secret = request.secret;
  member.heard = now;
  const Entry entry = listener_.let_in(job, request.worker);
  if (entry == Entry::unknown) member = {};
  if (entry != Entry::open) return entry;
  job.joined |= bit_of(request.worker);
  job.words = std::min(job.words, request.words);
  listener_.changed(job);
  note("join", job,
       {{"worker", std::to_string(request.worker)},
        {"workers", std::to_string(job.workers)},
        {"from", text_of(request.from)},
        {"slots", std::to_string(job.slot_count)},
        {"slots_wanted", std::to_string(request.slots)},
        {"words", std::to_string(job.words)}});
  return entry;
}

JobTable::Answer JobTable::begin(const Request& request, Time now) {
  std::optional<std::uint16_t> number = free_number();
  Run run = free_slots(request.slots);
  if (!number || run.count == 0) {
    end_superseded(request.name);
    number = free_number();
    run = free_slots(request.slots);
  }
  if (!number || run.count == 0) return {nullptr, PEEL_REASON_NO_ROOM};
  auto job = std::make_unique<Job>();
  job->number = *number;
  job->name = request.name;
  job->cookie = draw_();
  for (std::size_t at = 0; at < job->key.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t part = draw_();
    std::memcpy(job->key.data() + at, &part, sizeof part);
  }
  job->workers = request.workers;
  job->words = std::min(request.words, limits_.words);
  job->first_slot = run.first;
  job->slot_count = static_cast<std::uint16_t>(run.count);
  job->members.resize(request.workers);
  Job& begun = *(jobs_[*number] = std::move(job));
  peel_wire_reason refused = PEEL_REASON_NO_ROOM;
  if (listener_.began(begun)) {
    const Entry entry = let_in(begun, request, now);
    if (entry == Entry::open) return {&begun, PEEL_REASON_NONE};
    refused = reason_of(entry);
  } else {
    note("error", begun, {{"why", "the kernel has no memory to begin it"}});
  }
  end(*number, {});
  return {nullptr, refused};
}

Job* JobTable::current(const std::string& name) const noexcept {
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

// The first run of blocks that is long enough, or the longest there is.
JobTable::Run JobTable::free_slots(std::uint32_t wanted) const {
  const std::uint32_t block = block_slots();
  std::vector<bool> held(limits_.slots / block);
  std::size_t jobs = 0;
  for (const auto& job : jobs_) {
    if (!job) continue;
    ++jobs;
    for (std::uint32_t at = job->first_slot; at < job->first_slot + job->slot_count; at += block)
      held[at / block] = true;
  }
  wanted = std::min<std::uint32_t>(wanted, limits_.job_slots);
  const auto free = static_cast<std::size_t>(std::count(held.begin(), held.end(), false));
  const std::size_t others = jobs < limits_.jobs ? limits_.jobs - jobs - 1 : 0;  // that may still come
  const std::size_t most = std::min<std::size_t>((wanted + block - 1) / block, free > others ? free - others : 1);
  Run best;
  for (std::size_t first = 0; first < held.size() && best.count < most; ++first) {
    std::size_t end = first;
    while (end < held.size() && !held[end] && end - first < most) ++end;
    if (end - first > best.count) best = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)};
  }
  return {best.first * block, std::min(best.count * block, wanted)};
}

// The others of the old job learn that this worker will not send there again.
void JobTable::supersede(Job& job, const Request& request) {
  job.superseded = true;
  if (request.worker < job.workers) job.gone |= bit_of(request.worker) & job.joined;
  listener_.changed(job);
  if (job.gone == job.joined) {
    end(job.number, "replaced");
  } else {
    tell(job);
  }
}

bool JobTable::leave(std::uint16_t number, std::uint64_t cookie, std::uint8_t worker, std::uint64_t incarnation) {
  if (find(number, cookie, worker, incarnation) == nullptr) return false;
  Job& job = *jobs_[number];
  if (departed_.size() == kRemembered) departed_.pop_front();
  departed_.push_back({job.name, incarnation, worker});
  lose(job, worker, "leave");
  return true;
}

const Job* JobTable::job_of(const std::string& name, std::uint8_t worker, std::uint64_t incarnation,
                            const Endpoint& from) const noexcept {
  const Job* job = current(name);
  const bool in = job != nullptr && worker < job->workers && (job->joined & bit_of(worker)) != 0 &&
                  job->members[worker].incarnation == incarnation && job->members[worker].endpoint == from;
  return in ? job : nullptr;
}

const Member* JobTable::find(std::uint16_t number, std::uint64_t cookie, std::uint8_t worker,
                             std::uint64_t incarnation) const noexcept {
  const Job* job = find(number);
  if (job == nullptr || job->cookie != cookie || worker >= job->workers || (job->joined & bit_of(worker)) == 0) {
    return nullptr;
  }
  const Member& member = job->members[worker];
  return member.incarnation == incarnation ? &member : nullptr;
}

const Job* JobTable::keep_alive(const SignOfLife& sign, Time now) {
  const Member* found = find(sign.job, sign.cookie, sign.worker, sign.incarnation);
  if (found == nullptr) return nullptr;
  Job& job = *jobs_[sign.job];
  Member& member = job.members[sign.worker];
  // Of the host that joined, and none that was heard before.
  if (sign.from.address != member.endpoint.address || sign.sequence <= member.sequence) return nullptr;
  if ((job.gone & bit_of(sign.worker)) != 0) return &job;  // it learns that it is not counted any more
  member.sequence = sign.sequence;
  member.heard = now;
  member.pulse = sign.from;
  member.pulse_here = sign.here;
  member.refusals = 0;
  if (member.witness.port != sign.life_port) member.witness = {.port = sign.life_port};
  member.witness.refused = false;
  return &job;
}

void JobTable::refuse_ping(std::uint16_t number, std::uint8_t worker, std::uint64_t sequence) {
  if (find(number) == nullptr || worker >= jobs_[number]->workers) return;
  Member& member = jobs_[number]->members[worker];
  const auto found = std::find(member.pings.begin(), member.pings.end(), sequence);
  if (sequence == 0 || found == member.pings.end()) return;
  *found = 0;  // each question counts once
  ++member.refusals;
}

// Before a connection was taken, a refusal may be that of a firewall.
void JobTable::approach(Job& job, std::uint8_t worker, Time now) {
  Member& member = job.members[worker];
  Witness& witness = member.witness;
  if (witness.port == 0 || witness.asked) return;
  const bool silent = now - member.heard >= kAskAfter;
  const bool wanted = witness.trusted ? silent : witness.tests < kTests;
  const Time pause = witness.trusted ? kConnectAgain : kTestAgain;
  if (!wanted || (witness.tests != 0 && now - witness.when < pause)) return;
  witness.asked = true;
  witness.when = now;
  if (!witness.trusted) ++witness.tests;
  const Approach one{job.number, job.cookie, worker, {member.pulse.address, witness.port}, member.pulse_here};
  // The port may be another one than when the last was queued.
  std::erase_if(approaches_, [&](const Approach& other) { return other.job == one.job && other.worker == worker; });
  approaches_.insert(silent ? approaches_.begin() : approaches_.end(), one);
}

std::vector<Approach> JobTable::take_approaches(std::size_t most) {
  std::erase_if(approaches_, [this](const Approach& one) {
    const Job* job = find(one.job);
    return job == nullptr || job->cookie != one.cookie || (job->gone & bit_of(one.worker)) != 0;
  });
  const auto end = approaches_.begin() + static_cast<std::ptrdiff_t>(std::min(most, approaches_.size()));
  std::vector<Approach> taken(approaches_.begin(), end);
  approaches_.erase(approaches_.begin(), end);
  return taken;
}

void JobTable::end_approach(const Approach& approach, detail::Contact contact) {
  const Job* job = find(approach.job);
  if (job == nullptr || job->cookie != approach.cookie) return;
  Witness& witness = jobs_[approach.job]->members[approach.worker].witness;
  if (witness.port != approach.to.port) return;  // it is another one by now
  witness.asked = false;
  if (contact == detail::Contact::taken) {
    witness.trusted = true;
    witness.taken = witness.when;
  }
  if (contact == detail::Contact::refused && witness.trusted) witness.refused = true;
}

void JobTable::tick(Time now) {
  forgive(now);
  for (std::size_t number = 0; number < jobs_.size(); ++number) {
    if (!jobs_[number]) continue;
    if (!jobs_[number]->complete()) {
      tick_joining(*jobs_[number], now);
    } else {
      tick_members(*jobs_[number], now);
    }
  }
}

// While this process was stopped it could hear nobody, and what came meanwhile is yet to be read.
void JobTable::forgive(Time now) {
  const Time gap = now - std::exchange(ticked_, now);
  if (gap < kStopped) return;
  for (const auto& job : jobs_) {
    if (!job) continue;
    for (Member& member : job->members) {
      member.heard = std::min(member.heard + gap, now);
      member.worked = std::min(member.worked + gap, now);
    }
  }
}

// Somebody may have died before all were in. Those who have not begin the job anew when they ask again.
void JobTable::tick_joining(Job& job, Time now) {
  for (unsigned worker = 0; worker < job.workers; ++worker) {
    const bool awaited = ((job.joined & ~job.gone) & bit_of(worker)) != 0 || job.stranded;
    if (!awaited || job.members[worker].incarnation == 0 || now - job.members[worker].heard <= kJoinSilence) continue;
    note("expire", job, {{"worker", std::to_string(worker)}, {"why", "silent before all had joined"}});
    return end(job.number, "expired");
  }
}

// ICMP can be forged by whoever sees the questions, and a process that is stopped cannot answer them. But its host
// takes connections for it, which nobody can forge who does not drop packets.
bool JobTable::is_vouched_for(const Member& member, Time now) noexcept {
  const Witness& witness = member.witness;
  return witness.trusted && !witness.refused && witness.taken - member.heard >= kAskAfter &&
         now - witness.taken < kVouched;
}

// Only of the silent, since counting takes a call of the kernel in the xdp plane.
void JobTable::look_at_data(const Job& job, unsigned worker, Member& member, Time now) const {
  const std::uint64_t packets = listener_.packets_of(job, worker);
  if (packets != std::exchange(member.packets, packets)) member.worked = now;
}

void JobTable::tick_members(Job& job, Time now) {
  for (unsigned worker = 0; worker < job.workers; ++worker) {
    if ((job.gone & bit_of(worker)) != 0) continue;
    Member& member = job.members[worker];
    const Time silent = now - member.heard;
    approach(job, static_cast<std::uint8_t>(worker), now);
    const bool dead = (member.refusals >= kRefusalsOfTheDead && !is_vouched_for(member, now)) ||
                      (member.witness.refused && silent >= kAskAfter);
    if (silent >= kAskAfter) look_at_data(job, worker, member, now);
    if (dead || (silent > limits_.silence && now - member.worked > limits_.silence)) {
      const bool alone = std::popcount(job.joined & ~job.gone) == 1;
      lose(job, static_cast<std::uint8_t>(worker), dead ? "death" : "silence");
      if (alone) return;  // the job is no more
    } else if (silent >= kAskAfter && now - member.pinged >= kAskAgain) {
      member.pinged = now;
      member.next_ping = (member.next_ping + 1) % member.pings.size();
      member.pings[member.next_ping] = draw_() | 1;
      notices_.push_back({job.number, job.cookie, static_cast<std::uint8_t>(worker), PEEL_VERB_PING});
    }
  }
}

// A worker is there no more. The others learn it at once.
void JobTable::lose(Job& job, std::uint8_t worker, std::string_view how) {
  if ((job.gone & bit_of(worker)) != 0) return;
  job.gone |= bit_of(worker);
  note(how, job, {{"worker", std::to_string(worker)}, {"from", text_of(job.members[worker].endpoint)}});
  listener_.changed(job);
  if (job.gone == job.joined) {
    end(job.number, "over");
  } else {
    tell(job);
  }
}

void JobTable::tell(const Job& job) {
  for (unsigned worker = 0; worker < job.workers; ++worker) {
    if (((job.joined & ~job.gone) & bit_of(worker)) == 0 || job.members[worker].pulse.port == 0) continue;
    notices_.push_back({job.number, job.cookie, static_cast<std::uint8_t>(worker), PEEL_VERB_STATE});
  }
}

void JobTable::drain() {
  draining_ = true;
  for (const auto& job : jobs_) {
    if (job) tell(*job);
  }
}

void JobTable::refuse_all() {
  for (const auto& job : jobs_) {
    if (!job) continue;
    tell(*job);
    job->gone = job->everybody();
    listener_.changed(*job);
    note("refuse", *job, {{"why", "the switch is being shut down"}});
  }
}

std::vector<Notice> JobTable::take_notices() { return std::exchange(notices_, {}); }

// A request to join may come twice, and the second time after its worker has left.
bool JobTable::has_departed(const Request& request) const {
  return std::any_of(departed_.begin(), departed_.end(), [&](const Departure& one) {
    return one.worker == request.worker && one.incarnation == request.incarnation && one.name == request.name;
  });
}

void JobTable::end_superseded(const std::string& name) {
  for (std::size_t number = 0; number < jobs_.size(); ++number) {
    if (jobs_[number] && jobs_[number]->name == name && jobs_[number]->superseded) end(number, "replaced");
  }
}

// Without a reason, nobody was ever in.
void JobTable::end(std::size_t number, std::string_view why) {
  if (!why.empty()) note("end", *jobs_[number], {{"why", std::string(why)}});
  listener_.ended(*jobs_[number]);
  jobs_[number].reset();
}

void JobTable::note(std::string_view what, const Job& job,
                    std::vector<std::pair<std::string_view, std::string>> facts) const {
  if (!journal_) return;
  facts.insert(facts.begin(), {{"job", job.name}, {"number", std::to_string(job.number)}});
  journal_({what, std::move(facts)});
}

}  // namespace peel::aggregator
