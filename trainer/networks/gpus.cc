#include "trainer/networks/gpus.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<std::vector<int>> ParseGpus(absl::string_view text) {
  if (text == "all") return std::vector<int>();
  std::vector<int> gpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int gpu = 0;
    if (!absl::SimpleAtoi(part, &gpu) || gpu < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpus ", text, ": '", part,
                       "' is no device; give numbers from 0 on, 0,1, or all"));
    }
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpus ", text, ": device ", gpu,
                       " comes twice; workers are dealt over the devices, and "
                       "share them where there are more workers"));
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

absl::StatusOr<std::vector<int>> ChooseGpus(
    absl::string_view text, const std::function<absl::StatusOr<int>()>& count) {
  ASSIGN_OR_RETURN(std::vector<int> gpus, ParseGpus(text));
  const absl::StatusOr<int> num_gpus = count();
  if (!num_gpus.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus ", text, ": ", num_gpus.status().message(),
                     "; without --gpus the CPU trains"));
  }
  for (const int gpu : gpus) {
    if (gpu < *num_gpus) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--gpus ", text, ": no device ", gpu, "; there ",
        *num_gpus == 1 ? "is 1, number 0"
                       : absl::StrCat("are ", *num_gpus, ", from 0 on")));
  }
  if (text == "all") {
    for (int gpu = 0; gpu < *num_gpus; ++gpu) gpus.push_back(gpu);
  }
  return gpus;
}

int DealGpu(const std::vector<int>& gpus, int local_rank) {
  return gpus[static_cast<size_t>(std::max(local_rank, 0)) % gpus.size()];
}

std::string SharingNotice(size_t num_gpus, int num_workers) {
  if (static_cast<size_t>(std::max(num_workers, 0)) <= num_gpus) return "";
  return absl::StrCat(num_workers, " workers share ", num_gpus,
                      num_gpus == 1 ? " GPU" : " GPUs",
                      ": they take turns there, and their times say nothing "
                      "of a GPU for each");
}

}  // namespace telegrad
