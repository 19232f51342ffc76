#include "topology/calibration.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "topology/cost/calibration_fields.h"

namespace telegrad {
namespace {

constexpr size_t kMaxEntries = 1000;
constexpr size_t kMaxTextBytes = 1024;

absl::Status CheckFigure(absl::string_view of, absl::string_view name,
                         const Figure& figure) {
  if (!std::isfinite(figure.value) || figure.value < 0 || figure.value > 1e18) {
    return absl::InvalidArgumentError(
        absl::StrCat("calibration: ", of, " ", name, " is ", figure.value,
                     "; expected 0 (not known) to 1e18"));
  }
  if (!std::isfinite(figure.spread) || figure.spread < 0 ||
      figure.spread >= 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("calibration: ", of, " ", name, " has a spread of ",
                     figure.spread, "; expected 0 to less than 1"));
  }
  if (figure.reason.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("calibration: ", of, " ", name,
                     " has a reason of more than ", kMaxTextBytes, " bytes"));
  }
  return absl::OkStatus();
}

template <typename Entry>
absl::Status CheckFigures(absl::string_view of, const Entry& entry) {
  absl::Status status;
  VisitFigures(entry, [&](const char* name, const Figure& figure) {
    if (status.ok()) status = CheckFigure(of, name, figure);
  });
  return status;
}

template <typename Entry>
absl::Status CheckNames(absl::string_view what,
                        const std::vector<Entry>& entries) {
  if (entries.size() > kMaxEntries) {
    return absl::InvalidArgumentError(absl::StrCat(
        "calibration: more than ", kMaxEntries, " entries in ", what));
  }
  std::set<std::string> names;
  for (const Entry& entry : entries) {
    if (entry.name.empty() || entry.name.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "calibration: an entry of ", what, " has no name, or a long one"));
    }
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("calibration: ", entry.name, " is there twice"));
    }
    RETURN_IF_ERROR(CheckFigures(entry.name, entry));
  }
  return absl::OkStatus();
}

bool IsBits(double bits) { return bits > 0 && bits <= 1024; }

absl::Status CheckBits(const CodecFigures& codec) {
  bool ok = IsBits(codec.push_bits) && !codec.reply_bits.empty() &&
            codec.reply_bits.size() <= kMaxEntries;
  int before = 0;
  for (const BitsForWorkers& each : codec.reply_bits) {
    ok = ok && each.max_workers > before && IsBits(each.bits);
    before = each.max_workers;
  }
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("calibration: ", codec.name,
                   ": push_bits and reply_bits must be above 0 and at most "
                   "1024, the latter by ascending max_workers"));
}

}  // namespace

const CodecFigures* Calibration::FindCodec(absl::string_view name) const {
  for (const CodecFigures& codec : codecs) {
    if (codec.name == name) return &codec;
  }
  return nullptr;
}

const LinkFigures* Calibration::FindLink(absl::string_view name) const {
  for (const LinkFigures& link : links) {
    if (link.name == name) return &link;
  }
  return nullptr;
}

absl::Status CheckCalibration(const Calibration& calibration) {
  RETURN_IF_ERROR(CheckFigures("the machines'", calibration));
  RETURN_IF_ERROR(CheckNames("codecs", calibration.codecs));
  RETURN_IF_ERROR(CheckNames("links", calibration.links));
  for (const CodecFigures& codec : calibration.codecs) {
    RETURN_IF_ERROR(CheckBits(codec));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
