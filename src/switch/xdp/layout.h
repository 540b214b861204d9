// What the daemon and its eBPF program share: the values of the maps, and the limits. User space and eBPF compile it
// alike.
//
// The daemon admits jobs and writes them down in `jobs`, while packets are being handled. Nothing stands still for
// that: a job is read only once it is `active`, and a slot names its owner, which is looked at under the slot's lock.
// So a packet that is late by a whole job never gets into the slots of the next one.
#ifndef PEEL_SWITCH_XDP_LAYOUT_H
#define PEEL_SWITCH_XDP_LAYOUT_H

#include <linux/bpf.h>

#include "switch/core/slot.h"
#include "switch/wire/wire.h"

enum {
  // A broadcast redirect copies frames into one page, which also holds what the kernel knows of them (some 600 bytes).
  PEEL_XDP_MTU = 3400,
  PEEL_XDP_WORDS = (PEEL_XDP_MTU - PEEL_WIRE_IP_BYTES - 40) / 4,
  PEEL_XDP_STEP = 8,  // words that a loop handles at a time

  // What one core does in a window: whoever floods the switch gets few answers, and leaves the daemon time for others.
  PEEL_XDP_WINDOW_MS = 100,
  PEEL_XDP_REFUSALS = 256,              // to strangers, and as many to workers that are in
  PEEL_XDP_REQUESTS = 2000,             // control packets that the daemon gets, from all addresses
  PEEL_XDP_REQUESTS_OF_SOURCE = 200,    // and from one; a host of 16 workers that join needs some 30
  PEEL_XDP_REQUESTS_OF_MEMBERS = 1000,  // of one address; a host of 64 workers sends some 30
  PEEL_XDP_SOURCES = 1024,              // that are counted apart

  PEEL_XDP_DOORS = 4096,  // requests to join that are remembered
  PEEL_XDP_LONGEST_PROBE = PEEL_WIRE_MTU_LARGE - PEEL_WIRE_IP_BYTES,
};
PEEL_WIRE_ASSERT(sizeof(struct peel_packet) == 40, "the number of words depends on it");

// The settings of a switch; what the program is told when it is loaded.
struct peel_xdp_settings {
  uint32_t address;  // in network order, as is the port
  uint16_t port;
  uint16_t zero;
  uint64_t seed;              // odd and at random: which addresses share a budget cannot be foreseen
  uint64_t challenge_key[2];  // with which the daemon makes challenges
};

struct peel_xdp_endpoint {
  uint32_t address;
  uint16_t port;
  uint16_t zero;
};

struct peel_xdp_job {
  uint64_t cookie;
  uint64_t joined;  // bitmaps of workers
  uint64_t gone;
  uint64_t key[2];
  uint32_t first_slot;
  uint16_t slot_count;
  uint16_t words;
  uint8_t workers;
  uint8_t active;  // 0: nobody's; written last when a job begins, first when it ends
  uint8_t keyed;   // 1: the check of its packets takes the key
  uint8_t zero[5];
  struct peel_xdp_endpoint endpoint[PEEL_WIRE_MAX_WORKERS];
};

// What a job that begins must write anew, so it is kept apart from the words. The lock is of both.
struct peel_xdp_slot {
  struct bpf_spin_lock lock;
  uint32_t zero;
  uint64_t owner;  // the cookie of its job
  uint64_t everybody;
  struct peel_slot slot;
};

// Of even and of odd rounds. The loops look at PEEL_XDP_STEP words at a time, so there is room for as many behind the
// last.
struct peel_xdp_words {
  uint32_t version[2][PEEL_XDP_WORDS + PEEL_XDP_STEP];
};

// By which port a request to join came, and between which stations. Kept by the request's challenge, which only its
// sender can know, and only if the challenge holds: strangers must not push out what the daemon has yet to read.
struct peel_xdp_door {
  uint32_t ifindex;
  uint8_t worker[6];
  uint8_t here[6];
};

// How a result gets to the worker of a job at a port. The number of a job is used again, its cookie is not.
struct peel_xdp_port {
  uint32_t ifindex;
  uint32_t job;
};
struct peel_xdp_way {
  uint64_t cookie;
  uint8_t worker[6];
  uint8_t here[6];
  struct peel_xdp_endpoint endpoint;
  uint32_t zero;
};

// What may still be done, and when that was reckoned.
struct peel_xdp_budget {
  uint64_t filled_ns;
  uint64_t left;
};

// What one address may ask the daemon, of one core.
struct peel_xdp_source {
  struct peel_xdp_budget unproven;
  struct peel_xdp_budget proven;
  struct peel_xdp_budget of_members;
};

// Of one core, since the switch started.
struct peel_xdp_tally {
  uint64_t received;
  uint64_t combined;
  uint64_t completed;
  uint64_t repeated;
  uint64_t sent;
  uint64_t dropped[PEEL_DROPS];
  struct peel_xdp_budget refusals_of_strangers;
  struct peel_xdp_budget refusals_of_members;
  struct peel_xdp_budget unproven;  // requests, as those of one address
  struct peel_xdp_budget proven;
};

struct peel_xdp_job_tally {
  uint64_t received;
  uint64_t completed;
  uint64_t dropped;
  uint32_t of_worker[PEEL_WIRE_MAX_WORKERS];  // of those received; wraps around
};

#endif
