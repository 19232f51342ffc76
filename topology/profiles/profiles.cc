#include "topology/profiles.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/input_file.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "topology/profiles/embedded_profiles.h"

namespace telegrad {
namespace {

constexpr absl::string_view kHeading = "name,shape,elements";
constexpr absl::string_view kTimedHeading = "name,shape,elements,ready_ms";
constexpr size_t kMaxTensors = 100'000;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxDimensions = 16;
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr int64_t kMaxElems = int64_t{1} << 40;

// A whole number of 1 to kMaxElems.
bool ParseCount(absl::string_view text, int64_t* value) {
  return absl::SimpleAtoi(text, value) && *value > 0 && *value <= kMaxElems;
}

// Milliseconds above 0.
bool ParseTime(absl::string_view text, double* ms) {
  return absl::SimpleAtod(text, ms) && *ms > 0 && std::isfinite(*ms);
}

// Sets num_elems, too.
absl::Status ParseShape(absl::string_view shape, absl::string_view elements,
                        ProfileTensor* tensor) {
  if (!ParseCount(elements, &tensor->num_elems)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", elements, "' is not a number of elements"));
  }
  const std::vector<absl::string_view> sides = absl::StrSplit(shape, 'x');
  int64_t product = 1;
  for (const absl::string_view side : sides) {
    int64_t value = 0;
    if (sides.size() > kMaxDimensions || !ParseCount(side, &value) ||
        value > kMaxElems / product) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", shape, "' is not a shape such as 3x3x64"));
    }
    product *= value;
  }
  if (product != tensor->num_elems) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape ", shape, " has ", product,
                     " elements, the line says ", elements));
  }
  tensor->is_matrix = sides.size() > 1;
  return absl::OkStatus();
}

absl::StatusOr<ProfileTensor> ParseTensor(absl::string_view line,
                                          bool is_timed) {
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  if (cells.size() != (is_timed ? 4 : 3) || cells[0].empty() ||
      cells[0].size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("not ", is_timed ? kTimedHeading : kHeading));
  }
  ProfileTensor tensor{.name = std::string(cells[0])};
  RETURN_IF_ERROR(ParseShape(cells[1], cells[2], &tensor));
  if (is_timed && !ParseTime(cells[3], &tensor.ready_ms)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", cells[3], "' is not a time above 0 ms"));
  }
  return tensor;
}

std::vector<double> SharesOfEqualLayers(
    const std::vector<ProfileTensor>& tensors) {
  // A layer starts with its matrix; vectors before the first matrix are one.
  std::vector<size_t> layers;
  size_t num_layers = 0;
  for (const ProfileTensor& tensor : tensors) {
    if (tensor.is_matrix || num_layers == 0) ++num_layers;
    layers.push_back(num_layers - 1);
  }
  std::vector<double> shares;
  for (const size_t layer : layers) {
    shares.push_back(static_cast<double>(num_layers - layer) /
                     static_cast<double>(num_layers));
  }
  return shares;
}

}  // namespace

int64_t GradientProfile::num_elems() const {
  int64_t sum = 0;
  for (const ProfileTensor& tensor : tensors) sum += tensor.num_elems;
  return sum;
}

std::vector<double> GradientProfile::ReadyShares() const {
  double backward_ms = 0;
  for (const ProfileTensor& tensor : tensors) {
    backward_ms = std::max(backward_ms, tensor.ready_ms);
  }
  std::vector<double> shares;
  for (const ProfileTensor& tensor : tensors) {
    if (backward_ms > 0) shares.push_back(tensor.ready_ms / backward_ms);
  }
  return backward_ms > 0 ? shares : SharesOfEqualLayers(tensors);
}

std::vector<std::string> GradientProfileNames() {
  std::vector<std::string> names;
  for (const EmbeddedFile* file = kProfileFiles; file->name; ++file) {
    names.emplace_back(file->name);
  }
  return names;
}

absl::StatusOr<GradientProfile> LoadGradientProfile(
    absl::string_view name_or_file) {
  for (const EmbeddedFile* file = kProfileFiles; file->name; ++file) {
    if (name_or_file == file->name) {
      return ParseGradientProfile(file->name, file->content);
    }
  }
  if (!absl::EndsWith(name_or_file, ".csv")) {
    return absl::NotFoundError(absl::StrCat(
        "no gradient profile '", name_or_file, "'; there are ",
        absl::StrJoin(GradientProfileNames(), ", "), " and files NAME.csv"));
  }
  ASSIGN_OR_RETURN(const std::string csv,
                   OfFlag("the gradient profile", name_or_file,
                          ReadFile(std::string(name_or_file), kMaxFileBytes)));
  return ParseGradientProfile(name_or_file, csv);
}

absl::StatusOr<GradientProfile> ParseGradientProfile(absl::string_view name,
                                                     absl::string_view csv) {
  GradientProfile profile{.name = std::string(name)};
  bool is_timed = false;
  size_t number = 0;
  int64_t num_elems = 0;
  const auto fail = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient profile ", name, ", line ", number, ": ", why));
  };
  for (absl::string_view line : absl::StrSplit(csv, '\n')) {
    ++number;
    line = absl::StripTrailingAsciiWhitespace(line);
    if (number == 1) {
      is_timed = line == kTimedHeading;
      if (is_timed || line == kHeading) continue;
      return fail("expected name,shape,elements or these and ready_ms");
    }
    if (line.empty()) continue;
    absl::StatusOr<ProfileTensor> tensor = ParseTensor(line, is_timed);
    if (!tensor.ok()) return fail(tensor.status().message());
    num_elems += tensor->num_elems;
    if (num_elems > kMaxElems) return fail("more than 2^40 elements");
    if (profile.tensors.size() == kMaxTensors) {
      return fail("more than 100,000 tensors");
    }
    profile.tensors.push_back(*std::move(tensor));
  }
  if (profile.tensors.empty()) return fail("no tensors");
  return profile;
}

}  // namespace telegrad
