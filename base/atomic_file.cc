#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, absl::string_view content,
                      const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(fd) != 0) return Failed("fsync", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view content) {
  const std::string beside = absl::StrCat(path, ".", getpid(), ".part");
  // A process that had our id and was killed may have left one.
  unlink(beside.c_str());
  const int fd =
      open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Failed("create", beside);
  absl::Status status = WriteAll(fd, content, beside);
  if (close(fd) != 0 && status.ok()) status = Failed("close", beside);
  if (status.ok() && std::rename(beside.c_str(), path.c_str()) != 0) {
    status = Failed("rename to", path);
  }
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace telegrad
