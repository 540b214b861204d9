// The rules of a slot, the only place where they stand: user space and eBPF compile them alike, tests and fuzzers drive
// them.
//
// A slot has two versions, those of even and of odd rounds. A worker sends round r of a slot only when it has the
// result of round r-1. So the first packet of round r tells that round r-1 is complete; that one is complete only since
// every worker had sent it, having the result of round r-2; so nobody needs that any more, and its version takes round
// r. A packet that comes twice finds its bit set and only reads. Whatever comes late names an older round.
// SwitchML (Sapio et al., NSDI 2021) has the two versions and no rounds: there a packet that is late by two rounds is
// added to a sum that it does not belong to.
#ifndef PEEL_SWITCH_SLOT_H
#define PEEL_SWITCH_SLOT_H

#include "switch/wire/wire.h"

struct peel_version {
  uint64_t seen;  // bitmap of the workers whose words are in
  uint32_t round;
  uint32_t tag;
  uint16_t words;
  uint8_t operation;
  uint8_t used;  // 0 until the first round
  uint8_t zero[4];
};
PEEL_WIRE_ASSERT(sizeof(struct peel_version) == 24, "a version has no gaps");

struct peel_slot {
  struct peel_version version[2];
};

enum peel_verdict {
  PEEL_BEGIN,     // the first words of a round: they replace what was there
  PEEL_COMBINE,   // further words: added or ORed
  PEEL_READ,      // these words are in, and the result is there: tell the sender again
  PEEL_WAIT,      // these words are in, and others are missing
  PEEL_STALE,     // of an earlier round
  PEEL_EARLY,     // the round before is not complete, so nobody can know its result
  PEEL_MISMATCH,  // another worker combines something else here
  PEEL_HOPELESS,  // a worker that is gone would have to send
};

// What is to be done with a packet. `everybody` and `gone` are bitmaps of the job's workers; packet->worker is one of
// them. Changes nothing.
static inline enum peel_verdict peel_slot_judge(const struct peel_slot* slot, const struct peel_packet* packet,
                                                uint64_t everybody, uint64_t gone) {
  const uint32_t round = packet->round;
  const struct peel_version* mine = &slot->version[round & 1];
  const struct peel_version* other = &slot->version[(round & 1) ^ 1];
  const uint64_t bit = (uint64_t)1 << (packet->worker & (PEEL_WIRE_MAX_WORKERS - 1));
  if (mine->used && mine->round == round) {
    if (packet->tag != mine->tag || packet->words != mine->words || packet->operation != mine->operation) {
      return PEEL_MISMATCH;
    }
    if (mine->seen == everybody) return PEEL_READ;
    if (gone & ~mine->seen) return PEEL_HOPELESS;
    return mine->seen & bit ? PEEL_WAIT : PEEL_COMBINE;
  }
  if (mine->used ? (int32_t)(round - mine->round) < 0 : round > 1) {
    return mine->used ? PEEL_STALE : PEEL_EARLY;
  }
  if (mine->used && round != mine->round + 2) return PEEL_EARLY;
  // The round before must be here, and complete; only the very first has none.
  if (other->used ? other->round != round - 1 || other->seen != everybody : round != 0) return PEEL_EARLY;
  return gone ? PEEL_HOPELESS : PEEL_BEGIN;
}

// To be called after PEEL_BEGIN or PEEL_COMBINE; tells whether the round is complete now.
static inline int peel_slot_enter(struct peel_slot* slot, const struct peel_packet* packet, uint64_t everybody,
                                  enum peel_verdict verdict) {
  struct peel_version* mine = &slot->version[packet->round & 1];
  if (verdict == PEEL_BEGIN) {
    mine->seen = 0;
    mine->round = packet->round;
    mine->tag = packet->tag;
    mine->words = packet->words;
    mine->operation = packet->operation;
    mine->used = 1;
  }
  mine->seen |= (uint64_t)1 << (packet->worker & (PEEL_WIRE_MAX_WORKERS - 1));
  return mine->seen == everybody;
}

#endif
