#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kvstore/job/control/cancellation.h"
#include "kvstore/job/launch/placement.h"
#include "kvstore/program/member_flags.h"

namespace telegrad {

// One process in jobs that somebody else launched: it finds the scheduler
// once, then takes part in each of `num_runs` jobs that follow one another, at
// ports in a row. One thread. When a job fails the process ends.
class PlacedProcess {
 public:
  // The worker, if this process has that part.
  using Work = std::function<absl::Status(const DistOptions&)>;

  PlacedProcess(const MemberFlags& flags, const Placement& placement,
                const Parts& parts, std::shared_ptr<Cancellation> cancellation);

  absl::Status FindScheduler(int num_runs);

  // Every part of this process in the next job, until its end. `dist`: for
  // `job_id()`, without address and rank.
  absl::Status RunNext(DistOptions dist, const Work& work);
  std::string job_id() const;

 private:
  absl::StatusOr<std::unique_ptr<class Scheduler>> StartScheduler(
      const DistOptions& dist) const;

  const MemberFlags& flags_;
  const Placement& placement_;
  const Parts parts_;
  const std::shared_ptr<Cancellation> cancellation_;
  HostPort scheduler_ = {};  // the next job's
  int num_runs_ = 1;
  int next_run_ = 0;
};

}  // namespace telegrad
