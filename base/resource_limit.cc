#include "base/resource_limit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/socket.h"

namespace telegrad {
namespace {

rlim_t LimitOf(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string FilesLimit() {
  return absl::StrCat("the limit of open files is ", LimitOf(RLIMIT_NOFILE),
                      " (ulimit -n); raise it, or have fewer members");
}

}  // namespace

void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status CheckOpenFiles(size_t count, absl::string_view what) {
  if (count <= LimitOf(RLIMIT_NOFILE)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " needs about ", count, " open files: ", FilesLimit()));
}

absl::Status CheckFreeFiles(size_t count, absl::string_view what) {
  std::vector<UniqueFd> opened;
  while (opened.size() < count) {
    opened.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!opened.back().is_open()) return SystemError(what, errno);
  }
  return absl::OkStatus();
}

absl::Status CheckAddressSpace(size_t num_bytes, absl::string_view what) {
  const rlim_t limit = LimitOf(RLIMIT_AS);
  if (limit == RLIM_INFINITY) return absl::OkStatus();
  void* const room = mmap(nullptr, num_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    munmap(room, num_bytes);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " needs ", num_bytes >> 20,
                   " MiB more address space than the limit of ", limit >> 20,
                   " MiB leaves (ulimit -v, h_vmem): raise it"));
}

absl::Status TooManyTasks(absl::string_view what, int error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      what, ": ", std::strerror(error),
      ": the limit of processes and threads is ", LimitOf(RLIMIT_NPROC),
      " (ulimit -u), that of a container in its pids.max"));
}

absl::Status SystemError(absl::string_view what, int error,
                         absl::StatusCode otherwise) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case EMFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, ": ", FilesLimit()));
    case ENFILE:
      return absl::ResourceExhaustedError(absl::StrCat(
          text, ": the limit of open files of the machine (fs.file-max)"));
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
      return absl::ResourceExhaustedError(text);
    default:
      return {otherwise, text};
  }
}

}  // namespace telegrad
