// The module mpi: workers as processes under mpirun, and what MPI itself does for the same sum.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "cli/failure.h"
#include "cli/mpi_workers.h"
#include "cli/row_sum.h"
#include "peel/mpi.h"

namespace peel::cli {
namespace {

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Failure(fmt::format("{} failed; see what mpirun says", call));
}

int narrow(std::uint64_t count) {
  if (count <= static_cast<std::uint64_t>(std::numeric_limits<int>::max())) return static_cast<int>(count);
  throw Failure("MPI counts up to 2^31 - 1 elements; use fewer with --elements");
}

// Open MPI's default for an array of some size is not its best one: at 1 gbit its ring is up to 1.7 times as fast.
// Which algorithm it takes is a variable of its tool interface, read whenever a communicator is made; but only where it
// was told before MPI_Init that rules may change.
class AllreduceAlgorithm {
 public:
  static void allow_changes() { setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0); }

  AllreduceAlgorithm() {
    int provided = 0;
    check(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), "MPI_T_init_thread");
  }
  ~AllreduceAlgorithm() { MPI_T_finalize(); }
  AllreduceAlgorithm(const AllreduceAlgorithm&) = delete;
  AllreduceAlgorithm& operator=(const AllreduceAlgorithm&) = delete;

  // False where there is no such variable: not Open MPI.
  bool set(int algorithm) {
    int index = 0;
    if (MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) != MPI_SUCCESS) return false;
    MPI_T_cvar_handle handle = nullptr;
    int count = 0;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return false;
    const bool done = count == 1 && MPI_T_cvar_write(handle, &algorithm) == MPI_SUCCESS;
    MPI_T_cvar_handle_free(&handle);
    return done;
  }
};
constexpr int kDefault = 0;
constexpr int kRing = 4;

// MPI_DATATYPE_NULL where MPI has none.
MPI_Datatype type_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return MPI_FLOAT;
    case ElementType::float64:
      return MPI_DOUBLE;
    case ElementType::int8:
      return MPI_INT8_T;
    case ElementType::int16:
      return MPI_INT16_T;
    case ElementType::int32:
      return MPI_INT32_T;
    case ElementType::int64:
      return MPI_INT64_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

Baseline allreduce_over(MPI_Comm communicator, const std::string& name) {
  return {.name = name, .dense = [communicator](Dense x) {
            check(MPI_Allreduce(MPI_IN_PLACE, x.data, narrow(x.size), type_of(x.type), MPI_SUM, communicator),
                  "MPI_Allreduce");
          }};
}

// Everybody's rows, one worker after another.
class Rows {
 public:
  Rows(MPI_Comm communicator, ConstSparse mine, std::uint32_t grain) : grain_(grain), type_(mine.type) {
    gather_counts(communicator, narrow(mine.items.size()));
    items_.resize(static_cast<std::size_t>(offsets_.back()));
    values_.resize(items_.size() * grain_ * size_of(type_));
    check(MPI_Allgatherv(mine.items.data(), narrow(mine.items.size()), MPI_UINT64_T, items_.data(), counts_.data(),
                         offsets_.data(), MPI_UINT64_T, communicator),
          "MPI_Allgatherv");
    MPI_Datatype row = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(narrow(grain_ * size_of(type_)), MPI_BYTE, &row), "MPI_Type_contiguous");
    check(MPI_Type_commit(&row), "MPI_Type_commit");
    check(MPI_Allgatherv(mine.values, narrow(mine.items.size()), row, values_.data(), counts_.data(), offsets_.data(),
                         row, communicator),
          "MPI_Allgatherv");
    MPI_Type_free(&row);
  }

  void add(Sparse& sum) const {
    std::vector<ConstSparse> parts;
    for (std::size_t worker = 0; worker < counts_.size(); ++worker) {
      const auto begin = static_cast<std::size_t>(offsets_[worker]);
      parts.emplace_back(
          std::span<const std::uint64_t>(items_).subspan(begin, static_cast<std::size_t>(counts_[worker])),
          values_.data() + begin * grain_ * size_of(type_), type_);
    }
    add_rows(parts, grain_, sum);
  }

 private:
  void gather_counts(MPI_Comm communicator, int mine) {
    int workers = 0;
    check(MPI_Comm_size(communicator, &workers), "MPI_Comm_size");
    counts_.resize(static_cast<std::size_t>(workers));
    check(MPI_Allgather(&mine, 1, MPI_INT, counts_.data(), 1, MPI_INT, communicator), "MPI_Allgather");
    offsets_.push_back(0);
    std::uint64_t total = 0;
    for (const int count : counts_) offsets_.push_back(narrow(total += static_cast<std::uint64_t>(count)));
  }

  std::uint32_t grain_;
  ElementType type_;
  std::vector<int> counts_;
  std::vector<int> offsets_;
  Buffer<std::uint64_t> items_;
  Buffer<std::byte> values_;
};

class MpiSession final : public MpiWorkers::Session {
 public:
  MpiSession() {
    AllreduceAlgorithm::allow_changes();
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &default_), "MPI_Comm_dup");
    AllreduceAlgorithm algorithm;
    if (algorithm.set(kRing)) {
      check(MPI_Comm_dup(MPI_COMM_WORLD, &ring_), "MPI_Comm_dup");
      algorithm.set(kDefault);
    }
    communicator_ = make_mpi(MPI_COMM_WORLD);
  }
  ~MpiSession() override {
    communicator_.reset();
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
  }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] Communicator& communicator() noexcept override { return *communicator_; }
  [[nodiscard]] std::vector<Baseline> baselines(View view, ElementType type) const override {
    if (view == View::dense) return dense(type);
    return {allgatherv()};
  }

 private:
  [[nodiscard]] std::vector<Baseline> dense(ElementType type) const {
    std::vector<Baseline> all;
    if (type_of(type) == MPI_DATATYPE_NULL) return all;
    all.push_back(allreduce_over(default_, "mpi-default"));
    if (ring_ != MPI_COMM_NULL) all.push_back(allreduce_over(ring_, "mpi-ring"));
    return all;
  }
  [[nodiscard]] Baseline allgatherv() const {
    return {.name = "allgatherv", .sparse = [communicator = default_](ConstSparse x, std::uint32_t grain, Sparse& sum) {
              Rows(communicator, x, grain).add(sum);
            }};
  }

  MPI_Comm default_ = MPI_COMM_NULL;
  MPI_Comm ring_ = MPI_COMM_NULL;
  std::unique_ptr<Communicator> communicator_;
};

// "Open MPI v4.1.4": what stands before the first comma or line end; some libraries write a page. May be asked before
// MPI_Init.
std::string version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "of unknown version";
  text.resize(std::min<std::size_t>(static_cast<std::size_t>(length), text.find_first_of(std::string(",\n\0", 3))));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

}  // namespace

extern "C" const MpiModule peel_module_mpi{
    PEEL_VERSION, version, []() -> std::unique_ptr<MpiWorkers::Session> { return std::make_unique<MpiSession>(); }};

}  // namespace peel::cli
