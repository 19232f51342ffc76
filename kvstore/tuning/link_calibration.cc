#include "kvstore/tuning/link_calibration.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kvstore/store_link.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

constexpr char kName[] = "link";
constexpr double kBytesPerGbit = 1e9 / 8;
constexpr double kOtherRate = 1.5;
constexpr double kLatenciesPerLook = 40;

// Under what name it is kept: short, however many members there are.
std::string KeyOf(KVStore& store) {
  return absl::StrCat("link and its costs of ", store.group().num_workers(),
                      " workers and ", store.group().num_servers(), " servers ",
                      Sha256Hex(store.link()->identity()).substr(0, 32));
}

// A file could have been edited.
bool IsWhole(const Calibration& calibration) {
  const LinkFigures* link = calibration.FindLink(kName);
  return link != nullptr && link->send.value > 0 && link->receive.value > 0 &&
         link->latency_s.value > 0;
}

bool AreAlike(const LinkFigures& a, const LinkFigures& b) {
  const auto alike = [](const Figure& x, const Figure& y) {
    return x.value < kOtherRate * y.value && y.value < kOtherRate * x.value;
  };
  return alike(a.send, b.send) && alike(a.receive, b.receive);
}

std::string RatesOf(const LinkFigures& figures) {
  return absl::StrFormat("%.3g Gb/s out, %.3g Gb/s in",
                         figures.send.value / kBytesPerGbit,
                         figures.receive.value / kBytesPerGbit);
}

// Whether all workers have kept figures, and the same.
absl::StatusOr<bool> AllHave(KVStore& store,
                             const std::optional<Calibration>& known) {
  std::string mine;
  if (known.has_value()) {
    const LinkFigures& link = *known->FindLink(kName);
    mine = absl::StrFormat("%.17g %.17g %.17g %.17g %.17g", link.send.value,
                           link.receive.value, link.latency_s.value,
                           link.frame_cpu_s.value, link.cpu_s_per_byte.value);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   store.group().Gather("link-kept", mine));
  return !mine.empty() &&
         std::all_of(all.begin(), all.end(),
                     [&](const std::string& each) { return each == mine; });
}

}  // namespace

absl::StatusOr<LinkCalibration> CalibrateLink(KVStore& store,
                                              CalibrationCache* cache,
                                              const LinkTimes& times) {
  const TimePoint start = Clock::now();
  const std::string what = KeyOf(store);
  std::optional<Calibration> known;
  if (cache != nullptr) known = cache->Load(what);
  if (known.has_value() && !IsWhole(*known)) known.reset();
  ASSIGN_OR_RETURN(const bool is_cached, AllHave(store, known));
  LinkCalibration link;
  if (is_cached) {
    const LinkFigures& kept = *known->FindLink(kName);
    LinkFigures now = kept;
    if (times.check > Duration::zero()) {
      // Frames must grow until they fill a distant link.
      const Duration look = std::max(
          times.check, FromSeconds(kLatenciesPerLook * kept.latency_s.value));
      ASSIGN_OR_RETURN(now,
                       store.link()->Measure(std::min(look, times.measure)));
    }
    if (AreAlike(now, kept)) {
      return LinkCalibration{.figures = kept, .is_cached = true};
    }
    link.was = RatesOf(kept);
  }
  ASSIGN_OR_RETURN(link.figures, store.link()->Measure(times.measure));
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
  const std::string costs =
      figures.frame_cpu_s.value == 0
          ? ""
          : absl::StrFormat(
                ", %.3g us of a core per frame and %.3g ns per byte",
                figures.frame_cpu_s.value * 1e6,
                figures.cpu_s_per_byte.value * 1e9);
  const std::string was =
      link.was.empty() ? "" : absl::StrCat(", the cache had ", link.was);
  return absl::StrFormat(
      "%s, %.3g us one way%s; %s", RatesOf(figures),
      figures.latency_s.value * 1e6, costs,
      link.is_cached
          ? "from the cache"
          : absl::StrFormat("measured in %.2g s%s", link.seconds, was));
}

}  // namespace telegrad
