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

  PEEL_XDP_REFUSALS = 256,  // of one core in a window: whoever floods the switch gets few answers
  PEEL_XDP_REFUSAL_WINDOW_MS = 100,
  PEEL_XDP_DOORS = 4096,  // requests to join that are remembered
};
PEEL_WIRE_ASSERT(sizeof(struct peel_packet) == 40, "the number of words depends on it");

// The settings of a switch; what the program is told when it is loaded.
struct peel_xdp_settings {
  uint32_t address;  // in network order, as is the port
  uint16_t port;
  uint16_t zero;
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
  uint32_t first_slot;
  uint16_t slot_count;
  uint16_t words;
  uint8_t workers;
  uint8_t active;  // 0: nobody's; written last when a job begins, first when it ends
  uint8_t zero[6];
  struct peel_xdp_endpoint endpoint[PEEL_WIRE_MAX_WORKERS];
};

// The loops look at PEEL_XDP_STEP words at a time, so there is room for as many behind the last.
struct peel_xdp_slot {
  struct bpf_spin_lock lock;
  uint32_t zero;
  uint64_t owner;  // the cookie of its job
  uint64_t everybody;
  struct peel_slot slot;
  uint32_t words[2][PEEL_XDP_WORDS + PEEL_XDP_STEP];
};

// By which port a request to join came, and between which stations. Kept by the request's challenge, which only its
// sender can know.
struct peel_xdp_door {
  uint32_t ifindex;
  uint8_t worker[6];
  uint8_t here[6];
};

// How a result gets to the worker of a job at a port.
struct peel_xdp_port {
  uint32_t ifindex;
  uint32_t job;
};
struct peel_xdp_way {
  uint8_t worker[6];
  uint8_t here[6];
  struct peel_xdp_endpoint endpoint;
};

// Of one core, since the switch started.
struct peel_xdp_tally {
  uint64_t received;
  uint64_t combined;
  uint64_t completed;
  uint64_t repeated;
  uint64_t sent;
  uint64_t dropped[PEEL_DROPS];
  uint64_t refusals_since_ms;
  uint64_t refusals;
};

struct peel_xdp_job_tally {
  uint64_t received;
  uint64_t completed;
  uint64_t dropped;
  uint64_t heard_ns;  // of the clock that only goes forward
};

#endif
