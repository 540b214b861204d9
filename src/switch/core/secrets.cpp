#include "switch/core/secrets.h"

#include <algorithm>

namespace peel::aggregator {

Secrets::Secrets(const std::vector<Tenant>& tenants) {
  for (const Tenant& one : tenants) entries_.push_back({one.prefix, std::make_shared<const std::string>(one.secret)});
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.prefix.size() > b.prefix.size(); });
}

std::string_view Secrets::prefix_of(std::string_view job) const {
  const auto longest =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return job.starts_with(entry.prefix); });
  return longest == entries_.end() ? std::string_view() : longest->prefix;
}

std::vector<Secret> Secrets::of(std::string_view job) const {
  const std::string_view prefix = prefix_of(job);
  std::vector<Secret> found;
  for (const Entry& entry : entries_) {
    if (entry.prefix == prefix) found.push_back(entry.secret);
  }
  return found;
}

bool Secrets::may_see(std::string_view beginning, std::string_view job) const {
  const std::string_view tenant = prefix_of(beginning);
  return job.starts_with(beginning) && (tenant.empty() || prefix_of(job) == tenant);
}

}  // namespace peel::aggregator
