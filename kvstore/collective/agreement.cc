#include "kvstore/collective/agreement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace telegrad::collective {
namespace {

constexpr size_t kMaxAbortBytes = 1024;

bool IsExitCode(uint32_t code) {
  return code > 0 && code < 128 &&
         absl::string_view(ExitReason(static_cast<ExitCode>(code))) !=
             "unknown";
}

}  // namespace

std::string Agreement::Now() const {
  return absl::StrCat("collective ", sequence_, " (", Describe(signature_),
                      ")");
}

absl::Status Agreement::Compare(int from, const Header& header) {
  if (Includes(header)) return absl::OkStatus();
  Break(WithExitCode(ExitCode::kMismatch,
                     absl::FailedPreconditionError(absl::StrCat(
                         "collectives differ: rank ", rank_, " is in ", Now(),
                         ", rank ", from, " in collective ", header.sequence,
                         " (", Describe(header.signature), ")"))));
  return broken_;
}

absl::Status StatusAsSaid(uint32_t said_code, absl::string_view said) {
  const ExitCode code = IsExitCode(said_code) ? static_cast<ExitCode>(said_code)
                                              : ExitCode::kInternal;
  absl::Status status = absl::AbortedError(said);
  if (code == ExitCode::kPeerDied) status = absl::UnavailableError(said);
  if (code == ExitCode::kMismatch) status = absl::FailedPreconditionError(said);
  if (code == ExitCode::kTimeout) status = absl::DeadlineExceededError(said);
  return WithExitCode(code, std::move(status));
}

void Agreement::BreakAsSaid(uint32_t code, absl::string_view said) {
  Break(StatusAsSaid(code, said));
  said_ = std::string(said);
}

std::string Agreement::AbortText() const {
  std::string text = said_;
  if (text.empty()) {
    text = absl::StrCat("rank ", rank_, " gave up: ", broken_.message());
  }
  text.resize(std::min(text.size(), kMaxAbortBytes));
  return text;
}

}  // namespace telegrad::collective
