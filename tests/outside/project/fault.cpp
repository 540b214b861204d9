#include "fault.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace outside {

namespace {

// Strikes once some of the collective may be under way.
class FaultyOperation final : public peel::Operation {
 public:
  FaultyOperation(std::unique_ptr<peel::Operation> inner, const Fault& fault)
      : inner_(std::move(inner)), fault_(fault) {}

  bool test() override {
    complete_ = complete_ || inner_->test();
    if (!std::exchange(struck_, true)) fault_.strike();
    return complete_;
  }

 private:
  std::unique_ptr<peel::Operation> inner_;
  const Fault& fault_;
  bool struck_ = false;
  bool complete_ = false;
};

// What the process has is all that it will have. What it had and gave back is not to serve it again.
void take_no_more_memory() {
  ::malloc_trim(0);
  std::ifstream pages("/proc/self/statm");
  rlim_t held = 0;
  pages >> held;
  const rlim_t bytes = held * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace

void Fault::strike() const {
  if (kind == "none") return;
  tell(folder, "struck", kind);
  if (kind == "kill") std::raise(SIGKILL);
  if (kind == "stop") std::raise(SIGSTOP);
  if (kind == "raise") throw std::runtime_error("this worker has a bug");
  if (kind == "exit") std::exit(0);
  if (kind == "memory") take_no_more_memory();
}

std::unique_ptr<peel::Operation> FaultyCommunicator::start(peel::Collective& what, std::uint32_t channel,
                                                           std::chrono::milliseconds timeout) {
  const When now = when_;
  if (now == When::opening) {
    when_ = When::never;
    fault_.strike();
  }
  auto operation = inner_->start(what, channel, timeout);
  if (now == When::data && std::exchange(opened_, true)) {
    when_ = When::never;
    return std::make_unique<FaultyOperation>(std::move(operation), fault_);
  }
  return operation;
}

void tell(const std::string& folder, const std::string& name, const std::string& text) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::string path = folder + "/" + name;
  std::FILE* file = std::fopen((path + ".new").c_str(), "w");
  if (file == nullptr) return;
  std::fprintf(file, "%.3f\n%s\n", static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec),
               text.c_str());
  std::fclose(file);
  std::rename((path + ".new").c_str(), path.c_str());
}

}  // namespace outside
