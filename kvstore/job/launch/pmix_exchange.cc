#include "kvstore/job/launch/pmix_exchange.h"

#include <pmix.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr char kKey[] = "telegrad.scheduler";
constexpr size_t kMaxAddressBytes = 4096;
constexpr Duration kSilent = std::chrono::seconds(5);

absl::Status FromPmix(absl::string_view call, pmix_status_t status) {
  if (status == PMIX_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(call, ": ", PMIx_Error_string(status));
  if (status == PMIX_ERR_TIMEOUT) return absl::DeadlineExceededError(text);
  return absl::UnavailableError(text);
}

absl::Status Publish(const std::string& mine) {
  pmix_value_t value;
  PMIX_VALUE_CONSTRUCT(&value);
  PMIX_VALUE_LOAD(&value, mine.c_str(), PMIX_STRING);
  const pmix_status_t put = PMIx_Put(PMIX_GLOBAL, kKey, &value);
  PMIX_VALUE_DESTRUCT(&value);
  RETURN_IF_ERROR(FromPmix("PMIx_Put", put));
  return FromPmix("PMIx_Commit", PMIx_Commit());
}

// What PMIx's own thread ends, maybe when nobody waits for it any more.
struct Fence {
  std::promise<pmix_status_t> ended;
  pmix_info_t info;
};

void EndFence(pmix_status_t status, void* fence) {
  auto* const mine = static_cast<Fence*>(fence);
  PMIX_INFO_DESTRUCT(&mine->info);
  mine->ended.set_value(status);
  delete mine;
}

// Returns when all ranks are here and hold what was put. Without it a Get may
// find nothing, or wait for ever, once rank 0 has finalized. Neither Slurm nor
// Open MPI hears PMIX_TIMEOUT.
absl::Status FenceAll(int timeout_s) {
  auto* const fence = new Fence;
  std::future<pmix_status_t> ended = fence->ended.get_future();
  bool collects = true;
  PMIX_INFO_LOAD(&fence->info, PMIX_COLLECT_DATA, &collects, PMIX_BOOL);
  const pmix_status_t asked =
      PMIx_Fence_nb(nullptr, 0, &fence->info, 1, EndFence, fence);
  if (asked != PMIX_SUCCESS) {
    EndFence(asked == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : asked, fence);
  }
  const Duration silent = std::min<Duration>(kSilent, FromSeconds(timeout_s));
  if (ended.wait_for(silent) != std::future_status::ready) {
    const Duration rest = FromSeconds(timeout_s) - silent;
    LogInfo("waiting for all ranks of the launcher (PMIx), ", ToSeconds(rest),
            " s at most");
    if (ended.wait_for(rest) != std::future_status::ready) {
      return WithExitCode(
          ExitCode::kJoinTimeout,
          absl::DeadlineExceededError(absl::StrCat(
              "not all ranks of the launcher have come to PMIx_Fence within "
              "--join-timeout ",
              timeout_s,
              " s; its own output may tell which were not started")));
    }
  }
  return FromPmix("PMIx_Fence of all ranks", ended.get());
}

absl::StatusOr<std::string> FetchFromRoot(const pmix_proc_t& self,
                                          int timeout_s) {
  pmix_proc_t root;
  PMIX_LOAD_PROCID(&root, self.nspace, 0);
  pmix_info_t info;
  PMIX_INFO_CONSTRUCT(&info);
  PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &timeout_s, PMIX_INT);
  pmix_value_t* value = nullptr;
  const pmix_status_t got = PMIx_Get(&root, kKey, &info, 1, &value);
  PMIX_INFO_DESTRUCT(&info);
  RETURN_IF_ERROR(FromPmix("PMIx_Get of rank 0's address", got));
  absl::StatusOr<std::string> address =
      absl::UnavailableError("PMIx_Get: rank 0's address is not a string");
  if (value->type == PMIX_STRING && value->data.string != nullptr &&
      strnlen(value->data.string, kMaxAddressBytes) < kMaxAddressBytes) {
    address = std::string(value->data.string);
  }
  PMIX_VALUE_RELEASE(value);
  return address;
}

absl::StatusOr<std::string> Exchange(const pmix_proc_t& self, int rank,
                                     const std::string& mine, int timeout_s) {
  if (self.rank != static_cast<pmix_rank_t>(rank)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "PMIx rank ", self.rank, " differs from the launcher's ", rank));
  }
  if (rank == 0) RETURN_IF_ERROR(Publish(mine));
  RETURN_IF_ERROR(FenceAll(timeout_s));
  absl::StatusOr<std::string> address = rank == 0
                                            ? absl::StatusOr<std::string>(mine)
                                            : FetchFromRoot(self, timeout_s);
  return address;
}

}  // namespace

absl::StatusOr<std::string> PmixExchange(int rank, const std::string& mine,
                                         int timeout_s) {
  if (timeout_s < 1) return absl::InvalidArgumentError("timeout below 1 s");
  pmix_proc_t self;
  RETURN_IF_ERROR(FromPmix("PMIx_Init", PMIx_Init(&self, nullptr, 0)));
  absl::StatusOr<std::string> address = Exchange(self, rank, mine, timeout_s);
  if (const absl::Status end =
          FromPmix("PMIx_Finalize", PMIx_Finalize(nullptr, 0));
      address.ok() && !end.ok()) {
    return end;
  }
  return address;
}

}  // namespace telegrad
