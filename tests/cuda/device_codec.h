// The verbs of peel/cuda.h on data of the host: what goes in is copied to the device, the verb runs, what comes out is
// copied back, and every fence is looked at.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codec/checked_codec.h"
#include "cuda/device_memory.h"
#include "peel/cuda.h"
#include "peel/peel.h"

namespace peel::testing {

class DeviceCodec {
 public:
  struct How {
    std::uint32_t offset = 0;  // of dense arrays from their alignment, in elements
  };

  // With exactly the room that was asked for.
  DeviceCodec(const Plan& plan, const cuda::Room& room, How how, DeviceMemory& memory = DeviceMemory::shared())
      : plan_(plan), room_(room), how_(how), memory_(memory) {
    memory_.workspace.reset(room.workspace_bytes);
    memory_.status.reset(sizeof(cuda::Status));
    clear_message();
  }
  DeviceCodec(const Plan& plan, std::uint64_t items, How how, DeviceMemory& memory = DeviceMemory::shared())
      : DeviceCodec(plan, cuda::room_for(plan, items), how, memory) {}

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const cuda::Room& room() const { return room_; }

  // ---- views of what is on the device

  [[nodiscard]] cuda::Launch launch() const {
    return {.stream = stream_,
            .workspace = memory_.workspace.data(),
            .workspace_bytes = memory_.workspace.size(),
            .status = memory_.status.as<cuda::Status>(),
            .items = room_.items};
  }
  [[nodiscard]] cuda::Message message() const { return message_in(memory_.index, memory_.payload); }
  [[nodiscard]] ConstDense put(ConstDense x) {
    memory_.x.reset(x.size * size_of(x.type), how_.offset * size_of(x.type));
    memory_.x.upload(x.data, x.size * size_of(x.type));
    return {memory_.x.data(), x.size, x.type};
  }
  [[nodiscard]] cuda::ConstSparse put(const ConstSparse& x) {
    memory_.items.reset(x.items.size_bytes());
    memory_.items.upload(x.items.data(), x.items.size_bytes());
    const std::size_t bytes = x.items.size() * plan_.grain() * size_of(x.type);
    memory_.values.reset(bytes);
    memory_.values.upload(x.values, bytes);
    return {memory_.items.as<std::uint64_t>(), x.items.size(), memory_.values.data(), x.type};
  }
  // A message of the host, in the room that it takes and `slack` more.
  void put(const Message& message, std::size_t slack = 0) {
    put(message, memory_.index, memory_.payload, slack);
    workers_ = message.workers;
  }
  void clear_message() {
    memory_.index.reset(room_.index_words * sizeof(std::uint64_t));
    memory_.payload.reset(room_.payload_bytes);
  }

  // ---- the verbs

  template <typename View>  // ConstDense or ConstSparse, on the host
  cuda::Status encode(const View& x) {
    clear_message();
    const auto view = put(x);
    return run([&] { cuda::encode(plan_, view, message(), launch()); });
  }

  template <typename View>
  cuda::Status encode_index(const View& x) {
    clear_message();
    memory_.support.reset(room_.support_words * sizeof(std::uint64_t));
    const auto view = put(x);
    return run([&] { cuda::encode_index(plan_, view, memory_.support.as<std::uint64_t>(), message(), launch()); });
  }

  // Round two, with this union in place of the own index.
  template <typename View>
  cuda::Status encode_values(const View& x, const Buffer<std::uint64_t>& all) {
    memory_.index.upload(all.data(), all.size() * sizeof(std::uint64_t));
    const auto view = put(x);
    return run([&] { cuda::encode_values(plan_, view, memory_.support.as<std::uint64_t>(), message(), launch()); });
  }

  cuda::Status merge(const Message& from) {
    put(from, memory_.other_index, memory_.other_payload, 0);
    cuda::Message sum = message(), other = message_in(memory_.other_index, memory_.other_payload);
    sum.workers = workers_;
    other.workers = from.workers;
    const cuda::Status status = run([&] { cuda::merge(plan_, sum, other, launch()); });
    workers_ = sum.workers;
    return status;
  }

  // ---- decoding

  struct Options {
    bool estimate = false;
    std::uint64_t sparse_room = ~std::uint64_t{0};  // in items; more than there are: as many as the room was made for
    std::uint64_t lost_room = ~std::uint64_t{0};
  };

  cuda::Status decode(Elements& x, const Options& options, std::vector<std::uint64_t>& lost) {
    const ConstDense view = put(x.view());
    const Dense target(const_cast<void*>(view.data), view.size, view.type);
    const cuda::DecodeOptions asked = decode_options(options);
    const cuda::Status status = run([&] { cuda::decode(plan_, message(), target, asked, launch()); });
    memory_.x.download(x.data(), x.size() * size_of(plan_.type()));
    take_lost(status, asked, lost);
    return status;
  }

  cuda::Status decode(Sparse& x, const Options& options, std::vector<std::uint64_t>& lost) {
    const std::uint64_t room = std::min(options.sparse_room, room_.items);
    const std::size_t item_bytes = plan_.grain() * size_of(plan_.type());
    memory_.items.reset(room * sizeof(std::uint64_t));
    memory_.values.reset(room * item_bytes);
    const cuda::Sparse target{memory_.items.as<std::uint64_t>(), memory_.values.data(), room, plan_.type()};
    const cuda::DecodeOptions asked = decode_options(options);
    const cuda::Status status = run([&] { cuda::decode(plan_, message(), target, asked, launch()); });
    take_lost(status, asked, lost);
    // A message that is refused leaves nothing to look at.
    const std::uint64_t written = status.recovered + (options.estimate ? status.lost : 0);
    const std::uint64_t count = status.flags != 0 ? 0 : std::min(room, written);
    x.type = plan_.type();
    x.items.resize(count);
    x.values.resize(count * item_bytes);
    memory_.items.download(x.items.data(), count * sizeof(std::uint64_t));
    memory_.values.download(x.values.data(), x.values.size());
    return status;
  }

  // ---- what is on the device, on the host

  // The message as the CPU would have it: an index of this many words, a payload of this many bytes.
  [[nodiscard]] Message take(std::uint64_t index_words, std::uint64_t payload_bytes) const {
    Message out;
    out.workers = workers_;
    out.index.resize(index_words);
    out.payload.resize(payload_bytes);
    memory_.index.download(out.index.data(), index_words * sizeof(std::uint64_t));
    memory_.payload.download(out.payload.data(), payload_bytes);
    return out;
  }

  // Whether the payload's room past this many bytes is zero.
  [[nodiscard]] bool payload_ends_at(std::uint64_t bytes) const {
    std::vector<char> rest(memory_.payload.size() - bytes, 1);
    memory_.payload.download(rest.data(), rest.size(), bytes);
    return std::all_of(rest.begin(), rest.end(), [](char byte) { return byte == 0; });
  }

  template <typename Verb>
  cuda::Status run(Verb&& verb) {
    require(cudaDeviceSynchronize(), "copying to the device");
    std::forward<Verb>(verb)();
    require(cudaGetLastError(), "launching");
    stream_.wait();
    for (const DeviceBytes* bytes : memory_.all()) {
      if (!bytes->fenced()) {
        throw Disagreement("a verb wrote outside of " + std::string(bytes->name()) + "\n" + plan_.describe());
      }
    }
    cuda::Status status;
    memory_.status.download(&status, sizeof status);
    return status;
  }

 private:
  [[nodiscard]] static cuda::Message message_in(const DeviceBytes& index, const DeviceBytes& payload) {
    return {.index = index.as<std::uint64_t>(),
            .index_words = index.size() / sizeof(std::uint64_t),
            .payload = payload.data(),
            .payload_bytes = payload.size()};
  }

  static void put(const Message& message, DeviceBytes& index, DeviceBytes& payload, std::size_t slack) {
    index.reset((message.index.size() + slack) * sizeof(std::uint64_t));
    index.upload(message.index.data(), message.index.size() * sizeof(std::uint64_t));
    payload.reset(message.payload.size() + slack * 16);
    payload.upload(message.payload.data(), message.payload.size());
  }

  [[nodiscard]] cuda::DecodeOptions decode_options(const Options& options) {
    const std::uint64_t room = std::min(options.lost_room, room_.items);
    memory_.lost.reset(room * sizeof(std::uint64_t));
    return {.estimate = options.estimate, .lost_items = memory_.lost.as<std::uint64_t>(), .lost_room = room};
  }

  void take_lost(const cuda::Status& status, const cuda::DecodeOptions& asked, std::vector<std::uint64_t>& lost) const {
    lost.resize(std::min(status.lost, asked.lost_room));
    memory_.lost.download(lost.data(), lost.size() * sizeof(std::uint64_t));
    std::sort(lost.begin(), lost.end());
  }

  const Plan plan_;
  cuda::Room room_;
  How how_;
  DeviceMemory& memory_;
  Stream stream_;
  std::optional<std::uint64_t> workers_;  // of the message that was put here
};

}  // namespace peel::testing
