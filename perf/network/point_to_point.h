#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kvstore/job/path/worker_group.h"
#include "perf/network/network_options.h"
#include "perf/payload_memory.h"
#include "transport/transport.h"

namespace telegrad::perf {

// One of two ranks and its endpoint to the other. Payloads of any size land in
// one buffer, one after the other.
class Endpoint : public TransportHandler {
 public:
  // Rank 1 listens, rank 0 connects.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Make(
      const NetworkOptions& options, WorkerGroup& group, size_t max_bytes);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

  // Sends the first `bytes` bytes of out().
  absl::Status Send(size_t bytes);
  // Until `is_done()`; an error when the other rank is gone or nothing happens
  // for the timeout.
  absl::Status DriveUntil(const std::function<bool()>& is_done);
  // Until all that was sent has completed; the other rank drives, too.
  absl::Status AwaitSends();
  // While `call` runs on another thread.
  void DriveDuring(const std::function<void()>& call);

  TransportInfo info() const { return context_->info(); }
  PayloadMemory& out() { return *out_; }
  PayloadMemory& in() { return *in_; }
  int64_t num_heard() const { return num_heard_; }

 private:
  Endpoint(const NetworkOptions& options, int rank);

  const Duration timeout_;
  const int other_;
  std::unique_ptr<PayloadMemory> in_, out_;
  EndpointId peer_ = 0;
  int64_t num_heard_ = 0;
  int64_t num_begun_ = 0;  // sends
  int64_t num_sent_ = 0;
  int64_t num_events_ = 0;
  int64_t seen_ = 0;         // events at the last look at the clock
  TimePoint deadline_ = {};  // when the next event must have come, as of then
  absl::Status closed_;
  // Last: it goes first.
  std::unique_ptr<TransportContext> context_;
};

}  // namespace telegrad::perf
