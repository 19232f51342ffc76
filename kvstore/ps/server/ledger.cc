#include "kvstore/ps/server/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/log.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

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
  Json workers = Json::array();
  for (const Member& member : membership.workers) {
    workers.push_back(
        absl::StrCat(ToString(member.id), "@", member.host, ":", member.pid));
  }
  ledger.Write({{"epoch", membership.epoch},
                {"server", rank},
                {"workers", std::move(workers)}});
  return ledger;
}

void Ledger::Add(const std::string& tensor, const Chunk& chunk,
                 const PayloadFormat& format, const Answer& answer) {
  const ConstBytes payload = answer.result.chunk.payload;
  Write({{"step", answer.step},
         {"tensor", tensor},
         {"begin", chunk.begin},
         {"elems", chunk.num_elems},
         {"contributors", answer.contributors},
         {"format", static_cast<int>(format.reply)},
         {"packing", static_cast<int>(format.packing)},
         {"bytes", payload.size},
         {"crc32c", Crc32c(payload.data, payload.size)}});
}

// A full disk is no reason to end a job.
void Ledger::Write(const nlohmann::ordered_json& fields) {
  if (!is_open()) return;
  const std::string line = absl::StrCat(
      fields.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  if (write(file_.get(), line.data(), line.size()) ==
      static_cast<ssize_t>(line.size())) {
    return;
  }
  LogWarning("--ledger: ", path_, ": ", std::strerror(errno), "; it ends here");
  file_ = UniqueFd();
}

}  // namespace telegrad
