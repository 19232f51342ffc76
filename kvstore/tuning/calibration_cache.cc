#include "kvstore/tuning/calibration_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/input_file.h"
#include "kernels/dispatch.h"
#include "topology/machine_json.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFileBytes = 256 * 1024;
constexpr char kFormat[] = "telegrad calibration cache 1, ";

// One line, whatever it was.
std::string OneLine(absl::string_view text) {
  return absl::Utf8SafeCEscape(text.substr(0, 500));
}

}  // namespace

// The file of one machine's kind: a home folder may be shared by many. Versions
// replace one another.
std::string CalibrationCache::PathOf(absl::string_view what) const {
  const std::string machine =
      options_.identity.substr(0, options_.identity.find(' '));
  const std::string key = absl::StrCat(machine, " ", what);
  std::string name;
  for (const char c : what.substr(0, 60)) {
    name += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '-';
  }
  return absl::StrFormat("%s/%s-%08x.calibration", options_.folder, name,
                         Crc32c(key.data(), key.size(), 0));
}

std::string CalibrationCache::Heading(absl::string_view what) const {
  return absl::StrCat(kFormat, OneLine(what), " on ",
                      OneLine(options_.identity));
}

void CalibrationCache::Note(std::string line) {
  notes_.push_back(absl::StrCat("calibration: ", line));
}

std::vector<std::string> CalibrationCache::TakeNotes() {
  return std::exchange(notes_, {});
}

std::optional<Calibration> CalibrationCache::Load(absl::string_view what) {
  if (options_.folder.empty() || options_.recalibrate) return std::nullopt;
  const std::string path = PathOf(what);
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (!error && written >= options_.before) return std::nullopt;
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  std::string why;
  if (!text.ok()) {
    why = std::string(text.status().message());
  } else {
    const size_t end = std::min(text->find('\n'), text->size());
    if (text->substr(0, end) != Heading(what)) {
      why = absl::StartsWith(*text, "telegrad calibration cache")
                ? "it is of another machine or version"
                : "it is no calibration";
    } else {
      absl::StatusOr<Calibration> calibration =
          CalibrationFromJson(absl::string_view(*text).substr(end));
      if (calibration.ok()) {
        Note(absl::StrCat(what, " from ", path, " (--recalibrate: anew)"));
        return *std::move(calibration);
      }
      why = OneLine(calibration.status().message());
    }
  }
  Note(absl::StrCat(path, " is ignored: ", why));
  return std::nullopt;
}

void CalibrationCache::Store(absl::string_view what,
                             const Calibration& calibration) {
  if (options_.folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  const std::string path = PathOf(what);
  const absl::Status status =
      error ? absl::UnavailableError(
                  absl::StrCat(options_.folder, ": ", error.message()))
            : WriteFileAtomically(path,
                                  absl::StrCat(Heading(what), "\n",
                                               CalibrationToJson(calibration)));
  if (!status.ok()) {
    Note(absl::StrCat(what, " is not kept: ", OneLine(status.message())));
  }
}

std::string CpuModel(const SysRoot& root) {
  const std::string text = root.Read("/proc/cpuinfo").text;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) break;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

std::string CalibrationIdentity(const Machine& machine,
                                absl::string_view cpu_model,
                                absl::string_view library_version) {
  return absl::StrCat(TopologyDigest(machine), " cpu ", OneLine(cpu_model),
                      " x", machine.cpus, " telegrad ", library_version,
                      " kernels ", kernels::CpuKernels().name);
}

std::string CalibrationFolder(const char* xdg_cache_home, const char* home) {
  if (xdg_cache_home != nullptr && xdg_cache_home[0] == '/') {
    return absl::StrCat(xdg_cache_home, "/telegrad");
  }
  if (home != nullptr && home[0] == '/') {
    return absl::StrCat(home, "/.cache/telegrad");
  }
  return "";
}

}  // namespace telegrad
