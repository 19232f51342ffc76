#include "kvstore/job/launch/host_list.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/input_file.h"

namespace telegrad {
namespace {

struct HostList {
  const char* variable;
  bool is_file;
  const char* job;  // the variable of its number
};
constexpr HostList kHostLists[] = {
    {"SKYPILOT_NODE_IPS", false, "SKYPILOT_INTERNAL_JOB_ID"},
    {"PBS_NODEFILE", true, "PBS_JOBID"},
    {"LSB_DJOB_HOSTFILE", true, "LSB_JOBID"},
    {"LSB_HOSTS", false, "LSB_JOBID"},
};
constexpr int kFirstPort = 20000;
constexpr unsigned kPorts = 10000;  // below those that kernels give
constexpr size_t kMaxName = 255;

std::string Text(const GetEnv& env, const char* name) {
  const char* value = env(name);
  return value == nullptr ? "" : value;
}

// Up to the first space or end of a line; empty: there is none.
std::string FirstWord(absl::string_view text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  size_t end = 0;
  while (end < text.size() && !absl::ascii_isspace(text[end])) ++end;
  const absl::string_view word = text.substr(0, end);
  for (const char c : word) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_' &&
        c != ':') {
      return "";
    }
  }
  return std::string(word.size() > kMaxName ? "" : word);
}

std::string FirstWordOfFile(const std::string& path) {
  const absl::StatusOr<UniqueFd> file = OpenFile(path);
  if (!file.ok()) return "";
  const absl::StatusOr<std::string> start = ReadUpTo(*file, kMaxName + 1);
  return start.ok() ? FirstWord(*start) : "";
}

// "1234.server" and "1234[5]" are of job 1234.
int PortOf(const std::string& job) {
  unsigned number = 0;
  for (const char c : job) {
    if (!absl::ascii_isdigit(c)) break;
    number = (number * 10 + static_cast<unsigned>(c - '0')) % kPorts;
  }
  return kFirstPort + static_cast<int>(number);
}

}  // namespace

absl::StatusOr<std::optional<HostPort>> MeetingOfBatchSystem(
    const GetEnv& env) {
  for (const HostList& list : kHostLists) {
    const std::string value = Text(env, list.variable);
    if (value.empty()) continue;
    const std::string host =
        list.is_file ? FirstWordOfFile(value) : FirstWord(value);
    if (host.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          list.variable, "=", value.substr(0, kMaxName), " names no host"));
    }
    return HostPort{host, PortOf(Text(env, list.job))};
  }
  return std::nullopt;
}

}  // namespace telegrad
