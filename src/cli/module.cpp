#include "cli/module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/failure.h"

namespace peel::cli {
namespace {

[[noreturn]] void refuse(const ModuleName& name, const std::string& path) {
  throw Failure(fmt::format("this peel came without {}: there is no {}; install {} and build it again, or {}",
                            name.part, path, name.build, name.instead));
}

[[noreturn]] void refuse(const ModuleName& name, const std::string& path, const char* reason) {
  throw Failure(fmt::format("{} needs {}, and {} cannot be loaded: {}; {}, or {}", name.part, name.library, path,
                            reason != nullptr ? reason : "nobody says why", name.install, name.instead));
}

// Every module begins with it.
std::string_view version_of(const void* module) { return *static_cast<const char* const*>(module); }

}  // namespace

std::string module_folder() {
  if (const char* told = secure_getenv("PEEL_MODULES"); told != nullptr && *told != '\0') return told;
  std::error_code failed;
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  const std::filesystem::path built = beside / "modules";
  if (std::filesystem::is_directory(built, failed)) return built.string();
  return (beside / PEEL_MODULES_FROM_PROGRAM).lexically_normal().string();
}

const void* load_module(const ModuleName& name) {
  const std::string path = fmt::format("{}/peel-{}.so", module_folder(), name.name);
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) refuse(name, path);
  // Now: what is missing shows here, and nothing is looked up later, when a switch may have given up its privileges.
  // Global: plugins of Open MPI look for its symbols there. Local: the others have kernels of the same name.
  const int scope = name.name == "mpi" ? RTLD_GLOBAL : RTLD_LOCAL;
  void* module = dlopen(path.c_str(), RTLD_NOW | scope);  // the second time, the same; never closed
  if (module == nullptr) refuse(name, path, dlerror());
  const void* functions = dlsym(module, ("peel_module_" + name.name).c_str());
  if (functions == nullptr) refuse(name, path, dlerror());
  if (version_of(functions) != PEEL_VERSION) {
    throw Failure(fmt::format("{} is of version {} and this peel of " PEEL_VERSION "; install both anew, together",
                              path, version_of(functions)));
  }
  return functions;
}

}  // namespace peel::cli
