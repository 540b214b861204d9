// Which transports and planes of the switch work here, and in which version, and what is missing for the others.
#pragma once

#include <string>
#include <vector>

namespace peel::cli {

struct TransportInfo {
  std::string name;
  std::string version;       // of the library below it; empty where there is none
  std::string missing = {};  // why it does not work here: a sentence that says what to do; empty: it does
};
std::vector<TransportInfo> known_transports();
std::vector<TransportInfo> known_planes();  // none where this build has no switch

// What is wrong with a sum between two threads, the one transport that can be tried alone; empty if nothing is.
std::string inprocess_problem();

}  // namespace peel::cli
