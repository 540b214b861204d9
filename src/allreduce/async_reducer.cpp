#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "allreduce/drive.h"
#include "allreduce/history.h"
#include "peel/allreduce.h"
#include "peel/error.h"

namespace peel {

// One thread takes buckets in the order of submission and moves all that are under way, a step of each in turn. Buckets
// have channels of their own, so workers need not agree on which of them moves when.
class AsyncReducer::Impl {
 public:
  explicit Impl(Communicator& communicator) : communicator_(communicator), thread_([this] { work(); }) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  template <typename Make>
  std::future<Report> submit(State& state, ElementType type, Memory memory, Make make) {
    auto job = std::make_unique<Job>();
    job->state = &state;
    job->make = [this, &state, type, memory, make] {
      return make(detail::world_of(communicator_, state.options(), type, memory));
    };
    std::future<Report> future = job->promise.get_future();
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    changed_.notify_one();
    return future;
  }

 private:
  static constexpr std::size_t kBucketsInFlight = 4;

  struct Job {
    State* state = nullptr;
    std::function<std::unique_ptr<Exchange>()> make;
    std::promise<Report> promise;
    std::unique_ptr<Exchange> exchange;
    std::unique_ptr<detail::Drive> drive;
  };

  void work() {
    while (admit()) {
      bool moved = false;
      for (auto job = active_.begin(); job != active_.end();) {
        moved |= advance(**job);
        job = (*job)->drive == nullptr ? active_.erase(job) : std::next(job);
      }
      if (!moved && !active_.empty()) communicator_.relax();
    }
  }

  // Takes what was submitted, as far as there is room; waits while there is nothing to do. False: the end.
  bool admit() {
    std::unique_lock lock(mutex_);
    if (active_.empty()) changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    const std::size_t room = communicator_.interleaves() ? kBucketsInFlight : 1;
    while (!waiting_.empty() && active_.size() < room && !uses(waiting_.front()->state)) {
      active_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      lock.unlock();
      begin(*active_.back());
      lock.lock();
      if (active_.back()->drive == nullptr) active_.pop_back();
    }
    return !(closing_ && waiting_.empty() && active_.empty());
  }

  // A state serves one exchange at a time; the next one waits for it, on every worker alike.
  bool uses(const State* state) const {
    return std::any_of(active_.begin(), active_.end(), [&](const auto& job) { return job->state == state; });
  }

  void begin(Job& job) {
    try {
      job.exchange = job.make();
      if (job.exchange->finished()) return job.promise.set_value(job.exchange->report());
      job.drive = std::make_unique<detail::Drive>(communicator_, *job.exchange, communicator_.open_channel(),
                                                  job.state->options().timeout);
    } catch (...) {
      job.promise.set_exception(std::current_exception());
    }
  }

  bool advance(Job& job) {
    try {
      const bool moved = job.drive->advance();
      if (!job.drive->finished()) return moved;
      const Report report = job.exchange->report();
      job.drive.reset();
      job.exchange.reset();
      job.promise.set_value(report);
    } catch (...) {
      job.drive.reset();
      job.exchange.reset();
      job.promise.set_exception(std::current_exception());
    }
    return true;
  }

  Communicator& communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> waiting_;
  bool closing_ = false;
  std::list<std::unique_ptr<Job>> active_;  // of the thread alone
  std::thread thread_;
};

AsyncReducer::AsyncReducer(Communicator& communicator) : impl_(std::make_unique<Impl>(communicator)) {}
AsyncReducer::~AsyncReducer() = default;

std::future<Report> AsyncReducer::allreduce(Dense x, State& state) {
  return impl_->submit(state, x.type, x.memory,
                       [x, &state](const World& world) { return std::make_unique<Exchange>(state, world, x); });
}

std::future<Report> AsyncReducer::allreduce(ConstSparse x, Sparse& sum, State& state) {
  return impl_->submit(state, x.type, Memory::host, [x, &sum, &state](const World& world) {
    return std::make_unique<Exchange>(state, world, x, sum);
  });
}

}  // namespace peel
