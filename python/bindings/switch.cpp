// One worker of a job at a switch, for a lane: what an exchange asks for goes in, and is waited for without the
// interpreter's lock.
#include "switch.h"

#ifdef PEEL_HAVE_SWITCH

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "peel/error.h"
#include "peel/switch.h"

namespace peel::python {
namespace {

namespace nb = nanobind;
using Unlocked = nb::call_guard<nb::gil_scoped_release>;
using namespace nb::literals;

// A collective under way. It holds the communicator, which has to outlive it, and no longer: a worker that leaves a job
// must not be kept in it by what it has done there.
class Passage {
 public:
  Passage(std::shared_ptr<Communicator> through, std::unique_ptr<Operation> operation)
      : through_(std::move(through)), operation_(std::move(operation)) {}
  // False: it is still under way after so many seconds.
  bool wait(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (operation_ != nullptr && !operation_->test()) {
      if (std::chrono::steady_clock::now() > end) return false;
      through_->relax();
    }
    drop();
    return true;
  }
  void drop() {
    operation_.reset();
    through_.reset();
  }

 private:
  std::shared_ptr<Communicator> through_;
  std::unique_ptr<Operation> operation_;
};

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

// It can be left before its Python object is gone: tracebacks keep those alive.
class SwitchWorker {
 public:
  // All workers join within `options.timeout`; `timeout` is that of its collectives.
  SwitchWorker(SwitchOptions options, std::chrono::milliseconds timeout) : timeout_(timeout) {
    options.granted = [this](const SwitchGrant& grant) { slots_ = grant.slots; };  // while it joins, and never again
    through_ = make_switch(options);
  }

  std::unique_ptr<Passage> start(Collective& what) {
    return std::make_unique<Passage>(through_, joined().start(what, /*channel=*/0, timeout_));
  }
  std::tuple<double, double, double> measure_link() {
    const LinkFacts facts = peel::measure_link(joined(), timeout_);
    return {facts.latency_s, facts.bytes_per_second, facts.copy_bytes_per_second};
  }
  [[nodiscard]] bool moves_buffers() const {
    return joined().offers(Collective::Kind::all_to_all, ElementType::int8) &&
           joined().offers(Collective::Kind::all_gather, ElementType::int8);
  }
  [[nodiscard]] bool sums_floats() const { return joined().offers(Collective::Kind::sum, ElementType::float32); }
  [[nodiscard]] unsigned slots() const noexcept { return slots_; }
  void leave() { through_.reset(); }

 private:
  [[nodiscard]] Communicator& joined() const {
    if (through_ == nullptr) throw Error(ErrorCode::invalid_argument, "This worker has left its job; join another.");
    return *through_;
  }

  std::shared_ptr<Communicator> through_;
  std::chrono::milliseconds timeout_;
  unsigned slots_ = 0;
};

}  // namespace

void bind_switch(nb::module_& m) {
  nb::class_<Passage>(m, "Passage", "A collective on its way through a switch.")
      .def("wait", &Passage::wait, "seconds"_a, Unlocked(), "False if it is still under way then.")
      .def("drop", &Passage::drop, Unlocked(), "One that is not complete ends the job.");

  nb::class_<SwitchWorker>(m, "SwitchWorker", "One worker of a job at a switch; joins, and waits for the others.")
      .def(
          "__init__",
          [](SwitchWorker* self, std::string address, std::string secret, std::string job, unsigned rank, unsigned size,
             unsigned slots, unsigned mtu, double within, double timeout) {
            new (self) SwitchWorker({.address = std::move(address),
                                     .secret = std::move(secret),
                                     .job = std::move(job),
                                     .rank = rank,
                                     .size = size,
                                     .slots = slots,
                                     .mtu = mtu,
                                     .timeout = milliseconds_of(within)},
                                    milliseconds_of(timeout));
          },
          nb::kw_only(), "address"_a, "secret"_a, "job"_a, "rank"_a, "size"_a, "slots"_a, "mtu"_a, "within"_a,
          "timeout"_a, Unlocked(),
          "All workers join within so many seconds; the other time-out is that of its collectives.")
      .def("start", &SwitchWorker::start, "what"_a, nb::keep_alive<0, 2>(), Unlocked())
      .def("measure_link", &SwitchWorker::measure_link, Unlocked(),
           "Latency, and bytes per second of the link and of a copy; the same on all workers.")
      .def_prop_ro("moves_buffers", &SwitchWorker::moves_buffers)
      .def_prop_ro("sums_floats", &SwitchWorker::sums_floats)
      .def_prop_ro("slots", &SwitchWorker::slots, "That the switch gave the job; perhaps fewer than it asked for.")
      .def("leave", &SwitchWorker::leave, Unlocked());
}

}  // namespace peel::python

#else

namespace peel::python {

void bind_switch(nanobind::module_&) {}

}  // namespace peel::python

#endif
