// Which secrets let a worker into which jobs: those of the longest prefix that the job's name begins with. A prefix may
// have several at a time, so that one replaces another without a gap.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peel::aggregator {

using Secret = std::shared_ptr<const std::string>;

struct Tenant {
  std::string prefix;  // of job names; empty: of all that have no other
  std::string secret;
};

class Secrets {
 public:
  Secrets() = default;
  explicit Secrets(const std::vector<Tenant>& tenants);
  // One for all jobs.
  explicit Secrets(std::string secret) : Secrets(std::vector<Tenant>{{"", std::move(secret)}}) {}

  [[nodiscard]] std::vector<Secret> of(std::string_view job) const;
  // Whether one who has a secret of jobs that begin so may know of this one: it begins so, and is no other tenant's.
  // Whoever has the secret of all that have no other may know of all.
  [[nodiscard]] bool may_see(std::string_view beginning, std::string_view job) const;

 private:
  [[nodiscard]] std::string_view prefix_of(std::string_view job) const;

  struct Entry {
    std::string prefix;
    Secret secret;
  };
  std::vector<Entry> entries_;  // the longest prefix first
};

}  // namespace peel::aggregator
