// Plans, and encode, merge and decode with them. A message that Python hands in is copied once its sizes were found to
// fit the plan. What is handed out is memory of the library, without a copy.
#include "codec.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "message_sizes.h"
#include "names.h"
#include "peel/codec.h"
#include "tensors.h"

namespace peel::python {
namespace {

using Unlocked = nb::call_guard<nb::gil_scoped_release>;
using namespace nb::literals;

struct Encoded {
  Message message;
  ElementType payload_type;
};

struct Recovered {
  Sparse sum;  // left empty where the sum is dense
  std::vector<std::uint64_t> lost;
};

// Without a number of workers it can be decoded, but not merged.
Encoded take_message(const Plan& plan, std::uintptr_t index, std::uint64_t words, std::uintptr_t payload,
                     std::uint64_t bytes, std::optional<std::uint64_t> workers) {
  check_message_sizes(plan, words, bytes);
  Encoded taken{{}, plan.payload_type()};
  taken.message.workers = workers;
  taken.message.index.resize(words);
  taken.message.payload.resize(bytes);
  if (words != 0) {
    std::memcpy(taken.message.index.data(), reinterpret_cast<const void*>(index), words * sizeof(std::uint64_t));
  }
  if (bytes != 0) std::memcpy(taken.message.payload.data(), reinterpret_cast<const void*>(payload), bytes);
  return taken;
}

template <typename View>
Encoded encode_view(const Plan& plan, View x, unsigned threads) {
  Encoded made{{}, plan.payload_type()};
  encode(plan, x, made.message, {.threads = threads});
  return made;
}

// `count` items, and how many values came with them: the view itself has no length for these.
ConstSparse sparse_view(const Plan& plan, std::uintptr_t items, std::uint64_t count, std::uintptr_t values,
                        std::uint64_t value_count, std::string_view type) {
  check_value_count(plan, count, value_count);
  const std::span<const std::uint64_t> numbers(reinterpret_cast<const std::uint64_t*>(items), count);
  const auto negative = std::find_if(numbers.begin(), numbers.end(), [](std::uint64_t item) { return item >> 63; });
  if (negative != numbers.end()) {
    throw Error(ErrorCode::invalid_argument, "Item " + std::to_string(static_cast<std::int64_t>(*negative)) +
                                                 " is negative; items are counted from the start of the array.");
  }
  return {numbers, reinterpret_cast<const void*>(values), type_named(type)};
}

DecodeOptions decode_options(unsigned threads) { return {.list_lost = true, .execution = {.threads = threads}}; }

void bind_facts(nb::class_<Plan>& plan) {
  plan.def_prop_ro("elements", &Plan::elements)
      .def_prop_ro("type", [](const Plan& self) { return name(self.type()); })
      .def_prop_ro("codec", [](const Plan& self) { return name(self.codec()); })
      .def_prop_ro("cells", [](const Plan& self) { return name(self.cells()); })
      .def_prop_ro("index", [](const Plan& self) { return name(self.index()); })
      .def_prop_ro("grain", &Plan::grain)
      .def_prop_ro("items", &Plan::items)
      .def_prop_ro("workers", &Plan::workers)
      .def_prop_ro("most_workers", &Plan::most_workers)
      .def_prop_ro("scale", &Plan::scale)
      .def_prop_ro("index_words", &Plan::index_words)
      .def_prop_ro("payload_type", [](const Plan& self) { return name(self.payload_type()); })
      .def_prop_ro("payload_bytes", &Plan::payload_bytes)
      .def_prop_ro("message_bytes", &Plan::message_bytes)
      .def_prop_ro("dense_bytes", &Plan::dense_bytes)
      .def_prop_ro("error_bound", &Plan::error_bound)
      .def("describe", &Plan::describe);
}

void bind_making(nb::class_<Plan>& plan) {
  plan.def_static(
          "make",
          [](std::uint64_t elements, std::string_view type, std::string_view codec, std::uint64_t expected_items,
             std::uint32_t workers, std::uint32_t grain, std::string_view index, std::string_view cells,
             std::uint64_t seed, std::int32_t scale) {
            return Plan::make({.elements = elements,
                               .type = type_named(type),
                               .expected_items = expected_items,
                               .workers = workers,
                               .codec = codec_named(codec),
                               .cells = cells_named(cells),
                               .grain = grain,
                               .index = index_named(index),
                               .seed = seed,
                               .scale = scale});
          },
          nb::kw_only(), "elements"_a, "type"_a, "codec"_a, "expected_items"_a, "workers"_a, "grain"_a, "index"_a,
          "cells"_a, "seed"_a, "scale"_a)
      .def_static(
          "parse",
          [](const nb::bytes& bytes) {
            return Plan::parse({static_cast<const std::byte*>(bytes.data()), bytes.size()});
          },
          "bytes"_a)
      .def("serialise", [](const Plan& self) {
        const std::vector<std::byte> bytes = self.serialise();
        return nb::bytes(bytes.data(), bytes.size());
      });
}

void bind_verbs(nb::class_<Plan>& plan) {
  plan.def("message", &take_message, "index"_a, "words"_a, "payload"_a, "bytes"_a, "workers"_a.none(), Unlocked(),
           "A copy of a message of this plan.")
      .def(
          "encode",
          [](const Plan& self, std::uintptr_t address, std::uint64_t elements, std::string_view type,
             unsigned threads) {
            return encode_view(self, ConstDense(reinterpret_cast<const void*>(address), elements, type_named(type)),
                               threads);
          },
          "address"_a, "elements"_a, "type"_a, "threads"_a, Unlocked())
      .def(
          "encode_sparse",
          [](const Plan& self, std::uintptr_t items, std::uint64_t count, std::uintptr_t values,
             std::uint64_t value_count, std::string_view type, unsigned threads) {
            return encode_view(self, sparse_view(self, items, count, values, value_count, type), threads);
          },
          "items"_a, "count"_a, "values"_a, "value_count"_a, "type"_a, "threads"_a, Unlocked())
      .def(
          "merge",
          [](const Plan& self, Encoded& into, const Encoded& from) { merge(self, into.message, from.message); },
          "into"_a, "from_"_a, Unlocked())
      .def(
          "decode",
          [](const Plan& self, const Encoded& encoded, std::uintptr_t address, std::uint64_t elements,
             std::string_view type, unsigned threads) {
            const Dense x(reinterpret_cast<void*>(address), elements, type_named(type));
            return Recovered{{}, decode(self, encoded.message, x, decode_options(threads)).lost_items};
          },
          "message"_a, "address"_a, "elements"_a, "type"_a, "threads"_a, Unlocked())
      .def(
          "decode_sparse",
          [](const Plan& self, const Encoded& encoded, unsigned threads) {
            Recovered recovered;
            recovered.lost = decode(self, encoded.message, recovered.sum, decode_options(threads)).lost_items;
            return recovered;
          },
          "message"_a, "threads"_a, Unlocked());
}

void bind_results(nb::module_& m) {
  nb::class_<Encoded>(m, "Message", "One worker's message, or a sum of messages.")
      .def_prop_ro("index",
                   [](nb::handle_t<Encoded> handle) {
                     const auto& index = nb::cast<const Encoded&>(handle).message.index;
                     return tensor_over(index.data(), index.size() * 8, ElementType::int64, handle);
                   })
      .def_prop_ro("payload", [](nb::handle_t<Encoded> handle) {
        const auto& self = nb::cast<const Encoded&>(handle);
        return tensor_over(self.message.payload.data(), self.message.payload.size(), self.payload_type, handle);
      });

  nb::class_<Recovered>(m, "Recovered", "What a decode found.")
      .def_prop_ro("items",
                   [](nb::handle_t<Recovered> handle) {
                     const auto& items = nb::cast<const Recovered&>(handle).sum.items;
                     return tensor_over(items.data(), items.size() * 8, ElementType::int64, handle);
                   })
      .def_prop_ro("values",
                   [](nb::handle_t<Recovered> handle) {
                     const auto& sum = nb::cast<const Recovered&>(handle).sum;
                     return tensor_over(sum.values.data(), sum.values.size(), sum.type, handle);
                   })
      .def_prop_ro("lost", [](nb::handle_t<Recovered> handle) {
        const auto& lost = nb::cast<const Recovered&>(handle).lost;
        return tensor_over(lost.data(), lost.size() * 8, ElementType::int64, handle);
      });
}

}  // namespace

void bind_codec(nb::module_& m) {
  bind_results(m);
  nb::class_<Plan> plan(m, "Plan", "Everything workers must agree on before they encode.");
  bind_making(plan);
  bind_facts(plan);
  bind_verbs(plan);
  m.def(
      "fit_scale",
      [](double largest, std::uint32_t workers, std::string_view cells) {
        return fit_scale(largest, cells_named(cells), workers);
      },
      "largest"_a, "workers"_a, "cells"_a);
}

}  // namespace peel::python
