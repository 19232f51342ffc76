#include "perf/network/push_pull_check.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/job/path/data_path.h"
#include "perf/network/patterns.h"

namespace telegrad::perf {
namespace {

constexpr int kMaxExactWorkers = 32;  // sums up to 256 fit bfloat16's 8 bits

bool IsExact(const TensorLayout& layout, int num_workers) {
  const std::string& name = layout.codecs.front().codec->traits().name;
  return name == "none" || ((name == "fp16" || name == "bf16") &&
                            num_workers <= kMaxExactWorkers);
}

void AddTo(const float* values, size_t n, float* sums) {
  for (size_t i = 0; i < n; ++i) sums[i] += values[i];
}

absl::Status CompareSums(int worker, Key key, size_t n, const float* got,
                         const float* expected) {
  for (size_t i = 0; i < n; ++i) {
    if (std::bit_cast<uint32_t>(got[i]) ==
        std::bit_cast<uint32_t>(expected[i])) {
      continue;
    }
    return absl::DataLossError(
        absl::StrCat("check: worker ", worker, ": key ", key, ", element ", i,
                     " of ", n, " is ", got[i], ", not ", expected[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PushPullCheck> PushPullCheck::Make(const PushPullJob& job) {
  ASSIGN_OR_RETURN(const std::vector<TensorLayout> layouts,
                   MakeShardPlan(job.tensors, job.num_servers, job.chunk_elems,
                                 job.compression));
  PushPullCheck check;
  const auto num_gradients = static_cast<size_t>(job.num_gradients);
  const std::vector<int> ranks =
      RanksThatPush({.pushers = job.pushers}, num_gradients);
  check.num_pushers_ = ranks.size();
  for (size_t each = 0; each < num_gradients; ++each) {
    const int pusher =
        job.pushers.empty() ? static_cast<int>(each) : job.pushers[each];
    check.place_of_.push_back(
        static_cast<size_t>(std::ranges::find(ranks, pusher) - ranks.begin()));
  }
  for (size_t key = job.first; key < job.first + job.count; ++key) {
    Tensor tensor{.key = static_cast<Key>(key),
                  .num_elems = job.tensors[key].num_elems};
    if (!IsExact(layouts[key], job.num_gradients)) {
      ASSIGN_OR_RETURN(std::unique_ptr<Replay> replay,
                       Replay::Make(layouts[key], job.compression,
                                    static_cast<int>(check.num_pushers_)));
      tensor.replay.push_back(std::move(replay));
    }
    check.tensors_.push_back(std::move(tensor));
  }
  return check;
}

absl::Status PushPullCheck::Verify(int worker, const float* sums) {
  size_t begin = 0;
  for (Tensor& tensor : tensors_) {
    RETURN_IF_ERROR(
        VerifyTensor(worker, ShiftAt(step_) + begin, tensor, sums + begin));
    begin += tensor.num_elems;
  }
  ++step_;
  return absl::OkStatus();
}

// `first`: of its elements in the endless sequence.
absl::Status PushPullCheck::VerifyTensor(int worker, size_t first,
                                         Tensor& tensor,
                                         const float* sums) const {
  const size_t n = tensor.num_elems;
  const Buffer expected(4 * n);
  const Buffer gradient(4 * n);
  std::vector<Buffer> pushed;  // sums of hosts, exact, or gradients
  std::vector<ConstBytes> views;
  for (size_t i = 0; i < num_pushers_ && !tensor.replay.empty(); ++i) {
    pushed.emplace_back(4 * n);
    views.push_back(pushed.back().view());
  }
  for (size_t each = 0; each < place_of_.size(); ++each) {
    FillGradient(static_cast<int>(each), first, n, gradient.as<float>());
    AddTo(gradient.as<float>(), n,
          pushed.empty() ? expected.as<float>()
                         : pushed[place_of_[each]].as<float>());
  }
  for (const std::unique_ptr<Replay>& replay : tensor.replay) {
    RETURN_IF_ERROR(replay->Step(views, expected.view()));
  }
  return CompareSums(worker, tensor.key, n, sums, expected.as<float>());
}

absl::Status VerdictOfAll(const absl::Status& mine, int64_t step,
                          const GatherTexts& gather) {
  ASSIGN_OR_RETURN(const std::vector<std::string> verdicts,
                   gather(absl::StrCat("checked", step), mine.message()));
  RETURN_IF_ERROR(mine);
  for (const std::string& verdict : verdicts) {
    if (!verdict.empty()) return absl::DataLossError(verdict);
  }
  return absl::OkStatus();
}

}  // namespace telegrad::perf
