#include "kvstore/job/path/connections.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kvstore/job/path/path_options.h"
#include "transport/transport.h"

namespace telegrad {

absl::StatusOr<size_t> ParseConnections(absl::string_view text) {
  if (text == "auto") return kAutoConnections;
  size_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 1 &&
      count <= kMaxConnections) {
    return count;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is neither auto nor a number of 1 to ", kMaxConnections));
}

std::string CheckConnections(const std::string& text) {
  return std::string(ParseConnections(text).status().message());
}

}  // namespace telegrad
