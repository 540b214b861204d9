// A transport of the user's own: threads that add up on a board. It sums three types and ORs, and moves no buffers, as
// an aggregator that somebody has in a rack might.
#include <peel/peel.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

// What the workers have put together, by channel and number of the collective in it.
struct Board {
  struct Entry {
    std::vector<std::byte> combined;
    unsigned brought = 0;
    unsigned taken = 0;
  };
  std::mutex lock;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Entry> entries;
};

template <typename T>
void add(std::span<std::byte> into, std::span<const std::byte> from) {
  for (std::size_t at = 0; at + sizeof(T) <= into.size(); at += sizeof(T)) {
    T left, right;
    std::memcpy(&left, &into[at], sizeof(T));
    std::memcpy(&right, &from[at], sizeof(T));
    left += right;
    std::memcpy(&into[at], &left, sizeof(T));
  }
}

void combine(const peel::Collective& what, std::span<std::byte> into) {
  if (what.kind == peel::Collective::Kind::bit_or) {
    for (std::size_t at = 0; at < into.size(); ++at) into[at] |= what.data[at];
  } else if (what.type == peel::ElementType::float32) {
    add<float>(into, what.data);
  } else if (what.type == peel::ElementType::int32) {
    add<std::uint32_t>(into, what.data);
  } else {
    add<std::uint64_t>(into, what.data);
  }
}

class BoardOperation final : public peel::Operation {
 public:
  BoardOperation(Board& board, Board::Entry& entry, peel::Collective& what, unsigned size, Clock::time_point until)
      : board_(board), entry_(entry), what_(what), size_(size), until_(until) {}

  bool test() override {
    const std::lock_guard guard(board_.lock);
    if (entry_.brought < size_) {
      if (Clock::now() < until_) return false;
      throw peel::Error(peel::ErrorCode::timeout, "A worker brought nothing to the board; see what it does.");
    }
    std::memcpy(what_.data.data(), entry_.combined.data(), what_.data.size());
    if (++entry_.taken == size_) std::vector<std::byte>().swap(entry_.combined);
    return true;
  }

 private:
  Board& board_;
  Board::Entry& entry_;
  peel::Collective& what_;
  unsigned size_;
  Clock::time_point until_;
};

class BoardCommunicator final : public peel::Communicator {
 public:
  BoardCommunicator(Board& board, unsigned rank, unsigned size) : board_(board), rank_(rank), size_(size) {}

  [[nodiscard]] unsigned rank() const noexcept override { return rank_; }
  [[nodiscard]] unsigned size() const noexcept override { return size_; }
  [[nodiscard]] std::string_view transport() const noexcept override { return "board"; }
  [[nodiscard]] bool offers(peel::Collective::Kind kind, peel::ElementType type) const noexcept override {
    if (kind == peel::Collective::Kind::bit_or) return true;
    return kind == peel::Collective::Kind::sum &&
           (type == peel::ElementType::float32 || type == peel::ElementType::int32 || type == peel::ElementType::int64);
  }
  std::uint32_t open_channel() override { return channels_++; }
  void relax() override { std::this_thread::yield(); }

  [[nodiscard]] std::unique_ptr<peel::Operation> start(peel::Collective& what, std::uint32_t channel,
                                                       std::chrono::milliseconds timeout) override {
    if (!offers(what.kind, what.type) || what.memory != peel::Memory::host) {
      throw peel::Error(peel::ErrorCode::unsupported, "The board sums and ORs only; use packed, sketch or dense.");
    }
    const std::lock_guard guard(board_.lock);
    Board::Entry& entry = board_.entries[{channel, begun_[channel]++}];
    if (entry.brought++ == 0) {
      entry.combined.assign(what.data.begin(), what.data.end());
    } else {
      combine(what, entry.combined);
    }
    return std::make_unique<BoardOperation>(board_, entry, what, size_, Clock::now() + timeout);
  }

 private:
  Board& board_;
  unsigned rank_, size_;
  std::uint32_t channels_ = 0;
  std::map<std::uint32_t, std::uint32_t> begun_;  // collectives of each channel
};

constexpr unsigned kWorkers = 3;
constexpr std::size_t kElements = 100'000;

// Element i of worker w: few are not zero, and all sums are exact in any order.
float value(std::size_t i, unsigned worker, int step) {
  return i % 40 == worker || i % 1000 == 0 ? 0.25F * static_cast<float>(static_cast<int>(i % 64) + step) : 0;
}

std::string reduce(Board& board, unsigned rank, peel::Strategy strategy) {
  BoardCommunicator communicator(board, rank, kWorkers);
  peel::State state({.strategy = strategy, .timeout = std::chrono::seconds(30)});
  for (int step = 0; step < 4; ++step) {
    std::vector<float> x(kElements);
    for (std::size_t i = 0; i < kElements; ++i) x[i] = value(i, rank, step);
    const peel::Report report = peel::allreduce(communicator, x, state);
    if (report.strategy == peel::Strategy::split || report.strategy == peel::Strategy::gather) {
      return "a strategy was chosen that the board cannot do";
    }
    for (std::size_t i = 0; i < kElements; ++i) {
      float sum = 0;
      for (unsigned worker = 0; worker < kWorkers; ++worker) sum += value(i, worker, step);
      if (std::abs(x[i] - sum) > report.error_bound) return "a sum over the board is wrong";
    }
  }
  return "";
}

std::string reduce_together(peel::Strategy strategy) {
  Board board;
  std::vector<std::string> complaints(kWorkers);
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        complaints[rank] = reduce(board, rank, strategy);
      } catch (const std::exception& error) {
        complaints[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

// The other workers never come: the error is the transport's own, within the time-out.
std::string wait_in_vain() {
  Board board;
  BoardCommunicator communicator(board, 0, kWorkers);
  peel::State state({.link = peel::LinkFacts{}, .timeout = std::chrono::milliseconds(200)});
  std::vector<float> x(kElements, 1.0F);
  try {
    peel::allreduce(communicator, x, state);
  } catch (const peel::Error& error) {
    return error.code() == peel::ErrorCode::timeout ? "" : error.what();
  }
  return "a sum without workers was no error";
}

// What the board cannot do is refused in words, before anything waits.
std::string ask_too_much() {
  Board board;
  BoardCommunicator communicator(board, 0, 1);
  peel::State state({.strategy = peel::Strategy::split});
  std::vector<float> x(kElements, 1.0F);
  try {
    peel::allreduce(communicator, x, state);
  } catch (const peel::Error& error) {
    return std::string(error.what()).find("can only SUM and OR") != std::string::npos ? "" : error.what();
  }
  return "split over the board was no error";
}

}  // namespace

int main() {
  std::string complaints = wait_in_vain() + ask_too_much();
  for (const auto strategy :
       {peel::Strategy::automatic, peel::Strategy::dense, peel::Strategy::packed, peel::Strategy::sketch}) {
    complaints += reduce_together(strategy);
  }
  std::fputs(complaints.c_str(), stderr);
  return complaints.empty() ? 0 : 1;
}
