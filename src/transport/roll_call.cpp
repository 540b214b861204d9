#include "transport/roll_call.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "transport/point_to_point.h"

namespace peel::detail {
namespace {

using std::chrono::steady_clock;

enum class Kind : std::uint32_t {
  question,  // are you there?
  answer,    // yes, and I wait for these: ranks of 4 bytes
  farewell,  // I give up: a sentence
};

struct Header {
  Kind kind = Kind::question;
  std::uint32_t number = 0;  // of the call; of a farewell: its error code
};

// A note is one small message whatever happens.
constexpr std::size_t kLongestBody = 4000;
constexpr std::chrono::milliseconds kBetweenLooks{5};
// For how long farewells are pushed out. Those who live take them at once.
constexpr std::chrono::milliseconds kFarewell{100};

constexpr std::string_view kRelayed = " noticed it first.";

Block write(PointToPoint& link, const Header& header, std::span<const std::byte> body) {
  const std::size_t length = std::min(body.size(), kLongestBody);
  Block note = link.take(sizeof(header) + length);
  std::memcpy(note->data(), &header, sizeof(header));
  if (length != 0) std::memcpy(note->data() + sizeof(header), body.data(), length);
  return note;
}

template <typename Each>
void for_others(const PointToPoint& link, Each each) {
  for (unsigned step = 1; step < link.size(); ++step) each((link.rank() + step) % link.size());
}

Error read_farewell(unsigned sender, const Header& header, std::span<const std::byte> body) {
  const bool known = header.number <= static_cast<std::uint32_t>(ErrorCode::transport);
  return relayed(sender, {known ? static_cast<ErrorCode>(header.number) : ErrorCode::transport,
                          std::string(reinterpret_cast<const char*>(body.data()), body.size())});
}

}  // namespace

Error relayed(unsigned sender, const Error& why) {
  const std::string sentence = why.what();
  if (sentence.ends_with(kRelayed)) return why;
  return {why.code(), sentence + " Worker " + std::to_string(sender) + std::string(kRelayed)};
}

std::vector<unsigned> Answers::silent(unsigned rank, const std::vector<unsigned>& awaited) const {
  const auto answered = [&](unsigned worker) { return worker == rank || awaited_[worker].has_value(); };
  std::vector<bool> seen(awaited_.size(), false);
  std::vector<unsigned> front = awaited;
  while (!front.empty()) {
    std::vector<unsigned> gone;
    std::vector<unsigned> next;
    for (const unsigned worker : front) {
      if (worker >= awaited_.size() || seen[worker]) continue;
      seen[worker] = true;
      if (!answered(worker)) gone.push_back(worker);
      if (awaited_[worker]) next.insert(next.end(), awaited_[worker]->begin(), awaited_[worker]->end());
    }
    if (!gone.empty()) return gone;
    front = std::move(next);
  }
  std::vector<unsigned> rest;
  for (unsigned worker = 0; worker < awaited_.size(); ++worker) {
    if (!answered(worker)) rest.push_back(worker);
  }
  return rest;
}

std::shared_ptr<const Answers> RollCall::call(PointToPoint& link) {
  auto answers = std::make_shared<Answers>(link.size());
  Header header{.kind = Kind::question};
  {
    const std::lock_guard lock(mutex_);
    header.number = ++calls_;
    std::erase_if(open_, [](const auto& one) { return one.second.expired(); });
    open_[header.number] = answers;
  }
  for_others(link, [&](unsigned peer) { (void)link.send_note(peer, write(link, header, {})); });
  return answers;
}

bool RollCall::due() noexcept {
  const steady_clock::duration now = steady_clock::now().time_since_epoch();
  steady_clock::duration last = listened_.load(std::memory_order_relaxed);
  return now - last >= kBetweenLooks && listened_.compare_exchange_strong(last, now, std::memory_order_relaxed);
}

std::vector<unsigned> RollCall::silent(const Answers& answers, unsigned rank, const std::vector<unsigned>& awaited) {
  const std::lock_guard lock(mutex_);
  return answers.silent(rank, awaited);
}

void RollCall::listen(PointToPoint& link, const std::vector<unsigned>& awaited) {
  while (const std::optional<Note> note = link.take_note()) {
    const std::span<const std::byte> text(note->text->data(), note->text->size());
    Header header;
    if (text.size() < sizeof(header)) continue;
    std::memcpy(&header, text.data(), sizeof(header));
    const std::span<const std::byte> body = text.subspan(sizeof(header));
    if (header.kind == Kind::question) {
      const Header answer{.kind = Kind::answer, .number = header.number};
      (void)link.send_note(note->sender, write(link, answer, std::as_bytes(std::span(awaited))));
    } else if (header.kind == Kind::answer) {
      take_answer(note->sender, header.number, body);
    } else {
      {
        const std::lock_guard lock(mutex_);
        told_ = true;
      }
      throw read_farewell(note->sender, header, body);
    }
  }
}

void RollCall::take_answer(unsigned sender, std::uint32_t call, std::span<const std::byte> body) {
  std::vector<unsigned> awaited(body.size() / sizeof(unsigned));
  if (!awaited.empty()) std::memcpy(awaited.data(), body.data(), awaited.size() * sizeof(unsigned));
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(call);
  if (found == open_.end()) return;
  if (const std::shared_ptr<Answers> answers = found->second.lock()) answers->add(sender, std::move(awaited));
}

void RollCall::give_up(PointToPoint& link, const Error& why) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(told_, true)) return;
    }
    link.refuse_wrong_thread();
    const std::string_view sentence = why.what();
    const Header header{.kind = Kind::farewell, .number = static_cast<std::uint32_t>(why.code())};
    std::vector<Ticket> farewells;
    for_others(link, [&](unsigned peer) {
      farewells.push_back(link.send_note(peer, write(link, header, std::as_bytes(std::span(sentence)))));
    });
    const auto left = [](const Ticket& note) { return note->done.load(std::memory_order_acquire); };
    const steady_clock::time_point end = steady_clock::now() + kFarewell;
    while (!std::all_of(farewells.begin(), farewells.end(), left) && steady_clock::now() < end) {
      link.progress();
      link.relax();
    }
  } catch (const std::exception&) {  // the others have time-outs of their own
  }
}

}  // namespace peel::detail
