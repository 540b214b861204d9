// What a cable between two cards does, for cable.py: every frame that comes in at one end leaves at the other, as a
// frame. OTHER_END is the number of that interface. Cards compute checksums; here that of UDP, half done by the sender,
// is left out.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int cable(struct xdp_md* ctx) {
  void* end = (void*)(long)ctx->data_end;
  struct ethhdr* ethernet = (void*)(long)ctx->data;
  struct iphdr* ip = (void*)(ethernet + 1);
  struct udphdr* udp = (void*)(ip + 1);
  if ((void*)(udp + 1) <= end && ethernet->h_proto == bpf_htons(ETH_P_IP) && ip->ihl == 5 &&
      ip->protocol == IPPROTO_UDP) {
    udp->check = 0;
  }
  return bpf_redirect(OTHER_END, 0);
}

char license_of_the_program[] SEC("license") = "Apache-2.0";
