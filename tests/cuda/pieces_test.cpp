// Item messages, packed by the host, are read and added up on a device: as a whole, and piece by piece.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "allreduce/cuda/add_sources.h"
#include "allreduce/cuda/messages.h"
#include "codec/list_index.h"
#include "cuda/device_memory.h"
#include "items/add_items.h"
#include "items/drawn_items.h"
#include "peel/items.h"

namespace peel::testing {
namespace {

using cuda::Status;
using cuda::detail::AddedItems;
using cuda::detail::GpuSlot;
using cuda::detail::MemorySource;
using cuda::detail::MessageHeader;
using cuda::detail::MessageSpan;
using cuda::detail::Outbox;
using cuda::detail::Piece;
using cuda::detail::piece_of;
using cuda::detail::Reader;

// What a worker sent, on both sides.
struct SentItems {
  DrawnItems drawn;
  MessageHeader header;
  std::unique_ptr<DeviceBytes> index = std::make_unique<DeviceBytes>("the index");
  std::unique_ptr<DeviceBytes> values = std::make_unique<DeviceBytes>("the values");
};

class Sums {
 public:
  Sums(const Plan& plan, ElementType type, std::vector<std::uint64_t> permilles)
      : plan_(plan), share_{plan, {1, 0, plan.geometry().lead}}, item_bytes_(plan.grain() * size_of(type)) {
    SeededDraw random(plan.grain());
    for (const std::uint64_t permille : permilles) send(draw_items(plan.items(), item_bytes_, permille, random));
  }

  // What the host makes of the messages.
  [[nodiscard]] std::vector<std::byte> expected() const {
    const detail::Engine& engine = detail::engine_of(Backend::automatic);
    std::vector<detail::ItemView> views;
    for (const SentItems& one : sent_) views.push_back(one.drawn.view());
    Buffer<std::uint64_t> words;
    Buffer<std::byte> sums(detail::unite_items(engine, plan_.items(), views, words) * item_bytes_);
    detail::add_items(engine, plan_.type(), plan_.grain(), views, words, sums.data());
    std::vector<std::byte> x(plan_.dense_bytes());
    peel::expand(plan_, words, sums.data(), Dense(x.data(), plan_.elements(), plan_.type()));
    return x;
  }

  // The same by the device, `tiles` of them at a time.
  [[nodiscard]] std::vector<std::byte> on_device(std::uint64_t tiles) {
    const auto workers = static_cast<unsigned>(sent_.size());
    std::vector<MessageHeader> headers;
    for (const SentItems& one : sent_) headers.push_back(one.header);
    GpuSlot slot(source_);
    Reader reader(slot, stream_);
    const Piece largest[] = {piece_of(share_, 0, tiles)};
    reader.make_room(largest, headers, workers);
    numbers_.reset((4 * workers + 1) * sizeof(Status));
    require(cudaMemset(numbers_.data(), 0, (4 * workers + 1) * sizeof(Status)), "cudaMemset");
    sources_.reset(workers * sizeof(AddedItems));
    x_.reset(plan_.dense_bytes());
    require(cudaDeviceSynchronize(), "preparing");
    auto* const opened = numbers_.as<Status>();
    auto* const read = opened + workers;
    Status* const added = opened + 4 * workers;
    unsigned turn = 0;
    for (std::uint64_t first = 0; first < cuda::detail::tiles_of(plan_.geometry()); first += tiles, ++turn) {
      const Piece piece = piece_of(share_, first, tiles);
      std::vector<AddedItems> sources;
      for (unsigned w = 0; w < workers; ++w) {
        const SentItems& one = sent_[w];
        const MessageSpan span{{one.index->data(), index_bytes(one)},
                               {one.values->data(), one.drawn.items * item_bytes_}};
        sources.push_back(reader.read(share_, piece, one.header, span, w, opened + w));
        sources.back().before = read + turn % 2 * workers + w;
        sources.back().after = read + (turn + 1) % 2 * workers + w;
      }
      stream_.wait();
      sources_.upload(sources.data(), workers * sizeof(AddedItems));
      require(add_sources(piece.g, sources_.as<AddedItems>(), workers, x_.data(), piece.where, added, stream_),
              "add_sources");
      stream_.wait();
    }
    std::vector<Status> statuses(4 * workers + 1);
    numbers_.download(statuses.data(), statuses.size() * sizeof(Status));
    for (unsigned w = 0; w < workers; ++w) {
      const Status& one = statuses[(1 + turn % 2) * workers + w];
      EXPECT_EQ(one.items, sent_[w].drawn.items) << "worker " << w;
      EXPECT_EQ(one.flags, 0u) << "worker " << w;
    }
    std::vector<std::byte> x(plan_.dense_bytes());
    x_.download(x.data(), x.size());
    return x;
  }

 private:
  [[nodiscard]] std::size_t index_bytes(const SentItems& one) const {
    return detail::index_words(one.header, item_bytes_) * sizeof(std::uint64_t);
  }

  void send(DrawnItems drawn) {
    // Values that every type holds, so that sums are the same bits in any order of ours.
    const std::size_t count = drawn.items * plan_.grain();
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<std::int32_t>(1 + i % 97);
      if (plan_.type() == ElementType::float32) {
        reinterpret_cast<float*>(drawn.values.data())[i] = static_cast<float>(value);
      } else {
        reinterpret_cast<std::int8_t*>(drawn.values.data())[i] = static_cast<std::int8_t>(value);
      }
    }
    const detail::Engine& engine = detail::engine_of(Backend::automatic);
    const detail::ItemMessageShape shape{plan_.items(), item_bytes_};
    Buffer<std::uint64_t> list;
    Buffer<std::byte> message;
    detail::pack_items(engine, shape, drawn.view(), list, message);
    SentItems one{std::move(drawn), {}};
    std::memcpy(&one.header, message.data(), sizeof one.header);
    std::vector<std::byte> index(message.data() + sizeof one.header,
                                 message.data() + sizeof one.header + index_bytes(one));
    if (one.drawn.items > plan_.items() * 7 / 10 && one.drawn.items != plan_.items()) {  // a list of the others
      detail::encode_list(engine, one.drawn.view().words, plan_.items(), one.drawn.items, list);
      index.resize(list.size() * sizeof(std::uint64_t));
      std::memcpy(index.data(), list.data(), index.size());
      one.header.index = MessageHeader::Index::list;
      one.header.length = sizeof one.header + index.size() + one.drawn.items * item_bytes_;
    }
    one.index->reset(index.size());
    one.index->upload(index.data(), index.size());
    one.values->reset(one.drawn.items * item_bytes_);
    one.values->upload(one.drawn.view().values, one.drawn.items * item_bytes_);
    sent_.push_back(std::move(one));
  }

  Plan plan_;
  Outbox::Share share_;
  std::size_t item_bytes_;
  Stream stream_;
  std::shared_ptr<MemorySource> source_ = std::make_shared<MemorySource>(stream_, cuda::Allocator{});
  std::vector<SentItems> sent_;
  DeviceBytes numbers_{"the numbers"};
  DeviceBytes sources_{"the sources"};
  DeviceBytes x_{"the array"};
};

TEST(DevicePieces, AddUpToWhatTheHostAdds) {
  struct Shape {
    ElementType type;
    std::uint32_t grain;
    std::uint32_t phase;
  };
  for (const Shape& shape :
       {Shape{ElementType::float32, 1, 0}, Shape{ElementType::float32, 8, 3}, Shape{ElementType::int8, 1024, 700}}) {
    const Plan plan = Plan::make(
        {.elements = 200'003, .type = shape.type, .grain = shape.grain, .phase = shape.phase, .index = Index::bitmap});
    Sums sums(plan, shape.type, {0, 10, 1000, 500, 900, 1, 150});
    const std::vector<std::byte> expected = sums.expected();
    for (const std::uint64_t tiles : {16u, 32u, 64u}) {
      EXPECT_TRUE(sums.on_device(tiles) == expected) << "grain " << shape.grain << ", " << tiles << " tiles at a time";
    }
  }
}

}  // namespace
}  // namespace peel::testing
