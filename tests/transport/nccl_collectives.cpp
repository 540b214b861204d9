#include "nccl_collectives.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "nccl_channel.h"
#include "nccl_checks.h"
#include "nccl_world.h"

namespace peel::testing {
namespace {

using Kind = Collective::Kind;

template <typename T>
void fill_values(std::span<T> x, unsigned worker) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = value<T>(i, worker);
}

template <typename T>
bool is_sum_of_values(std::span<const T> x, unsigned workers) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!same(x[i], sum_of_values<T>(i, workers))) return false;
  }
  return true;
}

// ---- the collectives

// Lengths around nothing, an odd one, and several pieces.
constexpr std::array<std::size_t, 5> kLengths = {0, 1, 7, 4099, (std::size_t{9} << 20) / 4 + 3};

template <typename T>
void check_sum(Communicator& communicator, ElementType type) {
  Channel channel(communicator);
  for (const std::size_t length : kLengths) {
    std::vector<T> x(length);
    fill_values<T>(x, communicator.rank());
    Collective what{.kind = Kind::sum, .type = type, .data = std::as_writable_bytes(std::span(x))};
    channel.perform(what);
    expect(is_sum_of_values<T>(x, communicator.size()), communicator,
           "sum of " + std::to_string(length) + " " + std::string(name(type)));
  }
}

void check_sums(Communicator& communicator) {
  check_sum<float>(communicator, ElementType::float32);
  check_sum<double>(communicator, ElementType::float64);
  check_sum<float16>(communicator, ElementType::float16);
  check_sum<bfloat16>(communicator, ElementType::bfloat16);
  check_sum<std::int8_t>(communicator, ElementType::int8);
  check_sum<std::int16_t>(communicator, ElementType::int16);
  check_sum<std::int32_t>(communicator, ElementType::int32);
  check_sum<std::int64_t>(communicator, ElementType::int64);
}

std::uint64_t word(std::size_t i, unsigned worker) { return mix(i, worker) & mix(i, worker + 1000); }

void fill_words(std::span<std::uint64_t> x, unsigned worker) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = word(i, worker);
}

bool is_or_of_words(std::span<const std::uint64_t> x, unsigned workers) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint64_t all = 0;
    for (unsigned w = 0; w < workers; ++w) all |= word(i, w);
    if (x[i] != all) return false;
  }
  return true;
}

void check_or(Communicator& communicator) {
  Channel channel(communicator);
  for (const std::size_t length : {0, 1, 8, 513, 1023, 1025, 5001, (13 << 20) / 8 + 5}) {
    std::vector<std::uint64_t> x(length);
    fill_words(x, communicator.rank());
    Collective what{.kind = Kind::bit_or, .data = std::as_writable_bytes(std::span(x))};
    channel.perform(what);
    expect(is_or_of_words(x, communicator.size()), communicator, "OR of " + std::to_string(length) + " words");
  }
}

// What `from` sends to `to`; nothing for some pairs, several rounds for others.
constexpr std::size_t kLongestLetter = 16'777'217;

std::size_t letter_length(unsigned from, unsigned to, unsigned trial) {
  constexpr std::array<std::size_t, 7> kLetters = {0, 1, 100, 65'537, 3'000'001, 11'000'003, kLongestLetter};
  return kLetters[mix(from * 64 + to, trial) % (trial == 0 ? 4 : kLetters.size())];
}

std::vector<std::byte> letter(unsigned from, unsigned to, unsigned trial) {
  std::vector<std::byte> bytes(letter_length(from, to, trial));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + from * 7 + to + trial);
  return bytes;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void check_all_to_all(Communicator& communicator) {
  Channel channel(communicator);
  Collective what{.kind = Kind::all_to_all};
  for (unsigned trial = 0; trial < 5; ++trial) {
    std::vector<std::vector<std::byte>> letters;
    for (unsigned w = 0; w < communicator.size(); ++w) letters.push_back(letter(communicator.rank(), w, trial));
    what.send.assign(letters.begin(), letters.end());
    channel.perform(what);
    bool good = what.received.size() == communicator.size();
    for (unsigned w = 0; good && w < communicator.size(); ++w) {
      good = w == communicator.rank() || same_bytes(what.received[w], letter(w, communicator.rank(), trial));
    }
    expect(good, communicator, "all-to-all " + std::to_string(trial));
  }
}

void check_all_gather(Communicator& communicator) {
  Channel channel(communicator);
  Collective what{.kind = Kind::all_gather};
  for (unsigned trial = 0; trial < 5; ++trial) {
    const std::vector<std::byte> mine = letter(communicator.rank(), 63, trial);
    what.send.assign(1, mine);
    channel.perform(what);
    bool good = what.received.size() == communicator.size();
    for (unsigned w = 0; good && w < communicator.size(); ++w) {
      good = w == communicator.rank() || same_bytes(what.received[w], letter(w, 63, trial));
    }
    expect(good, communicator, "all-gather " + std::to_string(trial));
  }
}

// Tested from the last to the first: the order of tests must not matter.
void perform_together(Communicator& communicator, Channel& channel, const std::vector<Collective*>& all) {
  std::vector<std::unique_ptr<Operation>> operations;
  for (Collective* what : all) operations.push_back(channel.start(*what));
  while (!operations.empty()) {
    if (!operations.back()->test()) {
      communicator.relax();
    } else {
      operations.pop_back();
    }
  }
}

// Of every kind one.
void check_several_at_once(Communicator& communicator) {
  Channel channel(communicator);
  const unsigned rank = communicator.rank();
  std::vector<float> x(2'000'003);
  fill_values<float>(x, rank);
  std::vector<std::uint64_t> words(1'000'001);
  fill_words(words, rank);
  const std::vector<std::byte> mine = letter(rank, 63, 3);
  Collective sum{.kind = Kind::sum, .type = ElementType::float32, .data = std::as_writable_bytes(std::span(x))};
  Collective gather{.kind = Kind::all_gather, .send = {mine}};
  Collective bit_or{.kind = Kind::bit_or, .data = std::as_writable_bytes(std::span(words))};
  perform_together(communicator, channel, {&gather, &sum, &bit_or});
  bool good = is_sum_of_values<float>(x, communicator.size()) && is_or_of_words(words, communicator.size());
  for (unsigned w = 0; w < communicator.size(); ++w) {
    good &= w == rank || same_bytes(gather.received[w], letter(w, 63, 3));
  }
  expect(good, communicator, "several collectives at once");
}

// ---- the collectives on device memory

constexpr std::size_t kLarge = std::size_t{64} << 20;

template <typename T>
void check_device_sum(Communicator& communicator, Mirror& mirror, ElementType type) {
  Channel channel(communicator);
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{4099},
                                   kLarge / sizeof(T), kLarge / sizeof(T) / 2 + 3}) {
    mirror.clear();
    const Twins x = mirror.take(length * sizeof(T), length % 2 * sizeof(T));
    fill_values(elements_of<T>(x.host), communicator.rank());
    mirror.upload();
    Collective what{.kind = Kind::sum, .type = type, .data = x.device, .memory = Memory::device};
    channel.perform(what);
    mirror.download();
    const bool good = is_sum_of_values<T>(elements_of<T>(x.host), communicator.size()) && mirror.gaps_are_untouched();
    expect(good, communicator, "sum of " + std::to_string(length) + " " + std::string(name(type)) + " on the device");
  }
}

void check_device_sums(Communicator& communicator, Mirror& mirror) {
  check_device_sum<float>(communicator, mirror, ElementType::float32);
  check_device_sum<double>(communicator, mirror, ElementType::float64);
  check_device_sum<float16>(communicator, mirror, ElementType::float16);
  check_device_sum<bfloat16>(communicator, mirror, ElementType::bfloat16);
  check_device_sum<std::int8_t>(communicator, mirror, ElementType::int8);
  check_device_sum<std::int16_t>(communicator, mirror, ElementType::int16);
  check_device_sum<std::int32_t>(communicator, mirror, ElementType::int32);
  check_device_sum<std::int64_t>(communicator, mirror, ElementType::int64);
}

// Words with their scratch, filled on the host.
struct DeviceWords {
  DeviceWords(Communicator& communicator, Mirror& mirror, std::size_t length, std::size_t shift = 0)
      : words(mirror.take(length * sizeof(std::uint64_t), shift)),
        what{.kind = Kind::bit_or,
             .data = words.device,
             .memory = Memory::device,
             .scratch = mirror.take(or_scratch_bytes(words.device.size(), communicator.size()), shift).device} {
    fill_words(elements_of<std::uint64_t>(words.host), communicator.rank());
  }
  [[nodiscard]] bool good(unsigned workers) const {
    return is_or_of_words(elements_of<std::uint64_t>(words.host), workers);
  }

  Twins words;
  Collective what;
};

// Around the longest that goes whole (1024 words), in slices of the same and of different lengths, some of them empty;
// at a boundary of 16 bytes and between two.
void check_device_or(Communicator& communicator, Mirror& mirror) {
  Channel channel(communicator);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{513}, std::size_t{1023}, std::size_t{1024},
        std::size_t{1025}, std::size_t{1032}, std::size_t{5001}, std::size_t{30'720}, kLarge / 8, kLarge / 8 + 5}) {
    for (const std::size_t shift : {0, 8}) {
      mirror.clear();
      DeviceWords x(communicator, mirror, length, shift);
      mirror.upload();
      channel.perform(x.what);
      mirror.download();
      expect(x.good(communicator.size()) && mirror.gaps_are_untouched(), communicator,
             "OR of " + std::to_string(length) + " words on the device, shifted by " + std::to_string(shift));
    }
  }
}

// Letters of all to all, or one of each to everybody (to worker 63, so to say).
struct DeviceLetters {
  DeviceLetters(Kind kind, Communicator& communicator, Mirror& mirror, unsigned number)
      : rank(communicator.rank()), trial(number), what{.kind = kind, .memory = Memory::device} {
    const unsigned sent = gathers() ? 1 : communicator.size();
    for (unsigned w = 0; w < sent; ++w) {
      const std::vector<std::byte> bytes = letter(rank, gathers() ? 63 : w, trial);
      const Twins twins = mirror.take(bytes.size());
      std::copy(bytes.begin(), bytes.end(), twins.host.begin());
      what.send.push_back(twins.device);
    }
    for (unsigned w = 0; w < communicator.size(); ++w) {
      received.push_back(mirror.take(letter_length(w, gathers() ? 63 : rank, trial)));
      what.into.push_back(received.back().device);
    }
  }
  [[nodiscard]] bool gathers() const { return what.kind == Kind::all_gather; }
  [[nodiscard]] bool good() const {
    for (unsigned w = 0; w < received.size(); ++w) {
      const std::span<const std::byte> got = received[w].host;
      if (w == rank ? !Mirror::is_untouched(got) : !same_bytes(got, letter(w, gathers() ? 63 : rank, trial))) {
        return false;
      }
    }
    return true;
  }

  unsigned rank;
  unsigned trial;
  std::vector<Twins> received;
  Collective what;
};

void check_device_letters(Communicator& communicator, Mirror& mirror) {
  Channel channel(communicator);
  for (const Kind kind : {Kind::all_to_all, Kind::all_gather}) {
    for (unsigned trial = 0; trial < 8; ++trial) {
      mirror.clear();
      DeviceLetters letters(kind, communicator, mirror, trial);
      mirror.upload();
      channel.perform(letters.what);
      mirror.download();
      expect(letters.good() && mirror.gaps_are_untouched(), communicator,
             std::string(name(kind)) + " " + std::to_string(trial) + " on the device");
    }
  }
}

// Parts of equal length in two pieces, the own ones in their places.
void check_even_gather(Communicator& communicator, Mirror& mirror) {
  Channel channel(communicator);
  const unsigned workers = communicator.size();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{3} << 20}) {
    mirror.clear();
    const std::array<Twins, 2> all = {mirror.take(workers * bytes), mirror.take(workers * 5)};
    Collective what{.kind = Kind::all_gather, .memory = Memory::device, .even = true};
    const auto content = [](unsigned worker, std::size_t i) { return static_cast<std::byte>(worker * 31 + i * 7 + 1); };
    for (unsigned w = 0; w < workers; ++w) {
      what.into.push_back(all[0].device.subspan(w * bytes, bytes));
      what.into.push_back(all[1].device.subspan(w * std::size_t{5}, 5));
    }
    for (std::size_t p = 0; p < 2; ++p) {
      const std::size_t length = what.into[p].size();
      what.send.push_back(what.into[communicator.rank() * 2 + p]);
      for (std::size_t i = 0; i < length; ++i) {
        all[p].host[communicator.rank() * length + i] = content(communicator.rank(), i + p);
      }
    }
    mirror.upload();
    channel.perform(what);
    mirror.download();
    bool good = mirror.gaps_are_untouched();
    for (std::size_t p = 0; p < 2; ++p) {
      const std::size_t length = what.into[p].size();
      for (std::size_t i = 0; i < workers * length; ++i) {
        good = good && all[p].host[i] == content(static_cast<unsigned>(i / length), i % length + p);
      }
    }
    expect(good, communicator, "an even all_gather of " + std::to_string(bytes) + " bytes on the device");
  }
}

// More than there are slots, in both memories, begun back to back.
void check_both_memories_at_once(Communicator& communicator, Mirror& mirror) {
  const unsigned workers = communicator.size();
  Channel channel(communicator);
  mirror.clear();
  DeviceLetters gather(Kind::all_gather, communicator, mirror, 0);
  DeviceWords long_or(communicator, mirror, 300'001);
  DeviceWords short_or(communicator, mirror, 8);
  const Twins narrow = mirror.take(5'000'001 * sizeof(std::int16_t));  // five pieces
  const Twins floats = mirror.take(1'000'001 * sizeof(float));
  fill_values(elements_of<std::int16_t>(narrow.host), communicator.rank());
  fill_values(elements_of<float>(floats.host), communicator.rank());
  Collective narrow_sum{.kind = Kind::sum, .type = ElementType::int16, .data = narrow.device, .memory = Memory::device};
  Collective float_sum{
      .kind = Kind::sum, .type = ElementType::float32, .data = floats.device, .memory = Memory::device};

  std::vector<float> x(2'000'003);
  fill_values<float>(x, communicator.rank());
  std::vector<std::uint64_t> words(100'001);
  fill_words(words, communicator.rank());
  const std::vector<std::byte> mine = letter(communicator.rank(), 63, 3);
  Collective host_gather{.kind = Kind::all_gather, .send = {mine}};
  Collective host_sum{.kind = Kind::sum, .type = ElementType::float32, .data = std::as_writable_bytes(std::span(x))};
  Collective host_or{.kind = Kind::bit_or, .data = std::as_writable_bytes(std::span(words))};

  mirror.upload();
  perform_together(
      communicator, channel,
      {&gather.what, &host_gather, &long_or.what, &host_sum, &narrow_sum, &short_or.what, &host_or, &float_sum});
  mirror.download();
  bool good = gather.good() && long_or.good(workers) && short_or.good(workers) && mirror.gaps_are_untouched();
  good &= is_sum_of_values<std::int16_t>(elements_of<std::int16_t>(narrow.host), workers);
  good &= is_sum_of_values<float>(elements_of<float>(floats.host), workers);
  good &= is_sum_of_values<float>(x, workers) && is_or_of_words(words, workers);
  for (unsigned w = 0; w < workers; ++w) {
    good &= w == communicator.rank() || same_bytes(host_gather.received[w], letter(w, 63, 3));
  }
  expect(good, communicator, "both memories at once");
}

// The OR of a sum of an OR, on one array: each finds on the stream what the one before it left there.
void check_device_chain(Communicator& communicator, Mirror& mirror) {
  constexpr std::size_t kWords = 200'001;
  Channel channel(communicator);
  mirror.clear();
  DeviceWords x(communicator, mirror, kWords);
  Collective sum{.kind = Kind::sum, .type = ElementType::int64, .data = x.words.device, .memory = Memory::device};
  mirror.upload();
  for (Collective* what : {&x.what, &sum, &x.what}) channel.perform(*what);
  mirror.download();
  bool good = true;
  const std::span<const std::uint64_t> result = elements_of<std::uint64_t>(x.words.host);
  for (std::size_t i = 0; i < kWords; ++i) {
    std::uint64_t all = 0;
    for (unsigned w = 0; w < communicator.size(); ++w) all |= word(i, w);
    good &= result[i] == all * communicator.size();
  }
  expect(good && mirror.gaps_are_untouched(), communicator, "one after another on the device");
}

// ---- what is refused

// What is refused before anything moves breaks nothing: the checks that follow go on.
void check_device_arguments(Communicator& communicator, Mirror& mirror) {
  if (communicator.size() == 1) return;
  Channel channel(communicator);
  mirror.clear();
  DeviceWords x(communicator, mirror, 100);
  x.what.scratch = x.what.scratch.first(x.what.scratch.size() - 8);
  expect(code_of([&] { channel.perform(x.what); }) == ErrorCode::invalid_argument, communicator, "too little scratch");
  DeviceLetters letters(Kind::all_to_all, communicator, mirror, 0);
  letters.what.into.pop_back();
  expect(code_of([&] { channel.perform(letters.what); }) == ErrorCode::invalid_argument, communicator,
         "no place for a part");
  DeviceLetters uneven(Kind::all_gather, communicator, mirror, 0);
  uneven.what.even = true;
  expect(code_of([&] { channel.perform(uneven.what); }) == ErrorCode::invalid_argument, communicator,
         "parts that lie anywhere, called even");
}

}  // namespace

// A large array with its scratch, or a letter to and from everybody.
std::size_t mirror_bytes(unsigned workers) { return 3 * kLarge + workers * (2 * kLongestLetter + 4096); }

void check_collectives(Communicator& communicator, Mirror& mirror) {
  check_sums(communicator);
  check_or(communicator);
  check_all_to_all(communicator);
  check_all_gather(communicator);
  check_several_at_once(communicator);
  check_device_arguments(communicator, mirror);
  check_device_sums(communicator, mirror);
  check_device_or(communicator, mirror);
  check_device_letters(communicator, mirror);
  if (communicator.size() > 1) check_even_gather(communicator, mirror);
  check_both_memories_at_once(communicator, mirror);
  check_device_chain(communicator, mirror);
}

}  // namespace peel::testing
