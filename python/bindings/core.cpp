// peelreduce._core: states, exchanges and codecs for Python. Arrays come as addresses of memory that the caller keeps
// alive; what takes time runs without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "codec.h"
#include "errors.h"
#include "names.h"
#include "parts.h"
#include "peel/codec.h"
#include "peel/exchange.h"
#include "switch.h"
#include "tensors.h"

namespace peel::python {
namespace {

using Unlocked = nb::call_guard<nb::gil_scoped_release>;
using namespace nb::literals;

void bind_state(nb::module_& m) {
  nb::class_<State>(m, "State", "What an all-reduce remembers from step to step; one for each array.")
      .def(
          "__init__",
          [](State* self, std::string_view strategy, std::uint32_t grain, std::uint64_t elements,
             std::uint64_t estimate_bytes, bool average, std::uint32_t unasked_steps, std::uint64_t seed,
             std::uint64_t chunk_bytes, unsigned threads, std::string name) {
            StateOptions options;
            options.strategy = strategy_named(strategy);
            options.grain = grain;
            options.elements = elements;
            options.estimate_bytes = estimate_bytes;
            options.average = average;
            options.unasked_steps = unasked_steps;
            options.seed = seed;
            options.chunk_bytes = chunk_bytes;
            options.execution.threads = threads;
            options.name = std::move(name);
            new (self) State(std::move(options));
          },
          nb::kw_only(), "strategy"_a = "auto", "grain"_a = 0, "elements"_a = 0, "estimate_bytes"_a = 0,
          "average"_a = false, "unasked_steps"_a = 0, "seed"_a = 0x5EED, "chunk_bytes"_a = 0, "threads"_a = 1,
          "name"_a = "gradient")
      .def("serialise",
           [](const State& self) {
             const std::vector<std::byte> bytes = self.serialise();
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("restore",
           [](State& self, const nb::bytes& bytes) {
             self.restore({static_cast<const std::byte*>(bytes.data()), bytes.size()});
           })
      .def_prop_ro(
          "asks", [](const State& self) { return self.asks(); },
          "Whether the next exchange opens, so that workers may be told something there.")
      .def_prop_ro("union_elements", &State::union_elements, "Of the last union; None before the first sum.")
      .def("set_estimate_bytes", &State::set_estimate_bytes, "bytes"_a, "From the next exchange on.")
      .def(
          "last", [](const State& self) { return self.last().to_json(); }, "The last report, as JSON.")
      .def(
          "totals", [](const State& self) { return self.totals().to_json(); }, "Sums over all steps, as JSON.")
      .def("prometheus",
           [](const State& self) { return to_prometheus(self.last(), self.totals(), self.options().name); });
}

// The pieces of an all-to-all or all-gather in device memory, as bytes.
template <typename Bytes>
std::vector<DeviceTensor> pieces_over(const std::vector<Bytes>& pieces, int device, nb::handle owner) {
  std::vector<DeviceTensor> tensors;
  for (const Bytes& one : pieces) {
    tensors.push_back(device_tensor_over(one.data(), one.size(), ElementType::int8, device, owner));
  }
  return tensors;
}

void bind_device_memory(nb::class_<Collective>& collective) {
  collective.def_prop_ro("memory", [](const Collective& self) { return name(self.memory); })
      .def(
          "data_on",
          [](nb::handle_t<Collective> handle, int device) {
            const auto& self = nb::cast<const Collective&>(handle);
            const ElementType type = self.kind == Collective::Kind::bit_or ? ElementType::int64 : self.type;
            return device_tensor_over(self.data.data(), self.data.size(), type, device, handle);
          },
          "device"_a)
      .def(
          "scratch_on",
          [](nb::handle_t<Collective> handle, int device) {
            const auto& self = nb::cast<const Collective&>(handle);
            return device_tensor_over(self.scratch.data(), self.scratch.size(), ElementType::int64, device, handle);
          },
          "device"_a)
      .def(
          "leaving_on",
          [](nb::handle_t<Collective> handle, int device) {
            return pieces_over(nb::cast<const Collective&>(handle).send, device, handle);
          },
          "device"_a, "What this worker sends: all pieces for worker 0, then those for worker 1, and so on.")
      .def(
          "coming_on",
          [](nb::handle_t<Collective> handle, int device) {
            return pieces_over(nb::cast<const Collective&>(handle).into, device, handle);
          },
          "device"_a, "Where the pieces of worker 0 go, then those of worker 1, and so on.")
      .def_prop_ro("fetches", [](const Collective& self) { return self.fetch.size(); });
}

void bind_collective(nb::module_& m) {
  nb::class_<Collective> collective(m, "Collective", "What an exchange asks for.");
  bind_device_memory(collective);
  collective.def_prop_ro("kind", [](const Collective& self) { return name(self.kind); })
      .def_prop_ro("sequence", [](const Collective& self) { return self.sequence; })
      .def_prop_ro("data",
                   [](nb::handle_t<Collective> handle) {
                     const auto& self = nb::cast<const Collective&>(handle);
                     const ElementType type = self.kind == Collective::Kind::bit_or ? ElementType::int64 : self.type;
                     return tensor_over(self.data.data(), self.data.size(), type, handle);
                   })
      .def_prop_ro("likely_bytes", [](const Collective& self) { return self.likely_bytes; })
      .def_prop_ro("parts", [](const Collective& self) { return self.send.size(); })
      .def(
          "pack",
          [](const Collective& self, std::uintptr_t to, std::size_t room) {
            pack_parts(self, room, reinterpret_cast<std::byte*>(to));
          },
          "to"_a, "room"_a, "Writes all parts, of at most `room` bytes each behind a header.", Unlocked())
      .def(
          "unpack",
          [](Collective& self, std::uintptr_t from, std::size_t room, unsigned rank) {
            return unpack_parts(self, room, rank, reinterpret_cast<const std::byte*>(from));
          },
          "from_"_a, "room"_a, "rank"_a,
          "Takes what pack() wrote on every worker; returns the length of the longest part of all.", Unlocked())
      .def(
          "rest",
          [](nb::handle_t<Collective> handle, std::size_t part, std::size_t room) {
            const auto& self = nb::cast<const Collective&>(handle);
            const std::span<const std::byte> whole = self.send.at(part);
            return bytes_over(whole.data() + std::min(room, whole.size()), whole.size() - std::min(room, whole.size()),
                              handle);
          },
          "part"_a, "room"_a, "What pack() had no room for.")
      .def(
          "rest_from",
          [](nb::handle_t<Collective> handle, std::size_t worker, std::size_t room) {
            auto& self = nb::cast<Collective&>(handle);
            Buffer<std::byte>& whole = self.received.at(worker);
            return bytes_over(whole.data() + std::min(room, whole.size()), whole.size() - std::min(room, whole.size()),
                              handle);
          },
          "worker"_a, "room"_a, "Memory for what another worker's pack() had no room for.");
}

// The sum of a sparse gradient.
struct SparseSum {
  Sparse sum;
};

// An exchange that can be ended before its Python object is: tracebacks keep those alive.
class Driven {
 public:
  explicit Driven(std::unique_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  Collective* next() { return open().next(); }
  void complete(Collective& done) { open().complete(done); }
  [[nodiscard]] bool finished() const { return open().finished(); }
  [[nodiscard]] bool moving() const { return open().moving(); }
  void close() { exchange_.reset(); }

 private:
  [[nodiscard]] Exchange& open() const {
    if (exchange_ == nullptr) throw Error(ErrorCode::invalid_argument, "This exchange was closed; begin another one.");
    return *exchange_;
  }

  std::unique_ptr<Exchange> exchange_;
};

void bind_exchange(nb::module_& m) {
  nb::class_<Device>(m, "Device", "Where exchanges of arrays in device memory work; _cuda makes it.")
      .def("trim", &Device::trim, Unlocked(), "Frees memory that no exchange works in.");

  nb::class_<ScratchPool>(m, "ScratchPool", "Memory that exchanges work in, kept for the next ones.")
      .def(nb::init<>())
      .def("trim", &ScratchPool::trim, Unlocked(), "Frees what no exchange works in.")
      .def_prop_ro("memory_bytes", &ScratchPool::memory_bytes);

  nb::class_<World>(m, "World", "Who takes part, and what connects them.")
      .def(
          "__init__",
          [](World* self, unsigned rank, unsigned size, double latency_s, double bytes_per_second,
             double copy_bytes_per_second, bool moves_buffers, bool sums_floats, std::uint64_t session,
             std::shared_ptr<Device> device, std::shared_ptr<ScratchPool> scratch) {
            const LinkFacts link{.latency_s = latency_s,
                                 .bytes_per_second = bytes_per_second,
                                 .copy_bytes_per_second = copy_bytes_per_second};
            new (self) World{.rank = rank,
                             .size = size,
                             .link = link,
                             .moves_buffers = moves_buffers,
                             .sums = sums_floats ? SumTypes::all() : SumTypes::integers(),
                             .sends_room = device == nullptr,
                             .session = session,
                             .device = std::move(device),
                             .scratch = std::move(scratch)};
          },
          "rank"_a, "size"_a, nb::kw_only(), "latency_s"_a, "bytes_per_second"_a, "copy_bytes_per_second"_a,
          "moves_buffers"_a = true, "sums_floats"_a = true, "session"_a = 0, "device"_a = nb::none(),
          "scratch"_a = nb::none())
      .def(
          "numbered",
          [](const World& self, std::uint64_t number) {
            World other = self;
            other.number = number;
            return other;
          },
          "number"_a, "For the exchange of this number, as every worker counts them.")
      .def_ro("rank", &World::rank)
      .def_ro("size", &World::size);

  nb::class_<SparseSum>(m, "SparseSum")
      .def(nb::init<>())
      .def_prop_ro("items",
                   [](nb::handle_t<SparseSum> handle) {
                     const auto& self = nb::cast<const SparseSum&>(handle);
                     return tensor_over(self.sum.items.data(), self.sum.items.size() * 8, ElementType::int64, handle);
                   })
      .def_prop_ro("values", [](nb::handle_t<SparseSum> handle) {
        const auto& self = nb::cast<const SparseSum&>(handle);
        return tensor_over(self.sum.values.data(), self.sum.values.size(), self.sum.type, handle);
      });

  nb::class_<Driven>(m, "Exchange", "One all-reduce without communication: it says what to perform.")
      .def_static(
          "dense",
          [](State& state, const World& world, std::uintptr_t address, std::uint64_t elements, std::string_view type,
             bool scatter, bool on_device, std::uintptr_t residual) {
            const Memory memory = on_device ? Memory::device : Memory::host;
            const Dense x(reinterpret_cast<void*>(address), elements, type_named(type), memory);
            if (residual != 0) {
              const Dense missed(reinterpret_cast<void*>(residual), elements, x.type, memory);
              return new Driven(std::make_unique<Exchange>(state, world, x, missed));
            }
            return new Driven(
                std::make_unique<Exchange>(state, world, x, scatter ? Outcome::scattered : Outcome::everywhere));
          },
          "state"_a, "world"_a, "address"_a, "elements"_a, "type"_a, nb::kw_only(), "scatter"_a = false,
          "on_device"_a = false, "residual"_a = 0, nb::keep_alive<0, 1>())
      .def_static(
          "sparse",
          [](State& state, const World& world, std::uintptr_t items, std::uint64_t count, std::uintptr_t values,
             std::string_view type, SparseSum& sum) {
            const ConstSparse x({reinterpret_cast<const std::uint64_t*>(items), count},
                                reinterpret_cast<const void*>(values), type_named(type));
            return new Driven(std::make_unique<Exchange>(state, world, x, sum.sum));
          },
          "state"_a, "world"_a, "items"_a, "count"_a, "values"_a, "type"_a, "sum"_a, nb::keep_alive<0, 1>(),
          nb::keep_alive<0, 7>())
      .def_static(
          "refusing",
          [](State& state, const World& world, std::string sentence) {
            return new Driven(std::make_unique<Exchange>(state, world, std::move(sentence)));
          },
          "state"_a, "world"_a, "sentence"_a, nb::keep_alive<0, 1>(),
          "Has all workers raise that this one cannot take part.")
      .def("next", &Driven::next, nb::rv_policy::reference_internal, Unlocked())
      .def("complete", &Driven::complete, Unlocked())
      .def_prop_ro("finished", &Driven::finished)
      .def_prop_ro("moving", &Driven::moving)
      .def("close", &Driven::close, Unlocked(), "Gives the state back. What is under way must be over.");
}

}  // namespace
}  // namespace peel::python

NB_MODULE(_core, m) {
  nanobind::set_leak_warnings(false);  // DDP keeps its hook's state until the process ends
  m.doc() = "The C++ library behind peelreduce.";
  peel::python::bind_errors(m);
  m.def("version", [] { return PEEL_VERSION; });
  m.def("backends", [] {
    std::vector<std::string> names;
    for (const peel::Backend backend : peel::available_backends()) names.emplace_back(name(backend));
    return names;
  });
  m.def("simd_target", &peel::simd_target);
  m.attr("LARGEST_ESTIMATE_ERROR") = peel::kLargestEstimateError;
  m.attr("PART_HEADER_BYTES") = peel::python::kPartHeaderBytes;
  peel::python::bind_state(m);
  peel::python::bind_collective(m);
  peel::python::bind_exchange(m);
  peel::python::bind_codec(m);
  peel::python::bind_switch(m);
}
