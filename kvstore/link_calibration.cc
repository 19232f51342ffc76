#include "kvstore/link_calibration.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

constexpr char kName[] = "link";
constexpr double kBytesPerGbit = 1e9 / 8;

// Under what name it is kept: short, however many members there are.
std::string KeyOf(const KVStore& store) {
  return absl::StrCat("link of ", store.num_workers(), " workers and ",
                      store.num_servers(), " servers ",
                      Sha256Hex(store.link_identity()).substr(0, 32));
}

// A file could have been edited.
bool IsWhole(const Calibration& calibration) {
  const LinkFigures* link = calibration.FindLink(kName);
  return link != nullptr && link->send.value > 0 && link->receive.value > 0 &&
         link->latency_s.value > 0;
}

// Whether all workers have kept figures, and the same.
absl::StatusOr<bool> AllHave(KVStore& store,
                             const std::optional<Calibration>& known) {
  std::string mine;
  if (known.has_value()) {
    const LinkFigures& link = *known->FindLink(kName);
    mine = absl::StrFormat("%.17g %.17g %.17g", link.send.value,
                           link.receive.value, link.latency_s.value);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   store.Gather("link-kept", mine));
  return !mine.empty() &&
         std::all_of(all.begin(), all.end(),
                     [&](const std::string& each) { return each == mine; });
}

}  // namespace

absl::StatusOr<LinkCalibration> CalibrateLink(KVStore& store,
                                              CalibrationCache* cache,
                                              Duration at_most) {
  const std::string what = KeyOf(store);
  std::optional<Calibration> known;
  if (cache != nullptr) known = cache->Load(what);
  if (known.has_value() && !IsWhole(*known)) known.reset();
  ASSIGN_OR_RETURN(const bool is_cached, AllHave(store, known));
  if (is_cached) {
    return LinkCalibration{.figures = *known->FindLink(kName),
                           .is_cached = true};
  }
  const TimePoint start = Clock::now();
  LinkCalibration link;
  ASSIGN_OR_RETURN(link.figures, store.MeasureLink(at_most));
  link.figures.name = kName;
  link.seconds = SecondsSince(start);
  if (cache != nullptr) {
    Calibration kept;
    kept.links = {link.figures};
    cache->Store(what, kept);
  }
  return link;
}

std::string Describe(const LinkCalibration& link) {
  const LinkFigures& figures = link.figures;
  return absl::StrFormat(
      "%.3g Gb/s out, %.3g Gb/s in, %.3g us one way; %s",
      figures.send.value / kBytesPerGbit, figures.receive.value / kBytesPerGbit,
      figures.latency_s.value * 1e6,
      link.is_cached ? "from the cache"
                     : absl::StrFormat("measured in %.2g s", link.seconds));
}

}  // namespace telegrad
