// SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed hash of short messages: of the packets of jobs that are signed,
// and of challenges. User space and eBPF compile it alike, so it takes eight bytes at a time, in the order of the wire.
#ifndef PEEL_SWITCH_SIPHASH_H
#define PEEL_SWITCH_SIPHASH_H

#include <stdint.h>

struct peel_siphash {
  uint64_t v0, v1, v2, v3;
};

static inline uint64_t peel_rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline void peel_siphash_round(struct peel_siphash* s) {
  s->v0 += s->v1;
  s->v1 = peel_rotate(s->v1, 13) ^ s->v0;
  s->v0 = peel_rotate(s->v0, 32);
  s->v2 += s->v3;
  s->v3 = peel_rotate(s->v3, 16) ^ s->v2;
  s->v0 += s->v3;
  s->v3 = peel_rotate(s->v3, 21) ^ s->v0;
  s->v2 += s->v1;
  s->v1 = peel_rotate(s->v1, 17) ^ s->v2;
  s->v2 = peel_rotate(s->v2, 32);
}

static inline void peel_siphash_begin(struct peel_siphash* s, uint64_t key0, uint64_t key1) {
  s->v0 = key0 ^ 0x736f6d6570736575U;
  s->v1 = key1 ^ 0x646f72616e646f6dU;
  s->v2 = key0 ^ 0x6c7967656e657261U;
  s->v3 = key1 ^ 0x7465646279746573U;
}

static inline void peel_siphash_add(struct peel_siphash* s, uint64_t eight_bytes) {
  s->v3 ^= eight_bytes;
  peel_siphash_round(s);
  peel_siphash_round(s);
  s->v0 ^= eight_bytes;
}

// `rest` holds the last bytes, fewer than eight, of a message of `bytes` in all.
static inline uint64_t peel_siphash_end(struct peel_siphash* s, uint64_t rest, uint64_t bytes) {
  peel_siphash_add(s, rest | bytes << 56);
  s->v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) peel_siphash_round(s);
  return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
