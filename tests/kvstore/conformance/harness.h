#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/device_access.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/conformance/typed_store.h"
#include "tests/kvstore/oracle.h"

// What the conformance suite needs of a type of store: contributors that push
// gradients, wherever they are. Stores of several workers have two, of
// StoreTraits::max_devices devices each, whose gradients' sum is the
// contribution, or of so many processes of a host; those of one process have
// two devices. What needs GPUs is run on the group for host memory.
namespace telegrad::testing {

constexpr int kContributors = 2;

// Where contributors' tensors lie: in host memory, on the emulated device, or
// the first one's there and the other's in host memory.
enum class Place : uint8_t { kHost, kDevice, kMixed };
const char* ToString(Place place);

// Memory of the emulated device, by addresses that are open: ViewsOf gives
// those that are not.
Buffer MakeOpenBuffer(size_t size);

// One worker's part of a job: contributors first to first + count - 1.
struct Party {
  KVStore& store;
  int first = 0;
  int count = 1;
  int devices = 1;  // of each contributor
  Place place = Place::kHost;
  int process = 0;  // of each contributor's
  int processes = 1;

  bool is_on_device(int contributor) const {
    return place == Place::kDevice ||
           (place == Place::kMixed && contributor == 0);
  }
  // Tensors that lie where this worker's do.
  std::vector<TensorSpec> Put(std::vector<TensorSpec> tensors) const {
    for (TensorSpec& tensor : tensors) {
      for (int i = 0; i < count * devices; ++i) {
        tensor.devices.push_back(is_on_device(first + i) ? kEmulatedDevice
                                                         : Device{});
      }
    }
    return tensors;
  }
  bool is_first() const { return first == 0 && process == 0; }
  // The first process of the last contributor, whose store counts.
  bool is_last() const {
    return first + count == kContributors && process == 0;
  }
  // A tensor on all of this worker's devices.
  std::vector<Buffer> Make(size_t num_elems, float value = 0) const {
    std::vector<Buffer> all;
    for (int i = 0; i < count * devices; ++i) {
      all.push_back(is_on_device(first + i) ? MakeOpenBuffer(4 * num_elems)
                                            : Buffer(4 * num_elems));
      std::fill_n(all.back().as<float>(), num_elems, value);
    }
    return all;
  }
  // Gradients of a step, by GradOf; of a contributor's devices, or processes,
  // the first has what the others' leave.
  std::vector<Buffer> Grads(size_t num_elems, int step) const {
    std::vector<Buffer> all = Make(num_elems);
    for (int i = 0; i < count * devices; ++i) {
      const int contributor = first + i / devices;
      const int part = i % devices + process;
      for (size_t at = 0; at < num_elems; ++at) {
        const auto part_of = [&](int other) {
          return GradOf(contributor + other, step + 7, at);
        };
        float& mine = all[static_cast<size_t>(i)].as<float>()[at];
        mine = part > 0 ? part_of(part) : GradOf(contributor, step, at);
        for (int other = 1; part == 0 && other < devices * processes; ++other) {
          mine -= part_of(other);
        }
      }
    }
    return all;
  }
};

std::vector<TensorView> ViewsOf(const std::vector<Buffer>& buffers);

struct StoreSetup {
  std::vector<TensorSpec> tensors = {{"a", 100}};
  bool has_values = true;
  size_t chunk_elems = 32;
  CompressionConfig compression = {};
  // Asynchronous stores add to their weights instead of having no optimizer.
  OptimizerConfig optimizer = {};
  std::string transport = "inproc";  // of stores of several workers
};

// Contributor 0's, which all get.
inline float ValueOf(size_t key, size_t i) {
  return static_cast<float>(key + 1) + 0.125f * static_cast<float>(i % 64);
}

// Stands between a party and its store; the planted faults are such. Null:
// nothing. And where the tensors lie, and of which type they are.
struct Wrap : std::function<std::unique_ptr<KVStore>(KVStore& inner)> {
  using Base = std::function<std::unique_ptr<KVStore>(KVStore& inner)>;
  using Base::Base;
  Place place = Place::kHost;
  Dtype dtype = Dtype::kFloat32;  // the store's tensors', where checks allow it
};

// What is wrong, by whoever found it; empty: nothing. Thread-safe.
class Findings {
 public:
  void Add(const std::string& text) {
    MutexLock lock(&mutex_);
    text_ += text + "\n";
  }
  void Expect(bool is_right, const std::string& text) {
    if (!is_right) Add(text);
  }
  void ExpectOk(const absl::Status& status, const std::string& what) {
    if (!status.ok()) Add(what + ": " + std::string(status.message()));
  }
  void ExpectError(const absl::Status& status, absl::StatusCode code,
                   const std::string& word) {
    if (status.code() != code ||
        std::string(status.message()).find(word) == std::string::npos) {
      Add("not an error with '" + word + "': " + status.ToString());
    }
  }
  std::string text() {
    MutexLock lock(&mutex_);
    return text_;
  }

 private:
  Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

// A type of store as the suite runs it: with so many processes of a host.
struct StoreKind : StoreTraits {
  StoreKind(const StoreTraits& traits, int num_processes = 1)
      : StoreTraits(traits), processes(num_processes) {}
  int processes = 1;
  // Only such a kind of a type takes devices.
  bool has_one_device_each() const {
    return processes == 1 && (!has_workers || max_devices == 1);
  }
};

// Runs `body` for each party of a store of this type, each on a thread of its
// own, after Init; then closes it. Returns what was found.
using Body = std::function<void(Party, Findings&)>;
std::string RunParties(const StoreKind& traits, const StoreSetup& setup,
                       const Wrap& wrap, const Body& body);

// The checks of the suite: each says what is wrong.
using Check = std::string (*)(const StoreKind& traits, const Wrap& wrap);
struct NamedCheck {
  const char* name;
  Check check;
  bool needs_sums = false;  // asynchronous stores have none
  // Or an optimizer; stores of GPUs have neither, nor views of rows.
  bool needs_codecs = false;
  bool needs_rows = false;
};
std::vector<NamedCheck> AllChecks();
// For the planted faults.
std::string CheckSums(const StoreKind& traits, const Wrap& wrap);
std::string CheckCancel(const StoreKind& traits, const Wrap& wrap);
// cancel_checks.cc, as CheckCancel.
std::string CheckTimeout(const StoreKind& traits, const Wrap& wrap);
// priority_check.cc.
std::string CheckPriorities(const StoreKind& traits, const Wrap& wrap);
// halves_check.cc.
std::string CheckHalves(const StoreKind& traits, const Wrap& wrap);
// empty_check.cc.
std::string CheckEmpty(const StoreKind& traits, const Wrap& wrap);
// optimizer_checks.cc.
std::string CheckOptimizer(const StoreKind& traits, const Wrap& wrap);
std::string CheckOptimizers(const StoreKind& traits, const Wrap& wrap);
std::string CheckPushedMomentum(const StoreKind& traits, const Wrap& wrap);
// row_checks.cc.
std::string CheckRows(const StoreKind& kind, const Wrap& wrap);
std::string CheckRowMisuse(const StoreKind& kind, const Wrap& wrap);
std::string CheckDenseRows(const StoreKind& kind, const Wrap& wrap);

}  // namespace telegrad::testing
