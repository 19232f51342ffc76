#include "trainer/flags/work_load.h"

#include <cstdint>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace telegrad {

absl::StatusOr<std::vector<int>> SplitBatch(const std::vector<int>& work_load,
                                            int devices, int batch_size) {
  if (work_load.empty()) {
    return std::vector<int>(static_cast<size_t>(devices), batch_size);
  }
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--work-load-list ", absl::StrJoin(work_load, ","), ": ", why...));
  };
  if (work_load.size() != static_cast<size_t>(devices)) {
    return refuse(work_load.size(), " loads for --devices ", devices);
  }
  const int64_t samples = int64_t{batch_size} * devices;
  const int64_t all =
      std::accumulate(work_load.begin(), work_load.end(), int64_t{0});
  std::vector<int> batches;
  for (const int load : work_load) {
    if (load < 1 || samples * load % all != 0) {
      return refuse("the ", samples, " samples of a step (", devices,
                    " times --batch-size ", batch_size,
                    ") cannot be divided so");
    }
    batches.push_back(static_cast<int>(samples * load / all));
  }
  return batches;
}

}  // namespace telegrad
