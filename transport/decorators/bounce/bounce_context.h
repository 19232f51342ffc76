#pragma once

#include <deque>
#include <memory>
#include <unordered_map>

#include "transport/decorators/bounce/bounce_transport.h"
#include "transport/decorators/bounce/device_copies.h"
#include "transport/decorators/bounce/fragment.h"
#include "transport/decorators/bounce/receive_queue.h"
#include "transport/endpoint_table.h"
#include "transport/forwarding.h"

namespace telegrad::bounce {

class BounceContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
      const BounceLimits& limits);
  ~BounceContext() override { EndInner(); }

  TransportInfo info() const override;
  bool Takes(DeviceKind device) const override {
    return inner().Takes(device) || device == staging_.copies.device();
  }
  bool ChecksPackets(EndpointId endpoint) const override {
    return inner().ChecksPackets(endpoint);
  }
  bool IsSealed(EndpointId endpoint) const override {
    return inner().IsSealed(endpoint);
  }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;

 private:
  struct Message {
    Whole whole;
    ConstBytes payload = {};
    SendDone done = nullptr;
    size_t num_left = 0;  // fragments that are not done with
    absl::Status status = {};
  };
  // A fragment of a message, or all of it.
  struct Outgoing {
    std::shared_ptr<Message> message;
    ConstBytes payload = {};
    Copy copy = {};
    bool is_begun = false;
  };
  struct Endpoint {
    Endpoint(EndpointId own_id, Staging& staging)
        : id(own_id), receives(staging) {}

    const EndpointId id;
    // Messages that the inner context has not yet.
    std::deque<Outgoing> sends = {};
    ReceiveQueue receives;
    size_t sending_bytes = 0;  // in pinned memory
    bool is_closing = false;   // Close was called
    TimePoint close_by = {};
    bool is_gone = false;   // the inner one is closed
    absl::Status why = {};  // not OK: nothing is sent or heard any more
    bool has_turn = false;
  };

  BounceContext(std::unique_ptr<kernels::DeviceCopier> copier,
                TransportHandler* handler, const BounceLimits& limits);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  // Whether the inner transport takes it as it is, whatever its size.
  bool IsDirect(ConstBytes payload) const {
    return payload.size == 0 || inner().Takes(payload.device.kind);
  }
  absl::Status CheckDevice(ConstBytes payload) const;
  Endpoint* Find(EndpointId id);

  void AdvanceAll();
  // Whether there is more to do later.
  bool Advance(Endpoint& endpoint);
  void End(Endpoint& endpoint, absl::Status why);
  TimePoint NextLook(TimePoint deadline);

  void BeginCopies(Endpoint& endpoint);
  void AdvanceSends(Endpoint& endpoint);
  void Submit(EndpointId id, Outgoing fragment);
  void Finish(EndpointId id, Outgoing& fragment, const absl::Status& status);
  void RefuseSends(Endpoint& endpoint);

  absl::StatusOr<Bytes> BeginMessage(Endpoint& endpoint, const Whole& whole,
                                     size_t size);
  void AdvanceReceives(Endpoint& endpoint);

  const size_t most_sending_bytes_;
  Staging staging_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  Turns turns_;               // endpoints that wait for a copy or for an end
  size_t sending_bytes_ = 0;  // in pinned memory
  size_t num_events_ = 0;
};

}  // namespace telegrad::bounce
