#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/forwarding.h"
#include "transport/staged/piece.h"
#include "transport/staged/pinned_pool.h"
#include "transport/staged/staged_transport.h"

namespace telegrad::staged {

class StagedContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
      const StagedLimits& limits);
  ~StagedContext() override { EndInner(); }

  TransportInfo info() const override;
  bool Takes(DeviceKind device) const override {
    return inner().Takes(device) || device == copier_->device();
  }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;

 private:
  // A copy that is under way, or has ended. No buffer: nothing to copy.
  struct Copy {
    std::byte* buffer = nullptr;
    kernels::DeviceCopier::Ticket ticket = 0;
    bool is_running = false;
    bool has_failed = false;
  };
  struct Message {
    Whole whole;
    ConstBytes payload = {};
    SendDone done = nullptr;
    size_t num_left = 0;  // pieces that are not done with
    absl::Status status = {};
  };
  // A piece of a message, or all of it.
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
    Bytes payload = {};                // where the handler wants it
    std::deque<Arriving> pieces = {};  // that are not there yet
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

  StagedContext(std::unique_ptr<kernels::DeviceCopier> copier,
                TransportHandler* handler, const StagedLimits& limits);

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
  absl::Status CopyError() const;
  Endpoint* Find(EndpointId id);

  void Activate(EndpointId id, Endpoint& endpoint);
  void AdvanceAll();
  // Whether there is more to do later.
  bool Advance(EndpointId id, Endpoint& endpoint);
  void End(EndpointId id, Endpoint& endpoint, absl::Status why);
  TimePoint NextLook(TimePoint deadline) const;
  void StartCopy(Copy& copy, Bytes to, ConstBytes from);
  // Whether it still runs.
  bool PollCopy(Copy& copy);
  void Drop(Copy& copy);

  // sending.cc
  void BeginCopies(Endpoint& endpoint);
  void AdvanceSends(EndpointId id, Endpoint& endpoint);
  void Submit(EndpointId id, Outgoing piece);
  void Finish(EndpointId id, Outgoing& piece, const absl::Status& status);
  void RefuseSends(EndpointId id, Endpoint& endpoint);

  // receiving.cc
  absl::StatusOr<Bytes> BeginMessage(EndpointId from, Endpoint& endpoint,
                                     const Whole& whole, size_t size);
  absl::StatusOr<Bytes> BeginPiece(Endpoint& endpoint, Incoming& message,
                                   Bytes target);
  absl::StatusOr<bool> AwaitRoom(Endpoint& endpoint, size_t size);
  // The first of those that are not there yet.
  static bool HasArrived(const Incoming& message) {
    return !message.pieces.empty() && message.pieces.front().has_arrived;
  }
  bool CopyOrdinary(Arriving& piece);
  bool TakeArrived(EndpointId id, Endpoint& endpoint, Incoming& message);
  void DropBuffer(Endpoint& endpoint, Arriving& piece);
  void AdvanceReceives(EndpointId id, Endpoint& endpoint);
  void DropReceives(Endpoint& endpoint);

  const StagedLimits limits_;
  const size_t ring_bytes_;
  std::unique_ptr<kernels::DeviceCopier> copier_;
  PinnedPool pool_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::vector<EndpointId> active_;   // that wait for a copy or for an end
  std::vector<EndpointId> working_;  // those of this turn
  size_t sending_bytes_ = 0;         // in pinned memory
  size_t num_running_ = 0;           // copies
  size_t num_events_ = 0;
};

}  // namespace telegrad::staged
