#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/socket.h"

namespace telegrad {

// Files that somebody else wrote, or put there. Errors do not say the path.

enum class Links : bool { kFollow, kRefuse };  // the last name of a path

// To be read. A FIFO or a device of that name is refused and holds nobody up.
// NotFound: there is none; InvalidArgument: it is no file, or not ours to read.
absl::StatusOr<UniqueFd> OpenFile(const std::string& path,
                                  Links links = Links::kFollow);
// At most so many bytes, from where the file stands.
absl::StatusOr<std::string> ReadUpTo(const UniqueFd& file, size_t max_bytes);
// The whole file. InvalidArgument, too: it has more than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes,
                                     Links links = Links::kFollow);

struct CloseStream {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using InputStream = std::unique_ptr<std::FILE, CloseStream>;
absl::StatusOr<InputStream> OpenStream(const std::string& path,
                                       Links links = Links::kFollow);

}  // namespace telegrad
