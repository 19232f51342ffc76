#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "transport/decorators/fault/fault_spec.h"
#include "transport/decorators/fault/fault_transport.h"
#include "transport/delaying.h"

namespace telegrad::fault {

// What is harmed is for checksums to find: it is never in memory.
class FaultContext : public DelayingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);

  TransportInfo info() const override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;

 private:
  struct Link {
    uint64_t number = 0;
    uint64_t num_sent = 0;
    bool holds_last = false;  // the last in the queue leaves after the next
    bool is_killed = false;
  };

  FaultContext(const Spec& spec, const TransportOptions& options,
               TransportHandler* handler)
      : DelayingContext(options, handler), spec_(spec) {}

  void OnAccept(EndpointId endpoint) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  void Enqueue(EndpointId to, DelayedMessage message,
               DelayedMessages& queue) override;

  void AddLink(EndpointId id, bool is_accepted);
  bool Count(const Fate& fate, Fault fault);
  void Harm(Link& link, const Fate& fate, DelayedMessage message,
            DelayedMessages& queue);

  const Spec spec_;
  std::unordered_map<EndpointId, Link> links_;
  std::array<uint64_t, 2> num_links_ = {};  // connected, accepted
  std::array<uint64_t, kNumFaults> counts_ = {};
};

}  // namespace telegrad::fault
