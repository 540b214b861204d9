// What travels between workers and a switch, and the limits of both: docs/switch-protocol.md in C, which user space and
// eBPF compile alike. Every number is little-endian, as the machines on both sides have it.
#ifndef PEEL_SWITCH_WIRE_H
#define PEEL_SWITCH_WIRE_H

#include <stdint.h>

#ifdef __cplusplus
#define PEEL_WIRE_ASSERT static_assert
#else
#define PEEL_WIRE_ASSERT _Static_assert
#endif

enum {
  PEEL_WIRE_MAGIC = 0x4C50,  // "PL"
  PEEL_WIRE_VERSION = 2,
  PEEL_WIRE_PORT = 7077,  // of control packets, unless told otherwise

  PEEL_WIRE_MAX_WORKERS = 64,  // a bitmap of them is one word
  PEEL_WIRE_MAX_LANES = 16,    // UDP ports of one switch for data
  PEEL_WIRE_MAX_JOBS = 1024,
  PEEL_WIRE_MAX_SLOTS = 65535,  // of one job
  PEEL_WIRE_NAME_BYTES = 64,    // of a job's name; what is not used is zero
  PEEL_WIRE_MAC_BYTES = 16,
  PEEL_WIRE_KEY_BYTES = 16,

  PEEL_WIRE_IP_BYTES = 28,     // of IPv4 and UDP
  PEEL_WIRE_MTU_SMALL = 1500,  // and the words that fit beside all headers
  PEEL_WIRE_WORDS_SMALL = 358,
  PEEL_WIRE_MTU_LARGE = 9000,
  PEEL_WIRE_WORDS_LARGE = 2233,
  PEEL_WIRE_MAX_WORDS = PEEL_WIRE_WORDS_LARGE,
};

// In the fourth byte of every packet.
enum peel_wire_kind {
  PEEL_KIND_DATA = 1,     // worker to switch: a worker's words
  PEEL_KIND_RESULT = 2,   // switch to worker: everybody's words, combined
  PEEL_KIND_REFUSAL = 3,  // switch to worker: this will not be combined, and why
  PEEL_KIND_CONTROL = 4,  // either way: struct peel_control
};

enum peel_wire_operation {
  PEEL_SUM32 = 0,  // modulo 2^32: wraps, never saturates
  PEEL_OR32 = 1,
};

// Why something was refused; in refusals and in control replies.
enum peel_wire_reason {
  PEEL_REASON_NONE = 0,
  PEEL_REASON_UNKNOWN_JOB = 1,    // the switch was restarted, or the job expired
  PEEL_REASON_MISMATCH = 2,       // another worker's packet of this slot and round says something else
  PEEL_REASON_WORKER_GONE = 3,    // a worker left, or joined anew
  PEEL_REASON_NO_ROOM = 4,        // no job or no slot is free: do without the switch
  PEEL_REASON_DISAGREEMENT = 5,   // workers joined with different numbers
  PEEL_REASON_BAD_CHALLENGE = 6,  // say hello again
  PEEL_REASON_BAD_REQUEST = 7,
  PEEL_REASON_NO_PORT = 8,  // results have no way of their own to a worker: do without the switch
  PEEL_REASON_TAKEN = 9,    // a job of that name is complete, or has a worker of that rank, and nobody of it is gone
  PEEL_REASON_BAD_SECRET = 10,  // the challenge is right and the MAC is not; not signed
  PEEL_REASON_DRAINING = 11,    // the switch is being shut down
};

// Of data, results and refusals. The words follow.
struct peel_packet {
  uint16_t magic;
  uint8_t version;
  uint8_t kind;
  uint16_t job;       // its number at this switch
  uint8_t worker;     // who sends; 0 in results
  uint8_t operation;  // enum peel_wire_operation; in refusals enum peel_wire_reason
  uint32_t slot;      // of the job, from 0
  uint32_t round;     // how often the slot was used before; its lowest bit is the version
  uint64_t cookie;    // of the job
  uint32_t tag;       // what is combined here: the same from all workers
  uint16_t words;     // that follow; 0 in refusals
  uint16_t zero;
  uint64_t check;  // of the whole packet, see peel_check_add
};
PEEL_WIRE_ASSERT(sizeof(struct peel_packet) == 40, "the header has 40 bytes and no gaps");
PEEL_WIRE_ASSERT(PEEL_WIRE_IP_BYTES + sizeof(struct peel_packet) + 4 * PEEL_WIRE_WORDS_SMALL <= PEEL_WIRE_MTU_SMALL,
                 "packets must fit");
PEEL_WIRE_ASSERT(PEEL_WIRE_IP_BYTES + sizeof(struct peel_packet) + 4 * PEEL_WIRE_WORDS_LARGE <= PEEL_WIRE_MTU_LARGE,
                 "packets must fit");

// What a control packet asks or tells. No reply is longer than what it answers.
enum peel_wire_verb {
  PEEL_VERB_HELLO = 1,       // anybody: who is there? Not signed
  PEEL_VERB_CHALLENGE = 2,   // switch: prove that you get what is sent to you. Not signed
  PEEL_VERB_JOIN = 3,        // worker: let me in
  PEEL_VERB_ADMITTED = 4,    // switch: you are, and so are these
  PEEL_VERB_REFUSED = 5,     // switch: you are not, and why
  PEEL_VERB_LEAVE = 6,       // worker: I am done
  PEEL_VERB_LEFT = 7,        // switch: so be it
  PEEL_VERB_QUERY = 8,       // anybody with a secret: how are you? `slot_count` is the first job to tell of
  PEEL_VERB_STATUS = 9,      // switch: struct peel_status follows, and a struct peel_job_status for each job
  PEEL_VERB_PROBE = 10,      // worker: does a datagram of this length arrive?
  PEEL_VERB_PROBED = 11,     // switch: it did, and this one is as long
  PEEL_VERB_KEEPALIVE = 12,  // worker: I am still here
  PEEL_VERB_STATE = 13,      // switch: this is how the job stands; an answer to KEEPALIVE, and told when it changes
  PEEL_VERB_PING = 14,       // switch: are you still there?
};

enum peel_wire_flag {
  PEEL_FLAG_SIGNED = 1,    // ADMITTED: the check of the job's packets is keyed
  PEEL_FLAG_DRAINING = 2,  // STATE, STATUS: the switch is being shut down
  PEEL_FLAG_SILENT = 4,    // REFUSED because the name is taken: by a worker that was not heard of for a while
};

struct peel_control {
  uint16_t magic;
  uint8_t version;
  uint8_t kind;  // PEEL_KIND_CONTROL
  uint8_t verb;
  uint8_t reason;  // enum peel_wire_reason
  uint16_t job;
  uint64_t incarnation;  // drawn at random by whoever asks, once for each worker that starts
  uint64_t challenge;
  uint64_t cookie;
  uint64_t joined;      // bitmap of the workers that are in
  uint64_t gone;        // and of those that left or died
  uint64_t sequence;    // of KEEPALIVE, each larger than the last; of PING, at random
  uint8_t worker;       // from 0
  uint8_t workers;      // how many there are
  uint16_t words;       // the most that fit a packet: of this worker; in replies, of the job
  uint16_t slot_count;  // wanted; in replies, had
  uint8_t lanes;        // in replies: slot s goes to port data_port + s * lanes / slot_count
  uint8_t flags;        // enum peel_wire_flag
  uint16_t data_port;   // in ADMITTED; in PROBE and PROBED, the length of the datagram
  uint16_t silence;     // in ADMITTED: tenths of a second without a sign of life after which a peer is dead
  uint16_t life_port;   // in ADMITTED and KEEPALIVE: the TCP port that is open while the sender lives; 0: none
  uint16_t zero;
  uint8_t key[PEEL_WIRE_KEY_BYTES];  // in ADMITTED, where jobs are signed: see mask_of
  char name[PEEL_WIRE_NAME_BYTES];   // of the job
  uint8_t mac[PEEL_WIRE_MAC_BYTES];  // the first half of HMAC-SHA256 of all above; in STATUS, of what follows too
};
PEEL_WIRE_ASSERT(sizeof(struct peel_control) == 168, "the control packet has 168 bytes and no gaps");
enum {
  // Of QUERY: STATUS is no longer than its question, which is as long as the path allows.
  PEEL_WIRE_QUERY_BYTES = 1400,
  PEEL_WIRE_SHORT_QUERY_BYTES = 520,
};

// Whether a switch answers a control packet of this verb and length; replies are not its to answer.
static inline int peel_is_request(uint8_t verb, uint64_t bytes, uint64_t longest_probe) {
  switch (verb) {
    case PEEL_VERB_HELLO:
    case PEEL_VERB_JOIN:
    case PEEL_VERB_LEAVE:
    case PEEL_VERB_KEEPALIVE:
      return bytes == sizeof(struct peel_control);
    case PEEL_VERB_QUERY:
      return bytes >= PEEL_WIRE_SHORT_QUERY_BYTES && bytes <= PEEL_WIRE_QUERY_BYTES;
    case PEEL_VERB_PROBE:
      return bytes > sizeof(struct peel_control) && bytes <= longest_probe;
    default:
      return 0;
  }
}

// Why packets were dropped; an index of peel_status::dropped.
enum peel_drop {
  PEEL_DROP_MALFORMED,    // too short, wrong magic, version, kind, operation or length
  PEEL_DROP_CORRUPT,      // the check does not add up
  PEEL_DROP_UNKNOWN_JOB,  // no such job, or another cookie
  PEEL_DROP_FORGED,       // not from where that worker joined
  PEEL_DROP_NO_SLOT,      // the job has no such slot
  PEEL_DROP_STALE,        // of an earlier round: late, or replayed
  PEEL_DROP_EARLY,        // of a round that cannot have begun
  PEEL_DROP_MISMATCH,     // differs from what other workers sent
  PEEL_DROP_HOPELESS,     // would wait for a worker that is gone
  PEEL_DROP_UNSIGNED,     // a control packet with a wrong MAC
  PEEL_DROP_UNPROVEN,     // a control packet with a wrong challenge
  PEEL_DROP_BUDGET,       // a control packet of a stranger, more than there is time for
  PEEL_DROP_UNREAD,       // the socket had no room, or saw at once that it was not of this protocol
  PEEL_DROP_UNSENT,       // a result that the network would not take
  PEEL_DROPS,
};

// Since the switch started.
struct peel_status {
  uint64_t received;   // packets
  uint64_t combined;   // words of a worker that went into a slot
  uint64_t completed;  // rounds
  uint64_t repeated;   // packets that were in already: answered from the slot, or ignored
  uint64_t sent;       // packets
  uint64_t dropped[PEEL_DROPS];
  uint32_t slots;       // in all
  uint32_t slots_held;  // by jobs
  uint16_t jobs;        // now
  uint16_t most_jobs;
  uint16_t following;  // job records in this packet
  uint16_t first;      // the number of the first of them; ask again from behind the last one
};
PEEL_WIRE_ASSERT(sizeof(struct peel_status) == 168, "the status has no gaps");

struct peel_job_status {
  char name[PEEL_WIRE_NAME_BYTES];
  uint64_t joined;
  uint64_t gone;
  uint64_t received;
  uint64_t completed;
  uint64_t dropped;
  uint32_t silent_ms;  // since a sign of life of the worker that is silent for longest
  uint32_t busy;       // slots with a round that is not complete
  uint16_t job;
  uint16_t slot_count;
  uint16_t words;
  uint8_t workers;
  uint8_t zero;
};
PEEL_WIRE_ASSERT(sizeof(struct peel_job_status) == 120, "the record has no gaps");

// The check of a packet: with p[i] its words in order, header included and the check itself as zero, the sum of
// p[i] * (2^20 + i) modulo 2^64. Two words that change places, any one word and any two bits are always noticed. It
// needs only additions, of words and of running sums, which switches and eBPF can do; a CRC they can not.
enum { PEEL_CHECK_SHIFT = 20 };
struct peel_check {
  uint64_t plain;     // sum of p[i]
  uint64_t weighted;  // sum of p[i] * i
};
static inline uint64_t peel_check_value(const struct peel_check* sums) {
  return (sums->plain << PEEL_CHECK_SHIFT) + sums->weighted;
}

#endif
