#include "kvstore/trace_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/endian.h"
#include "base/log.h"

namespace telegrad {
namespace {

constexpr absl::string_view kTraceMagic = "telegrad trace 1";
constexpr size_t kNumAt = 32;
constexpr size_t kHeadAt = 40;
constexpr size_t kWhatBytes = 24;
constexpr size_t kSpanBytes = 48;

int64_t NanosecondsOf(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}

// The file with room for `size` bytes in it, so that writing to mapped memory
// cannot fail later.
absl::StatusOr<void*> MapNewFile(const std::string& path, size_t size) {
  ::unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                        S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  void* map = MAP_FAILED;
  int error = ::posix_fallocate(fd, 0, static_cast<off_t>(size));
  if (error == 0) {
    map = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error == 0) return map;
  ::unlink(path.c_str());
  return absl::ErrnoToStatus(error, absl::StrCat(path, ", ", size, " bytes"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceRing>> TraceRing::Make(
    std::string path, int pid, const std::string& process,
    const std::vector<std::string>& names, uint64_t most) {
  const nlohmann::ordered_json head = {{"pid", pid},
                                       {"process", process},
                                       {"zero_us", ZeroOfClockUs()},
                                       {"names", names}};
  std::string text =
      head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t begin = kHeadAt + text.size();
  const size_t size = begin + most * kSpanBytes;
  const absl::StatusOr<void*> map = MapNewFile(path, size);
  if (!map.ok()) return map.status();
  auto* const bytes = static_cast<std::byte*>(*map);
  std::memcpy(bytes, kTraceMagic.data(), kTraceMagic.size());
  StoreLittleEndian(bytes + 16, begin);
  StoreLittleEndian(bytes + 24, most);
  std::memcpy(bytes + kHeadAt, text.data(), text.size());
  return std::unique_ptr<TraceRing>(
      new TraceRing(std::move(path), bytes, size, begin, most));
}

TraceRing::~TraceRing() { ::munmap(map_, size_); }

void TraceRing::Note(const Timeline::Span& span) {
  std::byte* const at = map_ + begin_ + num_ % most_ * kSpanBytes;
  std::array<char, kWhatBytes> what{};
  std::memcpy(what.data(), span.what,
              std::min(std::strlen(span.what), what.size()));
  std::memcpy(at, what.data(), what.size());
  StoreLittleEndian(at + 24, span.key);
  StoreLittleEndian(at + 28, span.chunk);
  StoreLittleEndian(at + 32, NanosecondsOf(span.begin));
  StoreLittleEndian(at + 40, NanosecondsOf(span.end));
  StoreLittleEndian(map_ + kNumAt, ++num_);
}

void TraceRing::Remove() { ::unlink(path_.c_str()); }

void KeepLastIn(Timeline& timeline, const std::string& base, int pid,
                const std::string& process,
                const std::vector<std::string>& names) {
  ::unlink(absl::StrCat(base, ".json").c_str());
  auto ring = TraceRing::Make(absl::StrCat(base, ".last"), pid, process, names);
  if (!ring.ok()) {
    return LogWarning("--timeline keeps no last steps: ",
                      ring.status().message());
  }
  timeline.KeepLast(*std::move(ring));
}

}  // namespace telegrad
