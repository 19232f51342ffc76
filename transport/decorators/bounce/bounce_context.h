#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/decorators/bounce/bounce_transport.h"
#include "transport/decorators/bounce/device_copies.h"
#include "transport/decorators/bounce/fragment.h"
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
    return inner().Takes(device) || device == copies_.device();
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
  struct Arriving {
    Bytes target = {};  // where the handler wants it
    Copy copy = {};
    // Where it comes when the ring has no room for it, or after Close.
    Buffer ordinary = {};
    size_t num_copied = 0;  // bytes of `ordinary`, or being copied
    bool has_arrived = false;
  };
  struct Incoming {
    Whole whole;
    Bytes payload = {};                   // where the handler wants it
    std::deque<Arriving> fragments = {};  // that are not there yet

    // The first of them.
    bool has_arrived() const {
      return !fragments.empty() && fragments.front().has_arrived;
    }
  };
  struct Endpoint {
    std::deque<Outgoing> sends = {};     // that the inner one has not yet
    std::deque<Incoming> receives = {};  // announced, not heard
    size_t sending_bytes = 0;            // in pinned memory
    size_t receiving_bytes = 0;          // in pinned memory
    bool is_closing = false;             // Close was called
    TimePoint close_by = {};
    bool is_gone = false;    // the inner one is closed
    absl::Status why = {};   // not OK: nothing is sent or heard any more
    bool is_active = false;  // is in active_
  };

  BounceContext(std::unique_ptr<kernels::DeviceCopier> copier,
                TransportHandler* handler, const BounceLimits& limits);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  bool IsDirect(ConstBytes payload) const {
    return payload.size == 0 || inner().Takes(payload.device.kind);
  }
  absl::Status CheckDevice(ConstBytes payload) const;
  Endpoint* Find(EndpointId id);

  void Activate(EndpointId id, Endpoint& endpoint);
  void AdvanceAll();
  // Whether there is more to do later.
  bool Advance(EndpointId id, Endpoint& endpoint);
  void End(EndpointId id, Endpoint& endpoint, absl::Status why);
  TimePoint NextLook(TimePoint deadline) const;

  // sending.cc
  void BeginCopies(Endpoint& endpoint);
  void AdvanceSends(EndpointId id, Endpoint& endpoint);
  void Submit(EndpointId id, Outgoing fragment);
  void Finish(EndpointId id, Outgoing& fragment, const absl::Status& status);
  void RefuseSends(EndpointId id, Endpoint& endpoint);

  // receiving.cc
  absl::StatusOr<Bytes> BeginMessage(EndpointId from, Endpoint& endpoint,
                                     const Whole& whole, size_t size);
  absl::StatusOr<Bytes> BeginFragment(Endpoint& endpoint, Incoming& message,
                                      Bytes target);
  bool HasRoom(Endpoint& endpoint, size_t size);
  bool CopyOrdinary(Arriving& fragment);
  bool TakeArrived(EndpointId id, Endpoint& endpoint, Incoming& message);
  void DropBuffer(Endpoint& endpoint, Arriving& fragment);
  void AdvanceReceives(EndpointId id, Endpoint& endpoint);
  void DropReceives(Endpoint& endpoint);

  const BounceLimits limits_;
  const size_t ring_bytes_;
  DeviceCopies copies_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::vector<EndpointId> active_;   // that wait for a copy or for an end
  std::vector<EndpointId> working_;  // those of this turn
  size_t sending_bytes_ = 0;         // in pinned memory
  size_t ordinary_bytes_ = 0;        // received beside the rings
  size_t num_events_ = 0;
};

}  // namespace telegrad::bounce
