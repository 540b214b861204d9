#ifdef PEEL_HAVE_SWITCH

#include "cli/xdp_plane.h"

#include "cli/module.h"

namespace peel::cli {

const XdpModule& load_xdp() {
  return load<XdpModule>({.name = "xdp",
                          .part = "the plane xdp",
                          .library = "libbpf",
                          .install = "install libbpf1",
                          .build = "clang, libbpf-dev and bpftool",
                          .instead = "take --plane udp"});
}

}  // namespace peel::cli

#endif
