#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/job/control/job.h"
#include "python/c/bytes.h"
#include "python/c/job.h"

// How a job goes on without those who died, or with others.
using telegrad::c::Give;
using telegrad::c::kVerdictDelay;

namespace {

// OK for a worker that has joined and, with `is_elastic`, outlives others.
absl::Status CheckMember(const telegrad_job* job, const char* what,
                         bool is_elastic = true) {
  if (job == nullptr) return absl::InvalidArgumentError("job is null");
  RETURN_IF_ERROR(job->owner().Check());
  if (is_elastic && job->options().elastic.min == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " of a job without elastic_min"));
  }
  if (job->group() != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " before the worker joins"));
}

absl::StatusOr<std::string> Share(telegrad_job& job, std::string mine) {
  ASSIGN_OR_RETURN(std::vector<std::string> all,
                   job.group()->Gather("c share", mine));
  return std::move(all[static_cast<size_t>(job.group()->elder())]);
}

}  // namespace

absl::Status telegrad_job::Enter(
    absl::StatusOr<std::unique_ptr<telegrad::WorkerGroup>> group) {
  verdict_->Forget(group.ok() ? (*group)->membership().epoch
                              : std::numeric_limits<uint64_t>::max());
  RETURN_IF_ERROR(group.status());
  group_ = *std::move(group);
  joined_ = group_.get();
  return absl::OkStatus();
}

bool telegrad_job::AwaitsEpoch() const {
  if (options_.elastic.min == 0) return false;
  const auto end = verdict_->Await(telegrad::Clock::now() + kVerdictDelay);
  return end.has_value() && end->seat >= 0;
}

absl::Status telegrad_job::CheckCanReconfigure() const {
  const auto end = verdict_->Get();
  const bool is_over = end.has_value() && end->seat < 0;
  if (!group_->seat().has_value() && !is_over) {
    return absl::FailedPreconditionError(
        "reconfigure of an epoch that has not ended: nobody has died, and "
        "nobody was let in");
  }
  if (in_use_.use_count() == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "reconfigure beside a store, group or operations of the epoch before: "
      "close them first");
}

absl::Status telegrad_job::Reconfigure() {
  const auto end = verdict_->Get();
  if (end.has_value() && end->seat < 0) return telegrad::StatusOf(*end);
  verdict_->Forget(group_->membership().epoch + 1);
  joined_ = nullptr;
  has_store_ = false;
  num_groups_ = 0;
  return Enter(telegrad::JoinNextEpoch(std::move(group_)));
}

extern "C" {

int32_t telegrad_job_let_in(telegrad_job* job, telegrad_status* status) {
  const absl::Status wrong = CheckMember(job, "let_in");
  if (!wrong.ok()) return Give(wrong, status);
  return Give(telegrad::LetIn(*job->group()), job->verdict().get(), status);
}

int32_t telegrad_job_reconfigure(telegrad_job* job, telegrad_status* status) {
  absl::Status wrong = CheckMember(job, "reconfigure");
  if (wrong.ok()) wrong = job->CheckCanReconfigure();
  if (!wrong.ok()) return Give(wrong, status);
  return Give(job->Reconfigure(), job->verdict().get(), status);
}

int64_t telegrad_job_epoch(const telegrad_job* job) {
  if (job == nullptr || job->group() == nullptr) return -1;
  return static_cast<int64_t>(job->group()->membership().epoch);
}

int32_t telegrad_job_elder(const telegrad_job* job) {
  return job == nullptr || job->group() == nullptr ? -1 : job->group()->elder();
}

int32_t telegrad_job_share(telegrad_job* job, const void* mine,
                           uint64_t mine_bytes, telegrad_bytes** elders,
                           telegrad_status* status) {
  absl::Status wrong = CheckMember(job, "share", /*is_elastic=*/false);
  if (wrong.ok() && (elders == nullptr || (mine == nullptr && mine_bytes > 0)))
    wrong = absl::InvalidArgumentError("share without bytes, or a place");
  if (wrong.ok() && mine_bytes > telegrad::kMaxGatherBytes) {
    wrong = absl::InvalidArgumentError(
        absl::StrCat("share of ", mine_bytes, " bytes: it takes at most ",
                     telegrad::kMaxGatherBytes, "; a group broadcasts more"));
  }
  if (!wrong.ok()) return Give(wrong, status);
  std::string bytes(static_cast<const char*>(mine == nullptr ? "" : mine),
                    mine_bytes);
  return telegrad::c::GiveBytes(Share(*job, std::move(bytes)),
                                job->verdict().get(), elders, status);
}

}  // extern "C"
