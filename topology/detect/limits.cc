#include "topology/detect/limits.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "topology/detect/read.h"
#include "topology/limits.h"

namespace telegrad::detect {
namespace {

constexpr size_t kMaxMounts = size_t{1} << 20;  // bytes; a host of containers
constexpr int kMaxDepth = 64;  // control groups below each other
// Version 1 writes "none" as the largest number of whole pages.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

// A line of mountinfo (proc(5)).
struct Mount {
  std::string root = {};  // the part of the file system that is mounted
  std::string point = {};
  std::string type = {};
  std::vector<std::string> options = {};
};

std::vector<Mount> ReadMounts(const SysRoot& root) {
  std::vector<Mount> mounts;
  const std::string text = root.Read("/proc/self/mountinfo", kMaxMounts).text;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> place =
        absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> kind =
        absl::StrSplit(halves.second, ' ');
    if (place.size() < 5 || kind.size() < 3) continue;
    mounts.push_back({.root = std::string(place[3]),
                      .point = std::string(place[4]),
                      .type = std::string(kind[0]),
                      .options = absl::StrSplit(kind[2], ',')});
  }
  return mounts;
}

bool Has(const std::vector<std::string>& words, absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The folder of `group` below a mount, and those above it. A group outside of
// what is mounted (a namespace of its own) is the mount itself.
void AddFolders(const Mount& mount, absl::string_view group,
                std::vector<std::string>& folders) {
  const bool is_inside =
      absl::ConsumePrefix(&group, mount.root == "/" ? "" : mount.root) &&
      absl::StartsWith(group, "/") && !absl::StrContains(group, "/..");
  std::string below = is_inside && group != "/" ? std::string(group) : "";
  for (int i = 0; i < kMaxDepth; ++i) {
    folders.push_back(absl::StrCat(mount.point, below));
    if (below.empty()) return;
    below.resize(below.rfind('/'));
  }
}

// Folders of this process's control groups that may limit what `controller`
// counts, its own first.
std::vector<std::string> FoldersOf(const SysRoot& root,
                                   const std::vector<Mount>& mounts,
                                   absl::string_view controller) {
  std::vector<std::string> folders;
  const std::string text = root.Read("/proc/self/cgroup").text;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));  // 4:memory:/a/b
    if (parts.size() < 3) continue;
    const bool is_second = parts[0] == "0" && parts[1].empty();
    if (!is_second && !Has(absl::StrSplit(parts[1], ','), controller)) continue;
    for (const Mount& mount : mounts) {
      const bool is_it =
          is_second ? mount.type == "cgroup2"
                    : mount.type == "cgroup" && Has(mount.options, controller);
      if (is_it) AddFolders(mount, parts[2], folders);
    }
  }
  return folders;
}

// Keeps the smallest of several limits, with what says it.
template <typename T>
void Offer(T value, Evidence why, Known<T>& known) {
  if (known.known() && *known.value <= value) return;
  known.value = value;
  known.why = {std::move(why)};
}

void OfferCpus(const std::string& quota, const std::string& period,
               const Line& line, Known<double>& known) {
  int64_t of = 0;
  int64_t in = 0;
  if (!absl::SimpleAtoi(quota, &of) || !absl::SimpleAtoi(period, &in)) return;
  if (of <= 0 || in <= 0) return;
  Offer(static_cast<double>(of) / static_cast<double>(in),
        line.Why("CPU time of the control group"), known);
}

void FindCpus(const SysRoot& root, const std::vector<Mount>& mounts,
              Known<double>& known) {
  const Line status = ReadLine(root, "/proc/self/status", 16384);
  for (const absl::string_view line : absl::StrSplit(status.text, '\n')) {
    absl::string_view list = line;
    if (!absl::ConsumePrefix(&list, "Cpus_allowed_list:")) continue;
    list = absl::StripAsciiWhitespace(list);
    const size_t cpus = ParseCpuList(list).size();
    if (cpus == 0) continue;
    Offer(static_cast<double>(cpus),
          {.what = "CPUs that it may run on",
           .source = status.path,
           .raw = Printable(list)},
          known);
  }
  for (const std::string& folder : FoldersOf(root, mounts, "cpu")) {
    const Line both = ReadLine(root, folder + "/cpu.max");  // "200000 100000"
    const std::vector<std::string> words = absl::StrSplit(both.text, ' ');
    if (words.size() == 2) OfferCpus(words[0], words[1], both, known);
    const Line quota = ReadLine(root, folder + "/cpu.cfs_quota_us");
    OfferCpus(quota.text, ReadLine(root, folder + "/cpu.cfs_period_us").text,
              quota, known);
  }
}

void FindMemory(const SysRoot& root, const std::vector<Mount>& mounts,
                Known<uint64_t>& known) {
  for (const std::string& folder : FoldersOf(root, mounts, "memory")) {
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
      const Line line = ReadLine(root, folder + name);
      uint64_t bytes = 0;
      if (line.text == "max") bytes = UINT64_MAX;
      if (!line.ok() || (bytes == 0 && !absl::SimpleAtoi(line.text, &bytes))) {
        continue;
      }
      Offer(bytes >= kNoLimit ? UINT64_MAX : bytes,
            line.Why("memory of the control group"), known);
    }
  }
}

// The last file system that was mounted there is the one that is seen.
void FindShm(const std::vector<Mount>& mounts, Known<uint64_t>& known) {
  for (const Mount& mount : mounts) {
    if (mount.point != "/dev/shm") continue;
    known = {};
    for (absl::string_view option : mount.options) {
      const std::string raw(option);
      uint64_t kib = 0;
      if (!absl::ConsumePrefix(&option, "size=") ||
          !absl::ConsumeSuffix(&option, "k") ||
          !absl::SimpleAtoi(option, &kib) || kib > UINT64_MAX >> 10) {
        continue;
      }
      known = {.value = kib << 10,
               .why = {{.what = "size of /dev/shm",
                        .source = "/proc/self/mountinfo",
                        .raw = Printable(raw)}}};
    }
  }
}

}  // namespace

void AddLimits(const SysRoot& root, Capabilities& capabilities) {
  const std::vector<Mount> mounts = ReadMounts(root);
  FindCpus(root, mounts, capabilities.cpu_limit);
  FindMemory(root, mounts, capabilities.memory_limit_bytes);
  FindShm(mounts, capabilities.shm_bytes);
}

}  // namespace telegrad::detect

namespace telegrad {

int UsableCpus() {
  const double here = std::max(1U, std::thread::hardware_concurrency());
  Capabilities limits;
  detect::AddLimits(SysRoot::Live(), limits);
  return static_cast<int>(
      std::ceil(std::min(here, limits.cpu_limit.value_or(here))));
}

}  // namespace telegrad
