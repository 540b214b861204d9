// The reference backend: scalar, readable, normative. Where another backend differs from this one, that one is wrong.
#pragma once

#include "codec/engine.h"

namespace peel::detail::reference {

void scan(const Geometry& g, const std::byte* x, SupportData& support);
void expand(const Geometry& g, const std::uint64_t* words, const std::byte* values, std::byte* x);

void bloom_insert(const Geometry& g, const std::uint64_t* words, std::uint64_t* rows);
void bloom_query(const Geometry& g, const std::uint64_t* rows, std::uint64_t* words);

bool fits(const Geometry& g, const SupportData& own);
bool pack(const Geometry& g, const SupportData& own, const std::uint64_t* words, std::byte* payload);
void unpack(const Geometry& g, const std::byte* payload, std::uint64_t counters, std::byte* values);

bool sketch(const Geometry& g, const SupportData& own, std::byte* payload);
Peeled peel(const Geometry& g, const std::uint64_t* words, const std::byte* payload, const PeelOptions& options,
            std::byte* values);

inline bool test_bit(const std::uint64_t* words, std::uint64_t i) { return (words[i / 64] >> (i % 64)) & 1; }
inline void set_bit(std::uint64_t* words, std::uint64_t i) { words[i / 64] |= std::uint64_t{1} << (i % 64); }

// The values of a support, one item after another, whatever segments they lie in.
class ValueReader {
 public:
  ValueReader(const Geometry& g, const SupportData& support)
      : segments_(support.segments), item_bytes_(g.grain * size_of(g.type)) {}

  template <typename T>
  const T* next() {
    while (done_ == segments_[segment_].items) {
      ++segment_;
      done_ = 0;
    }
    return reinterpret_cast<const T*>(segments_[segment_].values + item_bytes_ * done_++);
  }

 private:
  const std::vector<Segment>& segments_;
  std::size_t item_bytes_;
  std::size_t segment_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace peel::detail::reference
