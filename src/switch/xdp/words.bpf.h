// Loops over the words of a packet. Each goes to the end of the frame in steps of PEEL_XDP_STEP words, then word by
// word: so the verifier sees that it ends, and every offset is a constant to it. A frame has no bytes behind its
// datagram when these are called. Words are added one by one: two in a register would carry into each other.
#ifndef PEEL_SWITCH_XDP_WORDS_BPF_H
#define PEEL_SWITCH_XDP_WORDS_BPF_H

#include "switch/wire/siphash.h"
#include "switch/xdp/layout.h"

enum { PEEL_XDP_STEPS = PEEL_XDP_WORDS / PEEL_XDP_STEP };

enum peel_how { PEEL_HOW_COPY, PEEL_HOW_SUM, PEEL_HOW_OR };

static __always_inline void combine_word(uint32_t* into, const uint32_t* from, const enum peel_how how) {
  if (how == PEEL_HOW_COPY) {
    *into = *from;
  } else if (how == PEEL_HOW_SUM) {
    *into += *from;
  } else {
    *into |= *from;
  }
}

static __always_inline void combine_words(uint32_t* into, const uint32_t* from, const void* end,
                                          const enum peel_how how) {
  for (int step = 0; step < PEEL_XDP_STEPS; ++step) {
    if ((const void*)(from + PEEL_XDP_STEP) > end) break;
#pragma unroll
    for (int k = 0; k < PEEL_XDP_STEP; ++k) combine_word(into + k, from + k, how);
    into += PEEL_XDP_STEP;
    from += PEEL_XDP_STEP;
  }
  for (int rest = 0; rest < PEEL_XDP_STEP; ++rest) {
    if ((const void*)(from + 1) > end) break;
    combine_word(into++, from++, how);
  }
}

// The check of a packet, word by word: weighted is count * plain - prefixes, so that it takes two additions for each.
struct running_check {
  uint64_t plain;
  uint64_t prefixes;  // sum of what `plain` was after each word
};

static __always_inline void check_word(struct running_check* sums, uint32_t word) {
  sums->plain += word;
  sums->prefixes += sums->plain;
}

static __always_inline uint64_t check_value(const struct running_check* sums, uint64_t count) {
  const struct peel_check check = {sums->plain, count * sums->plain - sums->prefixes};
  return peel_check_value(&check);
}

// Of a header whose check is taken as zero; the words are to follow.
static __always_inline struct running_check check_header(const struct peel_packet* header) {
  const uint32_t* words = (const uint32_t*)header;
  struct running_check sums = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) check_word(&sums, words[i]);
  check_word(&sums, 0);
  check_word(&sums, 0);
  return sums;
}

static __always_inline void check_words(struct running_check* sums, const uint32_t* from, const void* end) {
  for (int step = 0; step < PEEL_XDP_STEPS; ++step) {
    if ((const void*)(from + PEEL_XDP_STEP) > end) break;
#pragma unroll
    for (int k = 0; k < PEEL_XDP_STEP; ++k) check_word(sums, from[k]);
    from += PEEL_XDP_STEP;
  }
  for (int rest = 0; rest < PEEL_XDP_STEP; ++rest) {
    if ((const void*)(from + 1) > end) break;
    check_word(sums, *from++);
  }
}

// From a slot into a packet.
static __always_inline void copy_checked(uint32_t* into, const void* end, const uint32_t* from,
                                         struct running_check* sums) {
  for (int step = 0; step < PEEL_XDP_STEPS; ++step) {
    if ((const void*)(into + PEEL_XDP_STEP) > end) break;
#pragma unroll
    for (int k = 0; k < PEEL_XDP_STEP; ++k) {
      into[k] = from[k];
      check_word(sums, from[k]);
    }
    into += PEEL_XDP_STEP;
    from += PEEL_XDP_STEP;
  }
  for (int rest = 0; rest < PEEL_XDP_STEP; ++rest) {
    if ((const void*)(into + 1) > end) break;
    *into++ = *from;
    check_word(sums, *from++);
  }
}

// The check of a packet with a key: of its header, with the check as zero, and of the words up to `end`.
static __always_inline uint64_t keyed_check(const struct peel_packet* header, const void* end, uint64_t key0,
                                            uint64_t key1) {
  struct peel_siphash state;
  peel_siphash_begin(&state, key0, key1);
  const uint64_t* eights = (const uint64_t*)header;
  uint64_t bytes = sizeof *header;
#pragma unroll
  for (int i = 0; i < 4; ++i) peel_siphash_add(&state, eights[i]);
  peel_siphash_add(&state, 0);
  eights += 5;
  for (int i = 0; i < PEEL_XDP_WORDS / 2; ++i) {
    if ((const void*)(eights + 1) > end) break;
    peel_siphash_add(&state, *eights++);
    bytes += 8;
  }
  const uint32_t* last = (const uint32_t*)eights;
  uint64_t rest = 0;
  if ((const void*)(last + 1) <= end) {
    rest = *last;
    bytes += 4;
  }
  return peel_siphash_end(&state, rest, bytes);
}

#endif
