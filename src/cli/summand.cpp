#include "cli/summand.h"

#include <cstring>
#include <vector>

namespace peel::cli {
namespace {

// An array that is summed in place, and its first state to start from again.
class DenseSummand final : public Summand {
 public:
  DenseSummand(const Gradients& gradients, std::uint32_t worker)
      : gradients_(gradients), original_(gradients.dense_bytes()), x_(gradients.dense_bytes()) {
    gradients.fill_dense(worker, {original_.data(), gradients.elements(), gradients.type()});
  }

  void restore() override {
    if (x_.size() != 0) std::memcpy(x_.data(), original_.data(), x_.size());
  }
  Report reduce(Communicator& communicator, State& state) override { return allreduce(communicator, array(), state); }
  void reduce(const Baseline& baseline) override { baseline.dense(array()); }
  [[nodiscard]] Verdict check(const Reduced& reduced) override {
    return verify(gradients_, ConstDense(x_.data(), gradients_.elements(), gradients_.type()), reduced);
  }

 private:
  Dense array() { return {x_.data(), gradients_.elements(), gradients_.type()}; }

  const Gradients& gradients_;
  Buffer<std::byte> original_;
  Buffer<std::byte> x_;
};

// The same as rows, which are only read.
class SparseSummand final : public Summand {
 public:
  SparseSummand(const Gradients& gradients, std::uint32_t worker, Grain grain)
      : gradients_(gradients), grain_(grain), items_(gradients.items(worker, grain)) {
    gradients.fill_sparse(worker, grain, items_, values_);
    sum_.type = gradients.type();
  }

  void restore() override {
    sum_.items.clear();
    sum_.values.clear();
  }
  Report reduce(Communicator& communicator, State& state) override {
    return allreduce(communicator, rows(), sum_, state);
  }
  void reduce(const Baseline& baseline) override { baseline.sparse(rows(), grain_.size, sum_); }
  [[nodiscard]] Verdict check(const Reduced& reduced) override { return verify(gradients_, sum_, reduced); }

 private:
  [[nodiscard]] ConstSparse rows() const { return {items_, values_.data(), sum_.type}; }

  const Gradients& gradients_;
  Grain grain_;
  std::vector<std::uint64_t> items_;
  Buffer<std::byte> values_;
  Sparse sum_;
};

}  // namespace

std::unique_ptr<Summand> make_dense_summand(const Gradients& gradients, std::uint32_t worker) {
  return std::make_unique<DenseSummand>(gradients, worker);
}
std::unique_ptr<Summand> make_sparse_summand(const Gradients& gradients, std::uint32_t worker, Grain grain) {
  return std::make_unique<SparseSummand>(gradients, worker, grain);
}

}  // namespace peel::cli
