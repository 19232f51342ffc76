#include "trainer/profile.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "topology/profiles.h"
#include "trainer/network.h"

namespace telegrad {

bool IsProfile(absl::string_view network) {
  const std::vector<std::string> names = GradientProfileNames();
  return std::find(names.begin(), names.end(), network) != names.end();
}

absl::StatusOr<std::vector<TensorSpec>> LoadProfile(absl::string_view network) {
  ASSIGN_OR_RETURN(const GradientProfile profile, LoadGradientProfile(network));
  std::vector<TensorSpec> tensors;
  for (const ProfileTensor& tensor : profile.tensors) {
    tensors.push_back({tensor.name, static_cast<size_t>(tensor.num_elems)});
  }
  return tensors;
}

std::string DescribeTrainable() {
  std::string text = DescribeNetworks();
  for (const std::string& name : GradientProfileNames()) {
    const auto profile = LoadGradientProfile(name);
    if (!profile.ok()) continue;
    absl::StrAppendFormat(
        &text, "  %-12s gradients only (--benchmark 1): %d tensors, %s\n", name,
        profile->tensors.size(),
        FormatBytes(4.0 * static_cast<double>(profile->num_elems())));
  }
  return text;
}

}  // namespace telegrad
