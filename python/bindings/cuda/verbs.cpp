#include "verbs.h"

#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "message_sizes.h"
#include "names.h"
#include "peel/cuda.h"
#include "peel/error.h"

namespace peel::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

template <typename T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// A message and what a verb works with, in memory that Python holds.
struct Work {
  cuda::Message message;
  cuda::Launch launch;
};

void bind_work(nb::module_& m) {
  nb::class_<cuda::Room>(m, "Room", "What a message and the work on it take.")
      .def_ro("items", &cuda::Room::items)
      .def_ro("index_words", &cuda::Room::index_words)
      .def_ro("payload_bytes", &cuda::Room::payload_bytes)
      .def_ro("workspace_bytes", &cuda::Room::workspace_bytes);
  m.def(
      "room_for",
      [](const Plan& plan, std::int64_t items) {
        return items < 0 ? cuda::room_for(plan) : cuda::room_for(plan, static_cast<std::uint64_t>(items));
      },
      "plan"_a, "items"_a, "For so many items in the union; less than 0 for those of the plan.");

  nb::class_<Work>(m, "Work", "A message, and what a verb works with.")
      .def(
          "__init__",
          [](Work* self, std::uintptr_t index, std::uint64_t index_words, std::uintptr_t payload,
             std::uint64_t payload_bytes, std::uint64_t items, std::uintptr_t workspace, std::size_t workspace_bytes,
             std::uintptr_t status, std::uintptr_t stream) {
            new (self) Work{.message = {.index = at<std::uint64_t>(index),
                                        .index_words = index_words,
                                        .payload = at<std::byte>(payload),
                                        .payload_bytes = payload_bytes},
                            .launch = {.stream = reinterpret_cast<cudaStream_t>(stream),
                                       .workspace = at<void>(workspace),
                                       .workspace_bytes = workspace_bytes,
                                       .status = at<cuda::Status>(status),
                                       .items = items}};
          },
          nb::kw_only(), "index"_a, "index_words"_a, "payload"_a, "payload_bytes"_a, "items"_a, "workspace"_a,
          "workspace_bytes"_a, "status"_a, "stream"_a);
}

void bind_status(nb::module_& m) {
  m.attr("STATUS_BYTES") = sizeof(cuda::Status);
  nb::class_<cuda::Status>(m, "Status", "What a verb has to report, once it is on the host.")
      .def_static(
          "read",
          [](std::uintptr_t address) {
            cuda::Status status;
            std::memcpy(&status, at<const void>(address), sizeof status);
            return status;
          },
          "address"_a)
      .def_ro("items", &cuda::Status::items)
      .def_ro("recovered", &cuda::Status::recovered)
      .def_ro("lost", &cuda::Status::lost)
      .def_ro("index_words", &cuda::Status::index_words)
      .def_prop_ro("lacks_room", [](const cuda::Status& self) { return (self.flags & cuda::kNoRoom) != 0; })
      .def(
          "check", [](const cuda::Status& self, const Plan& plan) { cuda::check(plan, self); }, "plan"_a,
          "Raises what went wrong.");
}

void bind_verbs(nb::module_& m) {
  m.def("check_sizes", &check_message_sizes, "plan"_a, "words"_a, "bytes"_a);
  m.def(
      "encode",
      [](const Plan& plan, std::uintptr_t x, std::uint64_t elements, std::string_view type, const Work& work) {
        cuda::encode(plan, ConstDense(at<const void>(x), elements, type_named(type)), work.message, work.launch);
      },
      "plan"_a, "x"_a, "elements"_a, "type"_a, "work"_a);
  m.def(
      "encode_sparse",
      [](const Plan& plan, std::uintptr_t items, std::uint64_t count, std::uintptr_t values, std::uint64_t value_count,
         std::string_view type, const Work& work) {
        check_value_count(plan, count, value_count);
        const cuda::ConstSparse x{at<const std::uint64_t>(items), count, at<const void>(values), type_named(type)};
        cuda::encode(plan, x, work.message, work.launch);
      },
      "plan"_a, "items"_a, "count"_a, "values"_a, "value_count"_a, "type"_a, "work"_a);
  m.def(
      "merge",
      [](const Plan& plan, Work& into, Work& from, std::uint64_t workers_into, std::uint64_t workers_from) {
        into.message.workers = workers_into;
        from.message.workers = workers_from;
        cuda::merge(plan, into.message, from.message, into.launch);
      },
      "plan"_a, "into"_a, "from_"_a, "workers_into"_a, "workers_from"_a);
  m.def(
      "decode",
      [](const Plan& plan, const Work& work, std::uintptr_t x, std::uint64_t elements, std::string_view type,
         std::uintptr_t lost, std::uint64_t lost_room) {
        cuda::decode(plan, work.message, Dense(at<void>(x), elements, type_named(type), Memory::device),
                     {.lost_items = at<std::uint64_t>(lost), .lost_room = lost_room}, work.launch);
      },
      "plan"_a, "work"_a, "x"_a, "elements"_a, "type"_a, "lost"_a, "lost_room"_a);
  m.def(
      "decode_sparse",
      [](const Plan& plan, const Work& work, std::uintptr_t items, std::uintptr_t values, std::uint64_t room,
         std::string_view type, std::uintptr_t lost, std::uint64_t lost_room) {
        const cuda::Sparse x{at<std::uint64_t>(items), at<void>(values), room, type_named(type)};
        cuda::decode(plan, work.message, x, {.lost_items = at<std::uint64_t>(lost), .lost_room = lost_room},
                     work.launch);
      },
      "plan"_a, "work"_a, "items"_a, "values"_a, "room"_a, "type"_a, "lost"_a, "lost_room"_a);
}

}  // namespace

void bind_verbs_on_gpus(nb::module_& m) {
  bind_work(m);
  bind_status(m);
  bind_verbs(m);
}

}  // namespace peel::python
