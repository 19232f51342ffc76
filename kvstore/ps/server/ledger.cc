#include "kvstore/ps/server/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/log.h"

namespace telegrad {
namespace {

// Names are what others have sent.
std::string Quoted(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/true,
                         Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<Ledger> Ledger::Open(const std::string& folder,
                                    const Membership& membership) {
  Ledger ledger;
  if (folder.empty()) return ledger;
  const int rank = membership.self.rank;
  ledger.path_ = absl::StrCat(folder, "/", OwnHostName(), "-", getpid(),
                              "-server", rank, ".jsonl");
  ledger.file_ = UniqueFd(
      open(ledger.path_.c_str(),
           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
           0600));
  if (!ledger.is_open()) {
    return WithExitCode(
        ExitCode::kUsage,
        absl::FailedPreconditionError(absl::StrCat(
            "--ledger: ", ledger.path_, ": ", std::strerror(errno))));
  }
  ledger.Write(absl::StrCat(
      R"({"epoch":)", membership.epoch, R"(,"server":)", rank,
      R"(,"workers":[)",
      absl::StrJoin(membership.workers, ",",
                    [](std::string* out, const Member& member) {
                      absl::StrAppend(out, Quoted(absl::StrCat(
                                               ToString(member.id), "@",
                                               member.host, ":", member.pid)));
                    }),
      "]}\n"));
  return ledger;
}

void Ledger::Add(const std::string& tensor, const Chunk& chunk,
                 const PayloadFormat& format, const Answer& answer) {
  const ConstBytes payload = answer.result.chunk.payload;
  Write(absl::StrCat(
      R"({"step":)", answer.step, R"(,"tensor":)", Quoted(tensor),
      R"(,"begin":)", chunk.begin, R"(,"elems":)", chunk.num_elems,
      R"(,"contributors":)", answer.contributors, R"(,"format":)",
      static_cast<int>(format.reply), R"(,"packing":)",
      static_cast<int>(format.packing), R"(,"bytes":)", payload.size,
      R"(,"crc32c":)", Crc32c(payload.data, payload.size), "}\n"));
}

// A full disk is no reason to end a job.
void Ledger::Write(const std::string& line) {
  if (!is_open() || write(file_.get(), line.data(), line.size()) ==
                        static_cast<ssize_t>(line.size())) {
    return;
  }
  LogWarning("--ledger: ", path_, ": ", std::strerror(errno), "; it ends here");
  file_ = UniqueFd();
}

}  // namespace telegrad
