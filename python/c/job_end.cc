#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "python/c/job.h"

// How jobs end where their program does, and where a worker left before others.
using telegrad::Clock;
using telegrad::ExitCode;
using telegrad::c::Give;
using telegrad::c::TextOf;

namespace {

constexpr double kFailedCloseS = 3;

struct OpenJob {
  telegrad_job* job = nullptr;
  telegrad_store* store = nullptr;
  double timeout_s = 0;
};

// All are left before one is waited for: members have them in any order.
void EndJobs(int exit_status, void* given) {
  const std::unique_ptr<std::vector<OpenJob>> jobs(
      static_cast<std::vector<OpenJob>*>(given));
  for (const OpenJob& each : *jobs) {
    if (!each.job->owner().is_here()) return;
    if (exit_status != 0) {
      const int32_t rank = telegrad_job_rank(each.job);
      const std::string why =
          absl::StrCat(rank < 0 ? absl::StrCat("process ", getpid())
                                : absl::StrCat("worker/", rank),
                       " has ended with exit status ", exit_status);
      telegrad_job_fail(each.job, static_cast<int>(ExitCode::kInternal),
                        why.c_str());
    }
    if (each.store != nullptr) telegrad_store_close(each.store);
  }
  for (const OpenJob& each : *jobs) {
    telegrad_status status;
    const double timeout_s = exit_status == 0 ? each.timeout_s : kFailedCloseS;
    const int32_t code = telegrad_job_close(each.job, timeout_s, &status);
    if (code != TELEGRAD_OK && exit_status == 0) {
      std::fprintf(stderr, "telegrad: %s\n", status.message);
    }
  }
}

// OK while all workers are there until `deadline`.
absl::Status NeedAll(telegrad_job& job, const char* what,
                     telegrad::TimePoint deadline) {
  RETURN_IF_ERROR(job.owner().Check());
  if (job.group() == nullptr) {
    return absl::FailedPreconditionError("workers before this one has joined");
  }
  for (;;) {
    if (job.verdict()->Get().has_value()) return absl::UnavailableError("");
    const std::vector<int> left = job.group()->Left();
    if (!left.empty()) {
      const std::string why =
          absl::StrCat("worker/", left.front(), " has left the job; ",
                       TextOf(what, "a call"), " of worker/",
                       job.group()->rank(), " waits for it");
      job.Fail(ExitCode::kPeerDied, why);
      return telegrad::WithExitCode(ExitCode::kPeerDied,
                                    absl::UnavailableError(why));
    }
    if (Clock::now() >= deadline) return absl::OkStatus();
    job.verdict()->Await(std::min<telegrad::TimePoint>(
        deadline, Clock::now() + std::chrono::milliseconds(50)));
  }
}

}  // namespace

extern "C" {

int32_t telegrad_jobs_close_at_exit(int64_t num, telegrad_job* const* jobs,
                                    telegrad_store* const* stores,
                                    const double* timeouts_s,
                                    telegrad_status* status) {
  if (jobs == nullptr || timeouts_s == nullptr) {
    return Give(absl::InvalidArgumentError("jobs or timeouts_s is null"),
                status);
  }
  auto open = std::make_unique<std::vector<OpenJob>>();
  for (int64_t i = 0; i < num; ++i) {
    if (jobs[i] == nullptr) {
      return Give(
          absl::InvalidArgumentError(absl::StrCat("job ", i, " is null")),
          status);
    }
    open->push_back(
        {jobs[i], stores == nullptr ? nullptr : stores[i], timeouts_s[i]});
  }
  if (on_exit(EndJobs, open.get()) != 0) {
    return Give(absl::ResourceExhaustedError("on_exit takes no more"), status);
  }
  static_cast<void>(open.release());
  return Give(absl::OkStatus(), status);
}

int32_t telegrad_job_need_all(telegrad_job* job, const char* what,
                              double timeout_s, telegrad_status* status) {
  if (job == nullptr) {
    return Give(absl::InvalidArgumentError("job is null"), status);
  }
  return Give(NeedAll(*job, what, telegrad::c::After(timeout_s)),
              job->verdict().get(), status);
}

}  // extern "C"
