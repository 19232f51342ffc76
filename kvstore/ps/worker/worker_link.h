#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvstore/ps/wire/link_probe.h"
#include "kvstore/ps/worker/server_links.h"
#include "kvstore/store_link.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

// How fast a worker's links to the servers are: one measurement at a time.
class WorkerLink : public StoreLink {
 public:
  // All outlive it.
  WorkerLink(WorkerGroup& group, ServerLinks& links,
             const WorkerFailure& failure)
      : group_(group), links_(links), failure_(failure) {}

  absl::StatusOr<LinkFigures> Measure(Duration at_most) override;
  double load() const override;
  std::string identity() const override;
  std::string transport_details() const override { return links_.details(); }

  // The io thread's: answers to probes, and the end of whoever waits for them.
  absl::StatusOr<Bytes> OnHeader(int server, const FrameHeader& header);
  void OnEcho(int server);
  void End(const absl::Status& why);

 private:
  struct Measurement {
    bool is_abandoned = false;              // nobody waits; with mutex_
    bool is_over = false;                   // as well
    std::unique_ptr<LinkProbe> probe;       // io thread until the ticket ends
    Buffer payload;                         // of all probes
    std::vector<Buffer> echoes;             // by server, for all of its echoes
    std::vector<ProbeFrame> frames;         // the last, by server
    std::vector<FrameHeaderBytes> headers;  // of these
    std::shared_ptr<Ticket::State> ticket;
  };
  absl::StatusOr<std::shared_ptr<Measurement>> MeasureMine(Duration duration);
  std::shared_ptr<Measurement> measurement() const {
    MutexLock lock(&mutex_);
    return measurement_;
  }
  void SendProbe(const std::shared_ptr<Measurement>& active, int server,
                 const ProbeFrame& frame);
  std::vector<size_t> CountedServers() const;

  WorkerGroup& group_;
  ServerLinks& links_;
  const WorkerFailure& failure_;
  mutable Mutex mutex_;
  std::shared_ptr<Measurement> measurement_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
