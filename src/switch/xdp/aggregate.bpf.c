// The switch in the driver's path. peel_ingress runs at the ports of the switch: it takes data packets, and leaves
// control packets to the daemon, as everything else that comes by. peel_egress runs at the ports that a result leaves
// by, once for each copy, and gives the copy its address.
//
// A packet goes through the same questions in the same order as in switch/core/aggregator.cpp, and through the same
// rules of a slot (switch/core/slot.h): tests/switch/xdp_program_test.cpp gives both the same packets and wants the
// same answers. A lock is held for each slot while its words are touched, one packet's worth of work: it orders the
// words with the bitmap, and costs less than an atomic addition for each word would.
#include "switch/core/challenge.h"
#include "switch/xdp/frame.bpf.h"
#include "switch/xdp/maps.bpf.h"
#include "switch/xdp/words.bpf.h"

#define PEEL_NS_PER_MS 1000000

static __always_inline struct peel_xdp_tally* own_tally(void) {
  const uint32_t first = 0;
  return bpf_map_lookup_elem(&tallies, &first);
}

static __always_inline int drop(enum peel_drop why, struct peel_xdp_job_tally* job) {
  struct peel_xdp_tally* tally = own_tally();
  if (tally) ++tally->dropped[why];
  if (job) ++job->dropped;
  return XDP_DROP;
}

// By the port it came from. XDP_TX would do the same, but a veth whose other end has no program of its own leaves what
// comes that way lying until something else wakes it.
static __always_inline int send_back(const struct xdp_md* ctx) { return bpf_redirect(ctx->ingress_ifindex, 0); }

// `most` at once, and as many in every window. It fills up evenly: with a window that begins anew, a flood would use it
// up at its beginning each time, and whoever asks again at the same pace would always come too late.
static __always_inline int take(struct peel_xdp_budget* budget, uint64_t most) {
  const uint64_t now = bpf_ktime_get_ns();
  const uint64_t each = PEEL_XDP_WINDOW_MS * PEEL_NS_PER_MS / most;
  const uint64_t more = (now - budget->filled_ns) / each;
  if (more >= most) {
    budget->filled_ns = now;
    budget->left = most;
  } else {
    budget->filled_ns += more * each;
    budget->left = budget->left + more < most ? budget->left + more : most;
  }
  if (budget->left == 0) return 0;
  --budget->left;
  return 1;
}

static __always_inline int may_refuse_stranger(void) {
  struct peel_xdp_tally* tally = own_tally();
  return tally && take(&tally->refusals_of_strangers, PEEL_XDP_REFUSALS);
}

static __always_inline int may_refuse_member(void) {
  struct peel_xdp_tally* tally = own_tally();
  return tally && take(&tally->refusals_of_members, PEEL_XDP_REFUSALS);
}

// The check of the packet in a frame, in functions that the verifier sees once.
__attribute__((noinline)) uint64_t plain_check_of(struct xdp_md* ctx) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return 0;
  const struct peel_packet header = *packet_of(frame);
  struct running_check sums = check_header(&header);
  check_words(&sums, words_of(frame), frame_end(ctx));
  return check_value(&sums, 10 + (uint64_t)header.words);
}

__attribute__((noinline)) uint64_t keyed_check_of(struct xdp_md* ctx, uint64_t key0, uint64_t key1) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return 0;
  return keyed_check(packet_of(frame), frame_end(ctx), key0, key1);
}

static __always_inline uint64_t check_of(struct xdp_md* ctx, const struct peel_xdp_job* job) {
  return job && job->keyed ? keyed_check_of(ctx, job->key[0], job->key[1]) : plain_check_of(ctx);
}

// The cookie goes back as it came: who cannot know it cannot have caused this. Nobody has a key of a job that is
// unknown.
static __always_inline int send_refusal(struct xdp_md* ctx, const struct peel_packet* packet,
                                        enum peel_wire_reason reason, const struct peel_xdp_job* job) {
  struct peel_packet refusal = *packet;
  refusal.kind = PEEL_KIND_REFUSAL;
  refusal.operation = reason;
  refusal.words = 0;
  if (bpf_xdp_adjust_tail(ctx, -4 * (int)packet->words) != 0) return XDP_DROP;
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  *packet_of(frame) = refusal;
  const uint64_t check = check_of(ctx, job);
  frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  packet_of(frame)->check = check;
  make_reply(frame, sizeof refusal);
  struct peel_xdp_tally* tally = own_tally();
  if (tally) ++tally->sent;
  return send_back(ctx);
}

// Of a worker that is in.
static __always_inline int refuse(struct xdp_md* ctx, enum peel_drop why, const struct peel_packet* packet,
                                  enum peel_wire_reason reason, const struct peel_xdp_job* job,
                                  struct peel_xdp_job_tally* share) {
  drop(why, share);
  return may_refuse_member() ? send_refusal(ctx, packet, reason, job) : XDP_DROP;
}

// Of no job that is here. Its check is looked at only as long as it would be answered.
static __always_inline int refuse_stranger(struct xdp_md* ctx, const struct peel_packet* packet) {
  if (!may_refuse_stranger()) return drop(PEEL_DROP_UNKNOWN_JOB, 0);
  if (plain_check_of(ctx) != packet->check) return drop(PEEL_DROP_CORRUPT, 0);
  drop(PEEL_DROP_UNKNOWN_JOB, 0);
  return send_refusal(ctx, packet, PEEL_REASON_UNKNOWN_JOB, 0);
}

static __always_inline int is_forged(const struct peel_xdp_job* job, frame_byte* frame, uint8_t worker) {
  if (worker >= job->workers || !(job->joined >> worker & 1)) return 1;
  const struct peel_xdp_endpoint* endpoint = &job->endpoint[worker & (PEEL_WIRE_MAX_WORKERS - 1)];
  return endpoint->address != ip_of(frame)->saddr || endpoint->port != udp_of(frame)->source;
}

// With the slot locked. What is to be sent, if anything, is in the packet afterwards, but for its header.
static __always_inline enum peel_verdict serve(struct xdp_md* ctx, struct peel_xdp_slot* slot,
                                               struct peel_xdp_words* held, const struct peel_packet* packet,
                                               uint64_t gone, int* complete, struct running_check* sums) {
  const enum peel_verdict verdict = peel_slot_judge(&slot->slot, packet, slot->everybody, gone);
  uint32_t* into = held->version[packet->round & 1];
  if (verdict == PEEL_BEGIN || verdict == PEEL_COMBINE) {
    frame_byte* frame = frame_of(ctx);
    const void* end = frame_end(ctx);
    if (!reaches(ctx, frame, PEEL_AT_WORDS)) return PEEL_WAIT;
    const uint32_t* words = words_of(frame);
    if (verdict == PEEL_BEGIN) {
      combine_words(into, words, end, PEEL_HOW_COPY);
    } else if (packet->operation == PEEL_SUM32) {
      combine_words(into, words, end, PEEL_HOW_SUM);
    } else {
      combine_words(into, words, end, PEEL_HOW_OR);
    }
    *complete = peel_slot_enter(&slot->slot, packet, slot->everybody, verdict);
  }
  if (verdict == PEEL_READ || *complete) {
    frame_byte* frame = frame_of(ctx);
    if (!reaches(ctx, frame, PEEL_AT_WORDS)) return PEEL_WAIT;
    copy_checked(words_of(frame), frame_end(ctx), into, sums);
  }
  return verdict;
}

// The words are there already.
static __always_inline int send_result(struct xdp_md* ctx, const struct peel_packet* result,
                                       const struct peel_xdp_job* job, int everybody) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  *packet_of(frame) = *result;
  if (job->keyed) {
    const uint64_t check = keyed_check_of(ctx, job->key[0], job->key[1]);
    frame = frame_of(ctx);
    if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
    packet_of(frame)->check = check;
  }
  make_reply(frame, (uint16_t)(sizeof *result + 4 * result->words));
  if (!everybody) {
    struct peel_xdp_tally* tally = own_tally();
    if (tally) ++tally->sent;
    return send_back(ctx);
  }
  const uint32_t number = result->job;
  void* of_job = bpf_map_lookup_elem(&ports, &number);
  if (!of_job) return drop(PEEL_DROP_UNSENT, 0);
  return bpf_redirect_map(of_job, 0, BPF_F_BROADCAST);
}

static __always_inline int take_slot(struct xdp_md* ctx, struct peel_packet* packet, const struct peel_xdp_job* job,
                                     struct peel_xdp_job_tally* share) {
  const uint32_t place = job->first_slot + packet->slot;
  struct peel_xdp_slot* slot = bpf_map_lookup_elem(&slots, &place);
  struct peel_xdp_words* held = bpf_map_lookup_elem(&words_of_slots, &place);
  if (!slot || !held) return drop(PEEL_DROP_NO_SLOT, share);
  // Of the result, should there be one.
  const uint8_t sender = packet->worker;
  packet->kind = PEEL_KIND_RESULT;
  packet->worker = 0;
  struct running_check sums = check_header(packet);
  packet->kind = PEEL_KIND_DATA;
  packet->worker = sender;
  int complete = 0;
  const uint64_t gone = job->gone;
  bpf_spin_lock(&slot->lock);
  if (slot->owner != packet->cookie) {
    bpf_spin_unlock(&slot->lock);
    return refuse(ctx, PEEL_DROP_UNKNOWN_JOB, packet, PEEL_REASON_UNKNOWN_JOB, 0, share);
  }
  const enum peel_verdict verdict = serve(ctx, slot, held, packet, gone, &complete, &sums);
  bpf_spin_unlock(&slot->lock);

  struct peel_xdp_tally* tally = own_tally();
  if (!tally || !share) return XDP_DROP;
  switch (verdict) {
    case PEEL_BEGIN:
    case PEEL_COMBINE:
      ++tally->combined;
      if (!complete) return XDP_DROP;
      ++tally->completed;
      ++share->completed;
      break;
    case PEEL_READ:
      ++tally->repeated;
      break;
    case PEEL_WAIT:
      ++tally->repeated;
      return XDP_DROP;
    case PEEL_STALE:
      return drop(PEEL_DROP_STALE, share);
    case PEEL_EARLY:
      return drop(PEEL_DROP_EARLY, share);
    case PEEL_MISMATCH:
      return refuse(ctx, PEEL_DROP_MISMATCH, packet, PEEL_REASON_MISMATCH, job, share);
    default:
      return refuse(ctx, PEEL_DROP_HOPELESS, packet, PEEL_REASON_WORKER_GONE, job, share);
  }
  packet->kind = PEEL_KIND_RESULT;
  packet->worker = 0;
  packet->check = check_value(&sums, 10 + (uint64_t)packet->words);
  return send_result(ctx, packet, job, complete);
}

static __always_inline int take_data(struct xdp_md* ctx, frame_byte* frame, uint64_t bytes) {
  struct peel_xdp_tally* tally = own_tally();
  if (tally) ++tally->received;
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return drop(PEEL_DROP_MALFORMED, 0);
  struct peel_packet packet = *packet_of(frame);
  if (packet.magic != PEEL_WIRE_MAGIC || packet.version != PEEL_WIRE_VERSION || packet.kind != PEEL_KIND_DATA ||
      packet.operation > PEEL_OR32 || packet.words == 0 || packet.words > PEEL_XDP_WORDS ||
      bytes != sizeof packet + 4 * (uint64_t)packet.words ||
      (uint64_t)(frame_end(ctx) - (const void*)frame) != PEEL_AT_PACKET + bytes) {
    return drop(PEEL_DROP_MALFORMED, 0);
  }
  const uint32_t number = packet.job;
  const struct peel_xdp_job* job = bpf_map_lookup_elem(&jobs, &number);
  if (!job || !job->active || job->cookie != packet.cookie) return refuse_stranger(ctx, &packet);
  struct peel_xdp_job_tally* share = bpf_map_lookup_elem(&job_tallies, &number);
  if (is_forged(job, frame, packet.worker)) return drop(PEEL_DROP_FORGED, share);
  if (check_of(ctx, job) != packet.check) return drop(PEEL_DROP_CORRUPT, share);
  if (share) {
    ++share->received;
    ++share->of_worker[packet.worker & (PEEL_WIRE_MAX_WORKERS - 1)];
  }
  if (packet.slot >= job->slot_count || packet.words > job->words) return drop(PEEL_DROP_NO_SLOT, share);
  return take_slot(ctx, &packet, job, share);
}

// What the daemon would answer, by its length and verb.
static __always_inline int is_request(const struct peel_control* control, uint64_t bytes) {
  return control->magic == PEEL_WIRE_MAGIC && control->version == PEEL_WIRE_VERSION &&
         peel_is_request(control->verb, bytes, PEEL_XDP_LONGEST_PROBE);
}

// Only workers know the cookie of a job, and those who see their packets. What holds it has a budget of its own, since
// a flood must not keep signs of life out.
static __always_inline int is_of_a_job(const struct peel_control* control) {
  if (control->verb != PEEL_VERB_KEEPALIVE && control->verb != PEEL_VERB_LEAVE) return 0;
  const uint32_t number = control->job;
  const struct peel_xdp_job* job = bpf_map_lookup_elem(&jobs, &number);
  return job && job->active && job->cookie == control->cookie;
}

static __always_inline uint32_t place_of_source(uint32_t address) {
  return (uint32_t)(address * settings.seed >> 32) % PEEL_XDP_SOURCES;
}

static __always_inline int may_say(uint32_t address) {
  const uint32_t place = place_of_source(address);
  struct peel_xdp_source* source = bpf_map_lookup_elem(&sources, &place);
  return source && take(&source->of_members, PEEL_XDP_REQUESTS_OF_MEMBERS);
}

// Requests whose challenge holds have budgets of their own: a flood with the address of a worker leaves those alone.
static __always_inline int may_ask(uint32_t address, int proven) {
  const uint32_t place = place_of_source(address);
  struct peel_xdp_source* source = bpf_map_lookup_elem(&sources, &place);
  struct peel_xdp_tally* tally = own_tally();
  if (!source || !tally) return 0;
  if (proven) return take(&source->proven, PEEL_XDP_REQUESTS_OF_SOURCE) && take(&tally->proven, PEEL_XDP_REQUESTS);
  return take(&source->unproven, PEEL_XDP_REQUESTS_OF_SOURCE) && take(&tally->unproven, PEEL_XDP_REQUESTS);
}

// As the daemon made it in that window for this address of IPv4, in a function that the verifier sees once.
__attribute__((noinline)) uint64_t challenge_of(uint32_t address, uint16_t port, uint64_t incarnation,
                                                uint64_t window) {
  const struct peel_asker asker = {{0, (uint64_t)address << 32 | 0xFFFF0000}, bpf_ntohs(port), incarnation};
  return peel_challenge(settings.challenge_key[0], settings.challenge_key[1], &asker, window);
}

// By the clock that the daemon reads.
static __always_inline int is_fresh(frame_byte* frame, const struct peel_control* control) {
  const uint32_t address = ip_of(frame)->saddr;
  const uint16_t port = udp_of(frame)->source;
  const uint64_t incarnation = control->incarnation;
  const uint64_t challenge = control->challenge;
  const uint64_t window = bpf_ktime_get_ns() / PEEL_NS_PER_MS / PEEL_CHALLENGE_MS;
  return challenge == challenge_of(address, port, incarnation, window) ||
         (window != 0 && challenge == challenge_of(address, port, incarnation, window - 1));
}

// A request to join comes by the port that results have to leave by.
static __always_inline void remember_door(const struct xdp_md* ctx, frame_byte* frame,
                                          const struct peel_control* control) {
  struct peel_xdp_door door = {.ifindex = ctx->ingress_ifindex};
  __builtin_memcpy(door.worker, ethernet_of(frame)->h_source, ETH_ALEN);
  __builtin_memcpy(door.here, ethernet_of(frame)->h_dest, ETH_ALEN);
  const uint64_t challenge = control->challenge;
  bpf_map_update_elem(&doors, &challenge, &door, BPF_ANY);
}

static __always_inline int drop_unheard(enum peel_drop why) {
  struct peel_xdp_tally* tally = own_tally();
  if (tally) ++tally->received;
  return drop(why, 0);
}

// The daemon counts what it gets.
static __always_inline int take_control(const struct xdp_md* ctx, frame_byte* frame, uint64_t bytes) {
  const struct peel_control* control = (const void*)packet_of(frame);
  if (!reaches(ctx, frame, PEEL_AT_PACKET + sizeof *control) || !is_request(control, bytes)) {
    return drop_unheard(PEEL_DROP_MALFORMED);
  }
  if (is_of_a_job(control)) {
    return may_say(ip_of(frame)->saddr) ? XDP_PASS : drop_unheard(PEEL_DROP_BUDGET);
  }
  const int fresh = control->verb != PEEL_VERB_HELLO && is_fresh(frame, control);
  if (!may_ask(ip_of(frame)->saddr, fresh)) return drop_unheard(PEEL_DROP_BUDGET);
  if (fresh && control->verb == PEEL_VERB_JOIN) remember_door(ctx, frame, control);
  return XDP_PASS;
}

SEC("xdp.frags")
int peel_ingress(struct xdp_md* ctx) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_PACKET) || !is_for(frame, settings.address, settings.port)) return XDP_PASS;
  const uint64_t bytes = (uint64_t)bpf_ntohs(udp_of(frame)->len) - sizeof(struct udphdr);
  if (reaches(ctx, frame, PEEL_AT_WORDS) && packet_of(frame)->kind == PEEL_KIND_CONTROL) {
    return take_control(ctx, frame, bytes);
  }
  return take_data(ctx, frame, bytes);
}

SEC("xdp.frags/devmap")
int peel_egress(struct xdp_md* ctx) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  const struct peel_xdp_port port = {.ifindex = ctx->egress_ifindex, .job = packet_of(frame)->job};
  const struct peel_xdp_way* way = bpf_map_lookup_elem(&ways, &port);
  if (!way || way->cookie != packet_of(frame)->cookie) return drop(PEEL_DROP_UNSENT, 0);
  __builtin_memcpy(ethernet_of(frame)->h_dest, way->worker, ETH_ALEN);
  __builtin_memcpy(ethernet_of(frame)->h_source, way->here, ETH_ALEN);
  ip_of(frame)->daddr = way->endpoint.address;
  udp_of(frame)->dest = way->endpoint.port;
  sum_ip_header(ip_of(frame));
  struct peel_xdp_tally* tally = own_tally();
  if (tally) ++tally->sent;
  return XDP_PASS;
}

char license_of_the_program[] SEC("license") = "Apache-2.0";
