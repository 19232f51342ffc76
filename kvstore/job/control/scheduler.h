#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/job/control/cancellation.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/job/control/secret.h"
#include "kvstore/job/control/timing.h"

// The scheduler lets processes join, gives ranks and addresses, checks that all
// agree, watches heartbeats and tells everyone when somebody dies. It runs over
// its own TCP connections, never over the data transport. docs/control_plane.md
// has its messages.
namespace telegrad {

class Metrics;  // base/metrics.h

struct SchedulerOptions {
  int num_workers = 1;
  int num_servers = 1;
  std::string bind_address = "127.0.0.1";
  int port = 0;  // 0: any free one
  std::string job_id = "local";
  Secret secret = {};
  bool insecure = false;  // non-loopback without a secret, by explicit wish
  ControlTiming timing = {};
  std::shared_ptr<Cancellation> cancellation = nullptr;  // may be null
  // The port is free for the next job as soon as everyone has joined: members
  // of that one wait for it, instead of being refused by this one.
  bool frees_port = false;
  Metrics* metrics = nullptr;  // outlives it; null: nobody asks
};

// Runs on threads of its own from Start on.
class Scheduler {
 public:
  // Fails with exit code 30 for a non-loopback address without a secret.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Start(
      const SchedulerOptions& options);
  virtual ~Scheduler() = default;
  // "127.0.0.1:40123".
  virtual std::string address() const = 0;
  // Blocks until all workers have left in order and the servers were told to
  // end (OK), or the job failed (the same event that all members were told).
  virtual absl::Status Wait(FatalEvent* event) = 0;
  // Ends the job for everyone, as Job::Fail does.
  virtual void Fail(const FatalEvent& event) = 0;
  // Fails, and waits until all members were told and are gone, a second at
  // most: before an end of the scheduler's own process.
  virtual void FailAndTell(const FatalEvent& event) = 0;
};

}  // namespace telegrad
