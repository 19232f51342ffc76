#include "kvstore/job/launch/slurm.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace telegrad {

// Each bracket stands for its first number, with its zeros; several brackets
// ("rack[1-2]n[01-16]") are expanded one after the other.
absl::StatusOr<std::string> FirstSlurmHost(absl::string_view node_list) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("\"", node_list, "\" is no Slurm node list"));
  std::string host;
  size_t at = 0;
  while (at < node_list.size() && node_list[at] != ',') {
    if (node_list[at] != '[') {
      host.push_back(node_list[at++]);
      continue;
    }
    const size_t close = node_list.find(']', at);
    if (close == absl::string_view::npos) return bad;
    const absl::string_view inside = node_list.substr(at + 1, close - at - 1);
    const absl::string_view first =
        inside.substr(0, inside.find_first_of(",-"));
    const bool is_number =
        !first.empty() &&
        std::all_of(first.begin(), first.end(),
                    [](unsigned char c) { return absl::ascii_isdigit(c); });
    if (!is_number) return bad;
    absl::StrAppend(&host, first);
    at = close + 1;
  }
  const bool is_host =
      !host.empty() && host.front() != '-' &&
      std::all_of(host.begin(), host.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
      });
  if (!is_host) return bad;
  return host;
}

}  // namespace telegrad
