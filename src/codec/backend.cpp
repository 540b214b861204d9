// Which backend runs.
#include <cstdlib>
#include <string>

#include "codec/engine.h"
#include "peel/codec.h"

namespace peel {

std::string_view name(Backend backend) noexcept {
  switch (backend) {
    case Backend::automatic:
      return "auto";
    case Backend::reference:
      return "reference";
    case Backend::cpu:
      return "cpu";
  }
  return "unknown";
}

std::vector<Backend> available_backends() {
  std::vector<Backend> backends = {Backend::reference};
#if PEEL_HAVE_CPU
  backends.push_back(Backend::cpu);
#endif
  return backends;
}

Backend resolve(Backend backend) {
  if (backend == Backend::automatic) {
    const char* forced = std::getenv("PEEL_BACKEND");
    if (forced == nullptr || *forced == '\0' || std::string_view(forced) == "auto") return available_backends().back();
    for (const Backend known : {Backend::reference, Backend::cpu}) {
      if (forced == name(known)) return resolve(known);
    }
    throw Error(ErrorCode::invalid_argument,
                "PEEL_BACKEND is \"" + std::string(forced) + "\"; set it to reference, cpu or auto.");
  }
  for (const Backend there : available_backends()) {
    if (there == backend) return backend;
  }
  throw Error(ErrorCode::unsupported, "The " + std::string(name(backend)) +
                                          " backend is not in this build; build with Google Highway or use reference.");
}

#if !PEEL_HAVE_CPU
std::string_view simd_target() { return ""; }
#endif

const detail::Engine& detail::engine_of(Backend backend) {
  const Backend resolved = resolve(backend);
#if PEEL_HAVE_CPU
  if (resolved == Backend::cpu) return cpu_engine();
#endif
  (void)resolved;
  return reference_engine();
}

}  // namespace peel
