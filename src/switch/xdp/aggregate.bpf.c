// The switch in the driver's path. peel_ingress runs at the ports of the switch: it takes data packets, and leaves
// control packets to the daemon, as everything else that comes by. peel_egress runs at the ports that a result leaves
// by, once for each copy, and gives the copy its address.
//
// A packet goes through the same questions in the same order as in switch/core/aggregator.cpp, and through the same
// rules of a slot (switch/core/slot.h): tests/switch/xdp_program_test.cpp gives both the same packets and wants the
// same answers. A lock is held for each slot while its words are touched, one packet's worth of work: it orders the
// words with the bitmap, and costs less than an atomic addition for each word would.
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

static __always_inline int may_refuse(void) {
  struct peel_xdp_tally* tally = own_tally();
  if (!tally) return 0;
  const uint64_t now = bpf_ktime_get_coarse_ns() / PEEL_NS_PER_MS;
  if (now - tally->refusals_since_ms >= PEEL_XDP_REFUSAL_WINDOW_MS) {
    tally->refusals_since_ms = now;
    tally->refusals = 0;
  }
  if (tally->refusals == PEEL_XDP_REFUSALS) return 0;
  ++tally->refusals;
  ++tally->sent;
  return 1;
}

// The cookie goes back as it came: who cannot know it cannot have caused this.
static __always_inline int refuse(struct xdp_md* ctx, enum peel_drop why, const struct peel_packet* packet,
                                  enum peel_wire_reason reason, struct peel_xdp_job_tally* job) {
  drop(why, job);
  if (!may_refuse()) return XDP_DROP;
  struct peel_packet refusal = *packet;
  refusal.kind = PEEL_KIND_REFUSAL;
  refusal.operation = reason;
  refusal.words = 0;
  const struct running_check sums = check_header(&refusal);
  refusal.check = check_value(&sums, 10);
  if (bpf_xdp_adjust_tail(ctx, -4 * (int)packet->words) != 0) return XDP_DROP;
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  *packet_of(frame) = refusal;
  make_reply(frame, sizeof refusal);
  return send_back(ctx);
}

// The check of what came, in a function that the verifier sees once.
__attribute__((noinline)) uint64_t check_of_frame(struct xdp_md* ctx) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return 0;
  const struct peel_packet header = *packet_of(frame);
  struct running_check sums = check_header(&header);
  check_words(&sums, words_of(frame), frame_end(ctx));
  return check_value(&sums, 10 + (uint64_t)header.words);
}

static __always_inline int is_forged(const struct peel_xdp_job* job, frame_byte* frame, uint8_t worker) {
  if (worker >= job->workers || !(job->joined >> worker & 1)) return 1;
  const struct peel_xdp_endpoint* endpoint = &job->endpoint[worker & (PEEL_WIRE_MAX_WORKERS - 1)];
  return endpoint->address != ip_of(frame)->saddr || endpoint->port != udp_of(frame)->source;
}

// With the slot locked. What is to be sent, if anything, is in the packet afterwards, but for its header.
static __always_inline enum peel_verdict serve(struct xdp_md* ctx, struct peel_xdp_slot* slot,
                                               const struct peel_packet* packet, uint64_t gone, int* complete,
                                               struct running_check* sums) {
  const enum peel_verdict verdict = peel_slot_judge(&slot->slot, packet, slot->everybody, gone);
  uint32_t* into = slot->words[packet->round & 1];
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
static __always_inline int send_result(struct xdp_md* ctx, const struct peel_packet* result, int everybody) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  *packet_of(frame) = *result;
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
  if (!slot) return drop(PEEL_DROP_NO_SLOT, share);
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
    return refuse(ctx, PEEL_DROP_UNKNOWN_JOB, packet, PEEL_REASON_UNKNOWN_JOB, share);
  }
  const enum peel_verdict verdict = serve(ctx, slot, packet, gone, &complete, &sums);
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
      return refuse(ctx, PEEL_DROP_MISMATCH, packet, PEEL_REASON_MISMATCH, share);
    default:
      return refuse(ctx, PEEL_DROP_HOPELESS, packet, PEEL_REASON_WORKER_GONE, share);
  }
  packet->kind = PEEL_KIND_RESULT;
  packet->worker = 0;
  packet->check = check_value(&sums, 10 + (uint64_t)packet->words);
  return send_result(ctx, packet, complete);
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
  if (check_of_frame(ctx) != packet.check) return drop(PEEL_DROP_CORRUPT, 0);
  const uint32_t number = packet.job;
  const struct peel_xdp_job* job = bpf_map_lookup_elem(&jobs, &number);
  if (!job || !job->active || job->cookie != packet.cookie) {
    return refuse(ctx, PEEL_DROP_UNKNOWN_JOB, &packet, PEEL_REASON_UNKNOWN_JOB, 0);
  }
  struct peel_xdp_job_tally* share = bpf_map_lookup_elem(&job_tallies, &number);
  if (is_forged(job, frame, packet.worker)) return drop(PEEL_DROP_FORGED, share);
  if (share) {
    ++share->received;
    share->heard_ns = bpf_ktime_get_coarse_ns();
  }
  if (packet.slot >= job->slot_count || packet.words > job->words) return drop(PEEL_DROP_NO_SLOT, share);
  return take_slot(ctx, &packet, job, share);
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

SEC("xdp.frags")
int peel_ingress(struct xdp_md* ctx) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_PACKET) || !is_for(frame, settings.address, settings.port)) return XDP_PASS;
  const uint64_t bytes = (uint64_t)bpf_ntohs(udp_of(frame)->len) - sizeof(struct udphdr);
  const struct peel_control* control = (const void*)packet_of(frame);
  if (reaches(ctx, frame, PEEL_AT_PACKET + sizeof *control) && bytes >= sizeof *control &&
      control->kind == PEEL_KIND_CONTROL) {
    if (control->verb == PEEL_VERB_JOIN) remember_door(ctx, frame, control);
    return XDP_PASS;
  }
  return take_data(ctx, frame, bytes);
}

SEC("xdp.frags/devmap")
int peel_egress(struct xdp_md* ctx) {
  frame_byte* frame = frame_of(ctx);
  if (!reaches(ctx, frame, PEEL_AT_WORDS)) return XDP_DROP;
  const struct peel_xdp_port port = {.ifindex = ctx->egress_ifindex, .job = packet_of(frame)->job};
  const struct peel_xdp_way* way = bpf_map_lookup_elem(&ways, &port);
  if (!way) return drop(PEEL_DROP_UNSENT, 0);
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
