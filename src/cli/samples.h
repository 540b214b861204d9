// Times of one thing that was done several times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace peel::cli {

class Samples {
 public:
  void add(double sample) { samples_.push_back(sample); }
  [[nodiscard]] double median() {
    if (samples_.empty()) return 0;
    const auto middle = samples_.begin() + static_cast<std::ptrdiff_t>(samples_.size() / 2);
    std::nth_element(samples_.begin(), middle, samples_.end());
    return *middle;
  }

 private:
  std::vector<double> samples_;
};

}  // namespace peel::cli
