// The memory of the program. How many jobs and slots there are is set when it is loaded.
#ifndef PEEL_SWITCH_XDP_MAPS_BPF_H
#define PEEL_SWITCH_XDP_MAPS_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "switch/xdp/layout.h"

const volatile struct peel_xdp_settings settings = {0};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);  // the daemon writes single fields
  __uint(max_entries, 1);
  __type(key, uint32_t);
  __type(value, struct peel_xdp_job);
} jobs SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, uint32_t);
  __type(value, struct peel_xdp_slot);
} slots SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, uint32_t);
  __type(value, struct peel_xdp_words);
} words_of_slots SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, PEEL_XDP_DOORS);
  __type(key, uint64_t);
  __type(value, struct peel_xdp_door);
} doors SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, struct peel_xdp_port);
  __type(value, struct peel_xdp_way);
} ways SEC(".maps");

struct ports_of_a_job {
  __uint(type, BPF_MAP_TYPE_DEVMAP);
  __uint(max_entries, PEEL_WIRE_MAX_WORKERS);
  __uint(key_size, sizeof(uint32_t));
  __uint(value_size, sizeof(struct bpf_devmap_val));
};
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, uint32_t);
  __array(values, struct ports_of_a_job);
} ports SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, uint32_t);
  __type(value, struct peel_xdp_tally);
} tallies SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, PEEL_XDP_SOURCES);
  __type(key, uint32_t);
  __type(value, struct peel_xdp_source);
} sources SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, uint32_t);
  __type(value, struct peel_xdp_job_tally);
} job_tallies SEC(".maps");

#endif
