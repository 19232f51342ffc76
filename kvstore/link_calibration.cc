#include "kvstore/link_calibration.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr char kName[] = "link";
constexpr double kBytesPerGbit = 1e9 / 8;

// Under what name it is kept: short, however many members there are.
std::string KeyOf(const KVStore& store) {
  const std::string identity = store.link_identity();
  std::array<unsigned char, 32> hash{};
  size_t size = 0;
  const int is_done = EVP_Q_digest(nullptr, "SHA256", nullptr, identity.data(),
                                   identity.size(), hash.data(), &size);
  TELEGRAD_CHECK(is_done == 1, "SHA-256 is always there");
  return absl::StrCat("link of ", store.num_workers(), " workers and ",
                      store.num_servers(), " servers ",
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(hash.data()), 16)));
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
