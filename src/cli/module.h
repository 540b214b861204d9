// Parts of the program that need what a machine may lack: MPI, NCCL, libbpf, and the kernels for GPUs. Each is a file
// of its own, peel-NAME.so, which is loaded when it is first asked for, so that the program itself runs everywhere.
//
// A module uses the program's one copy of the library and of itself: the program exports all its symbols. What it
// throws is caught like anything else. It hands out one constant, `peel_module_NAME`, whose type is a struct of
// functions that begins with the version it was built for.
#pragma once

#include <string>

namespace peel::cli {

struct ModuleName {
  std::string name;     // mpi, as in peel-mpi.so
  std::string part;     // what needs it: "the transport mpi"
  std::string library;  // that it needs: "Open MPI"
  std::string install;  // how to get that: "install openmpi-bin"
  std::string build;    // what a build needs: "libopenmpi-dev"
  std::string instead;  // what works without: "use --transport inprocess"
};

// Where modules are: PEEL_MODULES where that is set, else the folder `modules` beside the program (in a build), else
// where they are installed.
std::string module_folder();

// Loads it at the first call. Throws Failure, with what is missing and what to do, where that does not work.
const void* load_module(const ModuleName& name);

template <typename Functions>
const Functions& load(const ModuleName& name) {
  return *static_cast<const Functions*>(load_module(name));
}

}  // namespace peel::cli
