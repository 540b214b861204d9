// The challenge that proves that a request came from where it says: what the switch sends to an address, and takes from
// there for ten to twenty seconds. User space and eBPF compile it alike, since the xdp plane looks at it in both.
#ifndef PEEL_SWITCH_CHALLENGE_H
#define PEEL_SWITCH_CHALLENGE_H

#include "switch/wire/siphash.h"

enum { PEEL_CHALLENGE_MS = 10000 };  // of a window; a challenge holds in its own and in the next one

// Bound to the address, to whoever asks and to the window, and to nothing that would have to be remembered.
struct peel_asker {
  uint64_t address[2];  // the bytes of an IPv6 address; IPv4 as ::ffff:a.b.c.d
  uint64_t port;
  uint64_t incarnation;
};

static inline uint64_t peel_challenge(uint64_t key0, uint64_t key1, const struct peel_asker* asker, uint64_t window) {
  struct peel_siphash state;
  peel_siphash_begin(&state, key0, key1);
  peel_siphash_add(&state, asker->address[0]);
  peel_siphash_add(&state, asker->address[1]);
  peel_siphash_add(&state, asker->port);
  peel_siphash_add(&state, asker->incarnation);
  peel_siphash_add(&state, window);
  return peel_siphash_end(&state, 0, 5 * sizeof(uint64_t));
}

#endif
