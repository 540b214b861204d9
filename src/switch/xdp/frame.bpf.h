// A frame with a datagram of this protocol: Ethernet, IPv4 without options, UDP. Its parts are reached by offset, since
// a packed struct would be read byte by byte.
#ifndef PEEL_SWITCH_XDP_FRAME_BPF_H
#define PEEL_SWITCH_XDP_FRAME_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>

#include "switch/xdp/layout.h"

typedef uint8_t frame_byte;

enum {
  PEEL_AT_IP = sizeof(struct ethhdr),
  PEEL_AT_UDP = PEEL_AT_IP + sizeof(struct iphdr),
  PEEL_AT_PACKET = PEEL_AT_UDP + sizeof(struct udphdr),
  PEEL_AT_WORDS = PEEL_AT_PACKET + sizeof(struct peel_packet),

  PEEL_PLAIN_IP = 0x45,    // version 4, no options
  PEEL_FRAGMENT = 0x3FFF,  // offset, and whether more follow
  PEEL_TTL = 64,
};

// Each time anew: what the verifier knew of the last pointer is forgotten, and so does not multiply its work.
static __always_inline frame_byte* frame_of(const struct xdp_md* ctx) {
  return (frame_byte*)(long)*(const volatile uint32_t*)&ctx->data;
}
static __always_inline const void* frame_end(const struct xdp_md* ctx) {
  return (const void*)(long)*(const volatile uint32_t*)&ctx->data_end;
}
// Whether a frame has so many bytes.
static __always_inline int reaches(const struct xdp_md* ctx, const frame_byte* frame, uint32_t bytes) {
  return (const void*)(frame + bytes) <= frame_end(ctx);
}

static __always_inline struct ethhdr* ethernet_of(frame_byte* frame) { return (struct ethhdr*)frame; }
static __always_inline struct iphdr* ip_of(frame_byte* frame) { return (struct iphdr*)(frame + PEEL_AT_IP); }
static __always_inline struct udphdr* udp_of(frame_byte* frame) { return (struct udphdr*)(frame + PEEL_AT_UDP); }
static __always_inline struct peel_packet* packet_of(frame_byte* frame) {
  return (struct peel_packet*)(frame + PEEL_AT_PACKET);
}
static __always_inline uint32_t* words_of(frame_byte* frame) { return (uint32_t*)(frame + PEEL_AT_WORDS); }

static __always_inline int is_for(frame_byte* frame, uint32_t address, uint16_t port) {
  const struct iphdr* ip = ip_of(frame);
  return ethernet_of(frame)->h_proto == bpf_htons(ETH_P_IP) && frame[PEEL_AT_IP] == PEEL_PLAIN_IP &&
         ip->protocol == IPPROTO_UDP && ip->daddr == address && (ip->frag_off & bpf_htons(PEEL_FRAGMENT)) == 0 &&
         udp_of(frame)->dest == port;
}

static __always_inline void sum_ip_header(struct iphdr* ip) {
  const uint16_t* halves = (const uint16_t*)ip;
  uint32_t sum = 0;
  ip->check = 0;
#pragma unroll
  for (int i = 0; i < 10; ++i) sum += halves[i];
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  ip->check = (uint16_t)~sum;
}

// Turns a frame round. UDP's own checksum is left out: the packet has a better one, and what came may have held half a
// checksum, as it does on virtual links.
static __always_inline void make_reply(frame_byte* frame, uint16_t datagram_bytes) {
  struct udphdr* udp = udp_of(frame);
  const uint16_t port = udp->dest;
  udp->dest = udp->source;
  udp->source = port;
  udp->check = 0;
  udp->len = bpf_htons(sizeof *udp + datagram_bytes);
  struct iphdr* ip = ip_of(frame);
  const uint32_t here = ip->daddr;
  ip->daddr = ip->saddr;
  ip->saddr = here;
  ip->tot_len = bpf_htons(sizeof *ip + sizeof *udp + datagram_bytes);
  ip->tos = 0;
  ip->id = 0;
  ip->frag_off = 0;
  ip->ttl = PEEL_TTL;
  sum_ip_header(ip);
  struct ethhdr* ethernet = ethernet_of(frame);
  uint8_t station[ETH_ALEN];
  __builtin_memcpy(station, ethernet->h_dest, ETH_ALEN);
  __builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
  __builtin_memcpy(ethernet->h_source, station, ETH_ALEN);
}

#endif
