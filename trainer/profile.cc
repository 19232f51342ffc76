#include "trainer/profile.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/units.h"
#include "trainer/embedded_file.h"
#include "trainer/network.h"

namespace telegrad {

bool IsProfile(absl::string_view network) {
  for (const EmbeddedFile* file = kProfileFiles; file->name; ++file) {
    if (network == file->name) return true;
  }
  return false;
}

absl::StatusOr<std::vector<TensorSpec>> LoadProfile(absl::string_view network) {
  for (const EmbeddedFile* file = kProfileFiles; file->name; ++file) {
    if (network != file->name) continue;
    std::vector<TensorSpec> tensors;
    for (const absl::string_view line :
         absl::StrSplit(file->content, '\n', absl::SkipEmpty())) {
      const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
      size_t num_elems = 0;
      if (cells.size() == 3 && absl::SimpleAtoi(cells[2], &num_elems)) {
        tensors.push_back({std::string(cells[0]), num_elems});
      }
    }
    return tensors;
  }
  return absl::NotFoundError(absl::StrCat("no gradient profile ", network));
}

std::string DescribeTrainable() {
  std::string text = DescribeNetworks();
  for (const EmbeddedFile* file = kProfileFiles; file->name; ++file) {
    const auto tensors = LoadProfile(file->name);
    if (!tensors.ok()) continue;
    size_t num_elems = 0;
    for (const TensorSpec& tensor : *tensors) num_elems += tensor.num_elems;
    absl::StrAppendFormat(
        &text, "  %-12s gradients only (--benchmark 1): %d tensors, %s\n",
        file->name, tensors->size(),
        FormatBytes(4.0 * static_cast<double>(num_elems)));
  }
  return text;
}

}  // namespace telegrad
