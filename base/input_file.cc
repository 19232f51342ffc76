#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

absl::Status WhyNot(int error, Links links) {
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(std::strerror(error));
  }
  if (error == ELOOP && links == Links::kRefuse) {
    return absl::InvalidArgumentError(
        "is a symbolic link, which is not followed here");
  }
  return SystemError("open", error, absl::StatusCode::kInvalidArgument);
}

}  // namespace

absl::StatusOr<UniqueFd> OpenFile(const std::string& path, Links links) {
  // Not blocking: a FIFO would wait for its writer.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
                    (links == Links::kRefuse ? O_NOFOLLOW : 0);
  UniqueFd file(open(path.c_str(), flags));
  if (!file.is_open()) return WhyNot(errno, links);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return WhyNot(errno, links);
  if (S_ISREG(info.st_mode)) return file;
  return absl::InvalidArgumentError(absl::StrCat(
      "is ", S_ISDIR(info.st_mode) ? "a folder" : "no regular file",
      "; a file is read here"));
}

absl::StatusOr<std::string> ReadUpTo(const UniqueFd& file, size_t max_bytes) {
  constexpr size_t kPieceBytes = size_t{1} << 16;
  std::string text;
  while (text.size() < max_bytes) {
    const size_t at = text.size();
    text.resize(std::min(max_bytes, at + std::max(kPieceBytes, at)));
    const ssize_t got = read(file.get(), text.data() + at, text.size() - at);
    const int error = errno;
    text.resize(at + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (got < 0 && error != EINTR) {
      return absl::UnavailableError(
          absl::StrCat("read: ", std::strerror(error)));
    }
  }
  return text;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes,
                                     Links links) {
  ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(path, links));
  ASSIGN_OR_RETURN(std::string text, ReadUpTo(file, max_bytes + 1));
  if (text.size() <= max_bytes) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("has more than ", max_bytes, " bytes"));
}

absl::StatusOr<InputStream> OpenStream(const std::string& path, Links links) {
  ASSIGN_OR_RETURN(UniqueFd file, OpenFile(path, links));
  InputStream stream(fdopen(file.get(), "rb"));
  if (stream == nullptr) return absl::UnavailableError(std::strerror(errno));
  file.Release();
  return stream;
}

}  // namespace telegrad
