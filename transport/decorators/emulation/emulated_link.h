#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "transport/decorators/emulation/emulation_transport.h"
#include "transport/forwarding.h"

namespace telegrad::link {

class EmulatedLinkContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);

  TransportInfo info() const override;
  bool IsInMemory(EndpointId) const override { return false; }  // a network
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;

 private:
  struct Message {
    TimePoint arrives;
    std::array<std::byte, kMaxCarriedBytes> header;
    size_t header_bytes = 0;
    ConstBytes payload;
    SendDone done;
  };
  struct Endpoint {
    std::deque<Message> queue;
    TimePoint free_from;  // when the link has sent all that is queued
    bool is_closing = false;
    TimePoint close_by;
  };

  EmulatedLinkContext(const TransportOptions& options,
                      TransportHandler* handler);

  void OnAccept(EndpointId endpoint) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  void Release(EndpointId id, Endpoint& endpoint, TimePoint now);
  void Refuse(Endpoint& endpoint, const absl::Status& status);

  const double bytes_per_s_;  // 0: any rate
  const Duration latency_;
  const size_t max_header_bytes_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
};

}  // namespace telegrad::link
