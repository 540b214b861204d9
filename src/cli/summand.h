// One worker's gradient in a contest: it is summed again and again, each time from its first state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/gradients.h"
#include "cli/verify.h"
#include "peel/allreduce.h"

namespace peel::cli {

// A way to sum that needs nothing of this library: one of the two functions, as the view is.
struct Baseline {
  using SumSparse = std::function<void(ConstSparse x, std::uint32_t grain, Sparse& sum)>;
  std::string name;
  std::function<void(Dense x)> dense = {};
  SumSparse sparse = {};
};

class Summand {
 public:
  virtual ~Summand() = default;
  virtual void restore() = 0;  // complete when it returns
  // Both return when the sum is there.
  virtual Report reduce(Communicator& communicator, State& state) = 0;
  virtual void reduce(const Baseline& baseline) = 0;
  [[nodiscard]] virtual Verdict check(const Reduced& reduced) = 0;
};

// In host memory. `gradients` must outlive them.
std::unique_ptr<Summand> make_dense_summand(const Gradients& gradients, std::uint32_t worker);
std::unique_ptr<Summand> make_sparse_summand(const Gradients& gradients, std::uint32_t worker, Grain grain);

}  // namespace peel::cli
