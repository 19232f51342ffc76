#include "trainer/flags/profile.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "topology/profiles.h"
#include "trainer/networks/network.h"

namespace telegrad {
namespace {

constexpr char kProfilePrefix[] = "profile:";

}  // namespace

bool IsProfile(absl::string_view network) {
  return absl::StartsWith(network, kProfilePrefix);
}

absl::StatusOr<std::vector<TensorSpec>> LoadProfile(absl::string_view network) {
  ASSIGN_OR_RETURN(
      const GradientProfile profile,
      LoadGradientProfile(absl::StripPrefix(network, kProfilePrefix)));
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
        &text, "  %-20s gradients only (--benchmark 1): %d tensors, %s\n",
        absl::StrCat(kProfilePrefix, name), profile->tensors.size(),
        FormatBytes(4.0 * static_cast<double>(profile->num_elems())));
  }
  return text;
}

}  // namespace telegrad
