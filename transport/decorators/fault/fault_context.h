#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/decorators/fault/fault_spec.h"
#include "transport/decorators/fault/fault_transport.h"
#include "transport/forwarding.h"

namespace telegrad::fault {

class FaultContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);

  TransportInfo info() const override;
  // What is harmed is for checksums to find.
  bool IsInMemory(EndpointId) const override { return false; }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;

 private:
  struct Message {
    TimePoint leaves = {};
    std::array<std::byte, kMaxCarriedBytes> header = {};
    size_t header_bytes = 0;
    ConstBytes payload = {};
    // A flipped payload.
    std::shared_ptr<std::vector<std::byte>> copy = nullptr;
    SendDone done = nullptr;
    bool is_twice = false;
  };
  struct Endpoint {
    uint64_t link = 0;
    uint64_t num_sent = 0;
    std::deque<Message> queue = {};
    std::deque<Message> held = {};  // at most one, to leave after the next
    bool is_closing = false;
    bool is_killed = false;
    TimePoint close_by = {};
  };

  FaultContext(const Spec& spec, size_t max_header_bytes,
               TransportHandler* handler)
      : ForwardingContext(handler),
        spec_(spec),
        max_header_bytes_(max_header_bytes) {}

  void OnAccept(EndpointId endpoint) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  void AddEndpoint(EndpointId id, bool is_accepted);
  bool Count(const Fate& fate, Fault fault);
  void Harm(Endpoint& endpoint, const Fate& fate, Message message);
  void Flip(uint64_t bit, Message* message);
  void Kill(EndpointId id, Endpoint& endpoint);
  void Enqueue(Endpoint& endpoint, Message message);
  void Release(EndpointId id, Endpoint& endpoint, TimePoint now);
  void Forward(EndpointId id, Message message);
  void Refuse(Endpoint& endpoint, const absl::Status& status);

  const Spec spec_;
  const size_t max_header_bytes_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::array<uint64_t, 2> num_links_ = {};  // connected, accepted
  std::array<uint64_t, kNumFaults> counts_ = {};
};

}  // namespace telegrad::fault
