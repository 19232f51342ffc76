#include "kvstore/collective/nccl/greeting.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/collective/nccl/library.h"

namespace telegrad::collective {
namespace {

constexpr size_t kIdDigits = size_t{2} * NCCL_UNIQUE_ID_BYTES;

absl::StatusOr<ncclUniqueId> ParseId(const std::string& text) {
  if (text.size() != kIdDigits ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "nccl: rank 0 gave an id of ", text.size(), " characters, due are ",
        kIdDigits, " hexadecimal digits of lower case"));
  }
  const std::string bytes = absl::HexStringToBytes(text);
  ncclUniqueId id = {};
  std::copy_n(bytes.data(), sizeof(id.internal), id.internal);
  return id;
}

absl::Status Differs(size_t rank, int version, const std::string& has) {
  return WithExitCode(ExitCode::kMismatch,
                      absl::FailedPreconditionError(absl::StrCat(
                          "group: rank ", rank, " has ", has,
                          ", this rank NCCL ", VersionText(version))));
}

}  // namespace

std::string Greet(int version, const ncclUniqueId* id,
                  const std::string& address) {
  const std::string digits = id == nullptr
                                 ? "-"
                                 : absl::BytesToHexString(absl::string_view(
                                       id->internal, sizeof(id->internal)));
  return absl::StrCat("nccl ", version, " ", digits, "\n", address);
}

absl::Status ReceiveGreetings(int version, std::vector<std::string>* texts,
                              ncclUniqueId* id) {
  for (size_t rank = 0; rank < texts->size(); ++rank) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit((*texts)[rank], absl::MaxSplits('\n', 1));
    const std::vector<std::string> words = absl::StrSplit(parts.first, ' ');
    if (words.size() != 3 || words[0] != "nccl") {
      return Differs(rank, version, "no NCCL");
    }
    if (words[1] != absl::StrCat(version)) {
      return Differs(rank, version, absl::StrCat("NCCL's version ", words[1]));
    }
    if (rank == 0) {
      ASSIGN_OR_RETURN(*id, ParseId(words[2]));
    }
    (*texts)[rank] = parts.second;
  }
  return absl::OkStatus();
}

}  // namespace telegrad::collective
