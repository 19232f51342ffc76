#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/metrics.h"
#include "kvstore/ps/worker/worker.h"

namespace telegrad {
namespace {

constexpr size_t kMostTensors = 20;  // The others' residuals are not shown.

struct TensorHealth {
  size_t key = 0;
  size_t num_elems = 0;
  double ratio = 0;
};

// Whether a codec of `tensor` keeps a residual, of which there is a sample.
bool AddHealth(const WorkerTensor& tensor, TensorHealth& health,
               double& num_given_up) {
  double residual = 0;
  double gradient = 0;
  for (const ChunkCodec& chunk : tensor.codec->chunks()) {
    const Guard::Health& of_chunk = chunk.guard().health();
    residual += of_chunk.residual_square.get();
    gradient += of_chunk.mean_grad_square.get();
    num_given_up += of_chunk.gave_up.get() ? 1 : 0;
  }
  health.num_elems = tensor.spec().num_elems;
  if (gradient <= 0) return false;
  health.ratio = std::sqrt(residual / gradient);
  return true;
}

}  // namespace

void ChunkPipeline::Collect(MetricsPage& page) const {
  pushed_.Collect(metric::kPushRaw, metric::kPushWire, page);
  pulled_.Collect(metric::kPullRaw, metric::kPullWire, page);
  times_.Collect(
      absl::StrCat(traits_.type, "_", group_.data_path().transport.name), page);
  if (tensors_.size() == 0) return;  // nor does `engine_` stand
  page.Add(metric::kSteps, static_cast<double>(tensors_[0].turns.rounds()));
  std::vector<TensorHealth> all;
  double num_given_up = 0;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    TensorHealth health{.key = key};
    if (AddHealth(tensors_[key], health, num_given_up)) all.push_back(health);
  }
  if (!engine_.compression.has_guard) num_given_up = 0;
  page.Add(metric::kGaveUp, num_given_up);
  const size_t count = std::min(all.size(), kMostTensors);
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(count),
                    all.end(), [](const auto& a, const auto& b) {
                      return a.num_elems != b.num_elems
                                 ? a.num_elems > b.num_elems
                                 : a.key < b.key;
                    });
  for (size_t i = 0; i < count; ++i) {
    page.Add(metric::kResidualRatio, all[i].ratio,
             {{"tensor", tensors_[all[i].key].spec().name}});
  }
}

void DistWorker::Collect(MetricsPage& page) const {
  {
    MutexLock lock(&mutex_);
    if (devices_.size() == 1) {
      page.AddToScope("gpu",
                      absl::StrCat(devices_.front()->lane().device().ordinal));
    }
  }
  pipeline_.Collect(page);
  KVStore::Collect(page);
}

}  // namespace telegrad
