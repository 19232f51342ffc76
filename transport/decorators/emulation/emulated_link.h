#pragma once

#include <memory>
#include <unordered_map>

#include "transport/decorators/emulation/emulation_transport.h"
#include "transport/delaying.h"

namespace telegrad::link {

class EmulatedLinkContext : public DelayingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);

  TransportInfo info() const override;

 private:
  EmulatedLinkContext(const TransportOptions& options,
                      TransportHandler* handler);

  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  void Enqueue(EndpointId to, DelayedMessage message,
               DelayedMessages& queue) override;

  const double bytes_per_s_;  // 0: any rate
  const Duration latency_;
  // When an endpoint's link has sent all that is queued.
  std::unordered_map<EndpointId, TimePoint> free_from_;
};

}  // namespace telegrad::link
