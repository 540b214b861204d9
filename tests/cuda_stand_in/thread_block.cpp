// The threads of a block are fibers that take turns. A fiber runs until it meets others (a barrier, a collective of its
// warp) and not all have come; then another one goes on. Which one is drawn by chance, so code that lacks a barrier is
// found out: between two barriers a thread may run to the end before another begins.
//
// A lane is in one of these states: ready (a bit of Warp::ready), running, waiting for a meeting of its warp
// (Warp::meetings), coalescing (Warp::coalescing), waiting for the block, or gone (no bit of Warp::live).
#include "thread_block.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "chance.h"
#include "fiber.h"
#include "stand_in/threads.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace stand_in {

const char* running_kernel = nullptr;

namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kMostThreads = 1024;
constexpr int kGarbage = 0xB5;

struct Lane {
  std::unique_ptr<Fiber> fiber;
  uint3 index{};
  std::uint64_t value = 0;
  std::uint64_t result = 0;
  unsigned argument = 0;
  unsigned width = kLanes;
  Meeting kind = Meeting::sync;
  Where where;  // it waits
};

// Lanes that came to one collective, until all have.
struct WarpMeeting {
  unsigned mask;
  unsigned arrived;
  Meeting kind;
};

struct Warp {
  unsigned live = 0;
  unsigned ready = 0;
  unsigned coalescing = 0;
  unsigned turn = 0;  // the lane that is looked at first
  unsigned meeting_count = 0;
  WarpMeeting meetings[kLanes];
};

const char* name_of(Meeting kind) {
  switch (kind) {
    case Meeting::sync:
      return "__syncwarp";
    case Meeting::shuffle:
    case Meeting::shuffle_up:
    case Meeting::shuffle_down:
    case Meeting::shuffle_xor:
      return "a shuffle";
    case Meeting::ballot:
      return "a ballot";
    case Meeting::coalesce:
      return "coalesced_threads";
    case Meeting::block:
      return "__syncthreads";
    default:
      return "a reduction or vote of its warp";
  }
}

class ThreadBlock {
 public:
  std::string run(const Grid& grid, const std::function<void()>& body);

  std::uint64_t meet_lanes(Meeting kind, unsigned mask, std::uint64_t value, unsigned argument, unsigned width,
                           const Where& where);
  BlockVote meet_block(bool vote, const Where& where);
  unsigned coalesce(const Where& where);
  void maybe_pause() {
    if (--until_pause_ != 0) return;
    until_pause_ = 1 + chance_.below(512);
    warps_[current_ / kLanes].ready |= 1u << (current_ % kLanes);
    ready_warps_ |= 1u << (current_ / kLanes);
    stay_ = 1;
    go_on();
  }
  void note_wait() { ++waited_; }
  void begin_shared(void* variable, std::size_t bytes, std::uint64_t& block_seen) {
    if (block_seen == serial_) return;
    block_seen = serial_;
    static_shared_ += bytes;
    if (static_shared_ > kMostStatic) refuse("its shared variables take more than 48 KiB", Where::current());
    std::memset(variable, kGarbage, bytes);
  }
  [[nodiscard]] void* dynamic_shared() const { return shared_; }
  [[noreturn]] void refuse(const std::string& why, const Where& where);
  std::uint64_t clock_ns() { return clock_ns_ += 5000; }

 private:
  static constexpr std::size_t kMostStatic = std::size_t{48} << 10;

  static void run_thread(void* lane);
  void begin_block(unsigned threads);
  void leave();
  void go_on();
  void switch_to(unsigned thread);
  unsigned choose();
  void complete(Warp& warp, unsigned first, const WarpMeeting& meeting);
  void complete_block();
  std::string describe_waiting() const;

  std::vector<Lane> lanes_;
  Warp warps_[kMostThreads / kLanes];
  Fiber main_;
  const std::function<void()>* body_ = nullptr;
  Chance chance_{1};
  std::string failure_;
  void* shared_ = nullptr;
  std::uint64_t serial_ = 0;  // of the block that runs, in the life of the program
  std::size_t static_shared_ = 0;
  std::uint64_t clock_ns_ = 0;
  unsigned threads_ = 0;
  unsigned live_ = 0;
  unsigned waited_ = 0;
  unsigned current_ = 0;      // the thread that runs
  unsigned ready_warps_ = 0;  // a bit for each warp with ready lanes
  unsigned stay_ = 1;         // so many more choices from the same warp
  unsigned until_pause_ = 100;
  unsigned at_barrier_ = 0;
  unsigned votes_ = 0;
  BlockVote result_{};
};

ThreadBlock& block() {
  static auto* one = new ThreadBlock;  // its fibers outlive whatever ends the program
  return *one;
}

void ThreadBlock::run_thread(void* lane) {
  (void)lane;
  for (;;) {
    (*block().body_)();
    block().leave();
  }
}

void ThreadBlock::begin_block(unsigned threads) {
  while (lanes_.size() < threads) {
    Lane lane;
    lane.fiber = std::make_unique<Fiber>(run_thread, nullptr);
    lanes_.push_back(std::move(lane));
  }
  for (unsigned t = 0; t < threads; ++t) {
    lanes_[t].index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
  }
  threads_ = live_ = threads;
  at_barrier_ = votes_ = waited_ = 0;
  static_shared_ = 0;
  ready_warps_ = 0;
  for (unsigned w = 0; w * kLanes < threads; ++w) {
    const unsigned count = std::min(threads - w * kLanes, kLanes);
    Warp& warp = warps_[w];
    warp.live = warp.ready = count == kLanes ? ~0u : (1u << count) - 1;
    warp.coalescing = 0;
    warp.meeting_count = 0;
    warp.turn = chance_.below(kLanes);
    ready_warps_ |= 1u << w;
  }
  stay_ = 1;
}

std::string ThreadBlock::run(const Grid& grid, const std::function<void()>& body) {
  body_ = &body;
  failure_.clear();
  blockDim = grid.threads;
  gridDim = grid.blocks;
  running_kernel = nullptr;
  const unsigned threads = grid.threads.x * grid.threads.y * grid.threads.z;
  // Exactly as long as was asked for: what lies behind is the sanitizer's.
  void* shared = nullptr;
  if (grid.shared != 0 && posix_memalign(&shared, 128, grid.shared) != 0) return "there is no memory for shared memory";
  shared_ = shared;

  const std::uint64_t blocks = std::uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  // One-to-one on numbers below `blocks`: steps that have no divisor in common with it, from anywhere.
  const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, 0x7FFFFFFF));
  std::uint64_t step = 1 + chance_.below(end);
  while (std::gcd(step, blocks) != 1) ++step;
  std::uint64_t at = chance_.below(end);
  for (std::uint64_t i = 0; i < blocks && failure_.empty(); ++i, at = (at + step) % blocks) {
    blockIdx = {static_cast<unsigned>(at % grid.blocks.x), static_cast<unsigned>(at / grid.blocks.x % grid.blocks.y),
                static_cast<unsigned>(at / grid.blocks.x / grid.blocks.y)};
    ++serial_;
    if (shared != nullptr) std::memset(shared, kGarbage, grid.shared);
    begin_block(threads);
    const unsigned first = choose();
    current_ = first;
    threadIdx = lanes_[first].index;
    Fiber::switch_to(main_, *lanes_[first].fiber);
    if (failure_.empty() && grid.early && waited_ != threads) {
      failure_ = "it was launched early, but not all its threads wait for the grid ahead";
    }
  }
  std::free(shared);
  shared_ = nullptr;
  if (failure_.empty()) return {};
  if (live_ != 0) {
    for (Lane& lane : lanes_) lane.fiber->restart();
  }
  return std::string(running_kernel == nullptr ? "a kernel" : running_kernel) + ", block " +
         std::to_string(blockIdx.x) + ": " + failure_;
}

// ---- taking turns

// A lane that may go on; it is no longer among the ready ones. There must be one.
unsigned ThreadBlock::choose() {
  unsigned w = current_ / kLanes;
  if (--stay_ == 0 || warps_[w].ready == 0 || w * kLanes >= threads_) {
    stay_ = 16 + chance_.below(256);
    const unsigned shift = chance_.below(kLanes);
    w = (static_cast<unsigned>(std::countr_zero(std::rotr(ready_warps_, static_cast<int>(shift)))) + shift) % kLanes;
  }
  Warp& warp = warps_[w];
  const unsigned from = warp.turn;
  const unsigned lane =
      (static_cast<unsigned>(std::countr_zero(std::rotr(warp.ready, static_cast<int>(from)))) + from) % kLanes;
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << w);
  return w * kLanes + lane;
}

void ThreadBlock::switch_to(unsigned thread) {
  const unsigned own = current_;
  if (thread == own) return;
  current_ = thread;
  threadIdx = lanes_[thread].index;
  Fiber::switch_to(*lanes_[own].fiber, *lanes_[thread].fiber);
}

// The running thread waits, is ready again or has gone: somebody else goes on.
void ThreadBlock::go_on() {
  Warp& own = warps_[current_ / kLanes];
  if (own.ready == 0 && own.coalescing != 0) {
    // All others of the warp are held up, so these are together.
    for (unsigned rest = own.coalescing; rest != 0; rest &= rest - 1) {
      const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
      lanes_[current_ / kLanes * kLanes + lane].result = own.coalescing;
    }
    own.ready = own.coalescing;
    own.coalescing = 0;
    ready_warps_ |= 1u << (current_ / kLanes);
  }
  if (ready_warps_ != 0) return switch_to(choose());
  if (live_ != 0) failure_ = "its threads wait for each other for ever:" + describe_waiting();
  Fiber::switch_to(*lanes_[current_].fiber, main_);
}

void ThreadBlock::leave() {
  const unsigned bit = 1u << (current_ % kLanes);
  Warp& warp = warps_[current_ / kLanes];
  warp.live &= ~bit;
  --live_;
  for (unsigned m = 0; m < warp.meeting_count;) {
    const WarpMeeting meeting = warp.meetings[m];
    if (meeting.arrived != (meeting.mask & warp.live)) {
      ++m;
      continue;
    }
    warp.meetings[m] = warp.meetings[--warp.meeting_count];
    complete(warp, current_ / kLanes * kLanes, meeting);
    warp.ready |= meeting.arrived;
    ready_warps_ |= 1u << (current_ / kLanes);
  }
  if (live_ != 0 && at_barrier_ == live_) complete_block();
  go_on();
}

// ---- meetings

void ThreadBlock::complete(Warp& warp, unsigned first, const WarpMeeting& meeting) {
  Lane* const lanes = lanes_.data() + first;
  const unsigned here = meeting.arrived;
  warp.turn = chance_.below(kLanes);
  std::uint64_t all = 0;
  switch (meeting.kind) {
    case Meeting::sync:
      return;
    case Meeting::shuffle:
    case Meeting::shuffle_up:
    case Meeting::shuffle_down:
    case Meeting::shuffle_xor:
      for (unsigned rest = here; rest != 0; rest &= rest - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(rest));
        Lane& own = lanes[lane];
        const unsigned base = lane & ~(own.width - 1);
        const unsigned within = lane - base;
        unsigned from = own.argument & (own.width - 1);
        if (meeting.kind == Meeting::shuffle_up) from = own.argument <= within ? within - own.argument : within;
        if (meeting.kind == Meeting::shuffle_down) {
          from = within + own.argument < own.width ? within + own.argument : within;
        }
        if (meeting.kind == Meeting::shuffle_xor) from = within ^ own.argument;
        // CUDA leaves open what a lane gets that asks one that is not there.
        own.result = (here >> (base + from) & 1) != 0 ? lanes[base + from].value : 0xBADBADBADBADBADBull;
      }
      return;
    case Meeting::ballot:
      for (unsigned rest = here; rest != 0; rest &= rest - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(rest));
        all |= lanes[lane].value << lane;
      }
      break;
    default:
      all = lanes[std::countr_zero(here)].value;
      for (unsigned rest = here & (here - 1); rest != 0; rest &= rest - 1) {
        const std::uint64_t value = lanes[std::countr_zero(rest)].value;
        if (meeting.kind == Meeting::add) all += value;
        if (meeting.kind == Meeting::least) all = std::min(all, value);
        if (meeting.kind == Meeting::most) all = std::max(all, value);
        if (meeting.kind == Meeting::all_bits) all &= value;
        if (meeting.kind == Meeting::any_bits) all |= value;
      }
  }
  for (unsigned rest = here; rest != 0; rest &= rest - 1) lanes[std::countr_zero(rest)].result = all;
}

std::uint64_t ThreadBlock::meet_lanes(Meeting kind, unsigned mask, std::uint64_t value, unsigned argument,
                                      unsigned width, const Where& where) {
  const unsigned bit = 1u << (current_ % kLanes);
  Warp& warp = warps_[current_ / kLanes];
  Lane& own = lanes_[current_];
  own.value = value;
  own.argument = argument;
  own.width = width;
  own.kind = kind;
  own.where = where;
  if ((mask & bit) == 0) refuse("a lane is not in the mask it gives", where);
  WarpMeeting* meeting = nullptr;
  for (unsigned m = 0; m < warp.meeting_count && meeting == nullptr; ++m) {
    if (warp.meetings[m].mask == mask) meeting = warp.meetings + m;
  }
  if (meeting == nullptr) {
    meeting = warp.meetings + warp.meeting_count++;
    *meeting = {mask, 0, kind};
  } else if (meeting->kind != kind) {
    refuse("lanes of a warp meet in different collectives:" + describe_waiting(), where);
  }
  meeting->arrived |= bit;
  if (meeting->arrived != (mask & warp.live)) {
    go_on();
    return own.result;
  }
  const WarpMeeting done = *meeting;
  *meeting = warp.meetings[--warp.meeting_count];
  complete(warp, current_ / kLanes * kLanes, done);
  warp.ready |= done.arrived & ~bit;
  if (warp.ready != 0) ready_warps_ |= 1u << (current_ / kLanes);
  return own.result;
}

void ThreadBlock::complete_block() {
  result_ = {votes_ != 0, votes_ == at_barrier_, votes_};
  at_barrier_ = votes_ = 0;
  for (unsigned w = 0; w * kLanes < threads_; ++w) {
    warps_[w].ready = warps_[w].live;
    warps_[w].turn = chance_.below(kLanes);
    if (warps_[w].live != 0) ready_warps_ |= 1u << w;
  }
  stay_ = 1;
}

BlockVote ThreadBlock::meet_block(bool vote, const Where& where) {
  Lane& own = lanes_[current_];
  own.kind = Meeting::block;
  own.where = where;
  ++at_barrier_;
  votes_ += vote;
  if (at_barrier_ == live_) complete_block();
  go_on();
  return result_;
}

unsigned ThreadBlock::coalesce(const Where& where) {
  Lane& own = lanes_[current_];
  own.kind = Meeting::coalesce;
  own.where = where;
  if (chance_.below(16) == 0) return 1u << (current_ % kLanes);  // it came by itself
  warps_[current_ / kLanes].coalescing |= 1u << (current_ % kLanes);
  go_on();
  return static_cast<unsigned>(own.result);
}

// ---- what went wrong

std::string ThreadBlock::describe_waiting() const {
  struct Place {
    unsigned threads = 0;
    unsigned first = 0;
  };
  std::map<std::string, Place> places;
  for (unsigned t = 0; t < threads_; ++t) {
    const Warp& warp = warps_[t / kLanes];
    const unsigned bit = 1u << (t % kLanes);
    if ((warp.live & bit) == 0 || (warp.ready & bit) != 0) continue;
    const Lane& lane = lanes_[t];
    Place& place = places[std::string(name_of(lane.kind)) + " at " + lane.where.file_name() + ":" +
                          std::to_string(lane.where.line())];
    if (place.threads++ == 0) place.first = t;
  }
  std::string text;
  unsigned listed = 0;
  for (const auto& [name, place] : places) {
    if (++listed > 8) return text + "\n  ...";
    text += "\n  " + std::to_string(place.threads) + " threads, the first of them " + std::to_string(place.first) +
            ", in " + name;
  }
  return text;
}

void ThreadBlock::refuse(const std::string& why, const Where& where) {
  failure_ =
      why + ", thread " + std::to_string(current_) + " at " + where.file_name() + ":" + std::to_string(where.line());
  Fiber::switch_to(*lanes_[current_].fiber, main_);
  std::abort();  // nobody goes on with a block that failed
}

}  // namespace

std::string run_grid(const Grid& grid, const std::function<void()>& body) { return block().run(grid, body); }

std::uint64_t meet_lanes(Meeting kind, unsigned mask, std::uint64_t value, unsigned argument, unsigned width,
                         const Where& where) {
  return block().meet_lanes(kind, mask, value, argument, width, where);
}
BlockVote meet_block(bool vote, const Where& where) { return block().meet_block(vote, where); }
unsigned coalesce_lanes(const Where& where) { return block().coalesce(where); }
void maybe_pause() { block().maybe_pause(); }
void await_grid_ahead() { block().note_wait(); }
std::uint64_t device_clock_ns() { return block().clock_ns(); }
void begin_shared(void* variable, std::size_t bytes, std::uint64_t& block_seen) {
  block().begin_shared(variable, bytes, block_seen);
}
void* dynamic_shared() { return block().dynamic_shared(); }
void refuse_thread(const char* why, const Where& where) { block().refuse(why, where); }

}  // namespace stand_in
