// Which transports this build has, and in which version.
#pragma once

#include <string>
#include <vector>

namespace peel::cli {

struct TransportInfo {
  std::string name;
  std::string version;  // of the library below it; empty where there is none
};
std::vector<TransportInfo> available_transports();

// What is wrong with a sum between two threads, the one transport that can be tried alone; empty if nothing is.
std::string inprocess_problem();

}  // namespace peel::cli
