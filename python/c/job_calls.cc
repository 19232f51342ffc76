#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/path/data_path.h"
#include "python/c/job.h"
#include "topology/plan.h"

using telegrad::Clock;
using telegrad::ExitCode;
using telegrad::c::Give;
using telegrad::c::TextOf;

namespace {

absl::Status CheckJob(const telegrad_job* job) {
  if (job == nullptr) return absl::InvalidArgumentError("job is null");
  return job->owner().Check();
}

const telegrad::c::Verdict* VerdictOf(const telegrad_job* job) {
  return job == nullptr ? nullptr : job->verdict().get();
}

}  // namespace

extern "C" {

void telegrad_job_options_init(telegrad_job_options* options, uint64_t size) {
  telegrad_job_options standard = {};
  standard.rank = -1;
  standard.num_workers = 1;
  standard.num_servers = 1;
  standard.num_threads = 1;
  standard.join_timeout_s = 60;
  standard.dead_timeout_s = 10;
  standard.operation_timeout_s = 300;
  standard.gpu = -1;
  telegrad::c::SetKnown(standard, size, options);
}

int32_t telegrad_job_start(const telegrad_job_options* options,
                           telegrad_job** job, telegrad_status* status) {
  if (job == nullptr) {
    return Give(absl::InvalidArgumentError("job is null"), status);
  }
  telegrad_job_options known;
  telegrad_job_options_init(&known, sizeof(known));
  const telegrad_job_options standard = known;
  absl::Status result = telegrad::c::TakeKnown(options, &known);
  if (known.num_workers == 0) known.num_workers = standard.num_workers;
  if (known.num_servers == 0) known.num_servers = standard.num_servers;
  if (known.join_timeout_s == 0) known.join_timeout_s = standard.join_timeout_s;
  if (known.dead_timeout_s == 0) known.dead_timeout_s = standard.dead_timeout_s;
  if (known.operation_timeout_s == 0) {
    known.operation_timeout_s = standard.operation_timeout_s;
  }
  std::unique_ptr<telegrad_job> made;
  if (result.ok()) result = telegrad_job::Start(known, &made);
  if (result.ok()) *job = made.release();
  return Give(result, status);
}

const char* telegrad_job_address(const telegrad_job* job) {
  return job == nullptr ? "" : job->address().c_str();
}

int32_t telegrad_job_role(const telegrad_job* job) {
  return job == nullptr ? -1 : job->role();
}

int32_t telegrad_job_join(telegrad_job* job, telegrad_status* status) {
  absl::Status result = CheckJob(job);
  if (result.ok()) result = job->Join();
  return Give(result, VerdictOf(job), status);
}

int32_t telegrad_job_serve(telegrad_job* job, double timeout_s,
                           telegrad_status* status) {
  absl::Status result = CheckJob(job);
  if (result.ok()) {
    const auto end = job->Serve(telegrad::c::After(timeout_s));
    if (!end.has_value()) return TELEGRAD_PENDING;
    result = *end;
  }
  return Give(result, VerdictOf(job), status);
}

int32_t telegrad_job_rank(const telegrad_job* job) {
  return job == nullptr || job->group() == nullptr ? -1 : job->group()->rank();
}

int32_t telegrad_job_num_workers(const telegrad_job* job) {
  return job == nullptr || job->group() == nullptr
             ? -1
             : job->group()->num_workers();
}

int32_t telegrad_job_num_servers(const telegrad_job* job) {
  return job == nullptr || job->group() == nullptr
             ? -1
             : job->group()->num_servers();
}

int32_t telegrad_job_plan(const telegrad_job* job, char* text,
                          uint64_t text_bytes, uint64_t* needed,
                          telegrad_status* status) {
  absl::Status result = CheckJob(job);
  if (result.ok() && job->group() == nullptr) {
    result = absl::FailedPreconditionError("a plan before the worker joins");
  }
  if (!result.ok()) return Give(result, VerdictOf(job), status);
  return telegrad::c::GiveText(
      telegrad::PlanToJson(job->group()->data_path().plan), text, text_bytes,
      needed, status);
}

int32_t telegrad_job_waits_for(const telegrad_job* job, char* text,
                               uint64_t text_bytes, uint64_t* needed,
                               telegrad_status* status) {
  const absl::Status result = CheckJob(job);
  if (!result.ok()) return Give(result, status);
  return telegrad::c::GiveText(job->WaitsFor(), text, text_bytes, needed,
                               status);
}

int32_t telegrad_job_metrics(const telegrad_job* job, char* text,
                             uint64_t text_bytes, uint64_t* needed,
                             telegrad_status* status) {
  const absl::Status result = CheckJob(job);
  if (!result.ok()) return Give(result, status);
  return telegrad::c::GiveText(job->metrics().Text(), text, text_bytes, needed,
                               status);
}

int32_t telegrad_job_dump_flight_record(const telegrad_job* job,
                                        const char* folder, char* text,
                                        uint64_t text_bytes, uint64_t* needed,
                                        telegrad_status* status) {
  const absl::Status result = CheckJob(job);
  if (!result.ok()) return Give(result, status);
  const telegrad::FlightLog& log = *job->options().flight;
  const std::string where = TextOf(folder, log.folder().c_str());
  if (where.empty()) {
    return Give(absl::InvalidArgumentError(
                    "no folder for flight records: give one, or set "
                    "TELEGRAD_FLIGHT_RECORDER"),
                status);
  }
  const auto files = log.Write(where);
  if (!files.ok()) return Give(files.status(), status);
  return telegrad::c::GiveText(absl::StrJoin(*files, "\n"), text, text_bytes,
                               needed, status);
}

const char* telegrad_job_metrics_address(const telegrad_job* job) {
  return job == nullptr ? "" : job->metrics_address().c_str();
}

int32_t telegrad_job_barrier(telegrad_job* job, telegrad_status* status) {
  absl::Status result = CheckJob(job);
  if (result.ok() && job->group() == nullptr) {
    result = absl::FailedPreconditionError("a barrier before the worker joins");
  }
  if (result.ok()) result = job->group()->Gather("c barrier", "").status();
  return Give(result, VerdictOf(job), status);
}

int32_t telegrad_job_failure(const telegrad_job* job, telegrad_status* status) {
  if (job == nullptr) return Give(CheckJob(job), status);
  const bool has_failed = job->verdict()->Get().has_value();
  return Give(has_failed ? absl::UnavailableError("") : absl::OkStatus(),
              job->verdict().get(), status);
}

void telegrad_job_fail(telegrad_job* job, int32_t exit_code,
                       const char* message) {
  if (job == nullptr || !job->owner().is_here()) return;
  const bool is_code = exit_code > 0 && exit_code < 256;  // as which others end
  job->Fail(is_code ? static_cast<ExitCode>(exit_code) : ExitCode::kInternal,
            TextOf(message, ""));
}

int32_t telegrad_job_close(telegrad_job* job, double timeout_s,
                           telegrad_status* status) {
  if (job == nullptr) return Give(absl::OkStatus(), status);
  if (const absl::Status forked = job->owner().Check(); !forked.ok()) {
    return Give(forked, status);  // nothing of it may be touched here
  }
  const absl::Status result = job->Close(telegrad::c::After(timeout_s));
  const std::shared_ptr<telegrad::c::Verdict> verdict = job->verdict();
  delete job;
  return Give(result, verdict.get(), status);
}

}  // extern "C"
