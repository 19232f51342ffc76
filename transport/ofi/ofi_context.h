#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/acceptor.h"
#include "base/poller.h"
#include "base/socket.h"
#include "transport/endpoint_table.h"
#include "transport/idle_polls.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/fabric.h"
#include "transport/transport.h"

namespace telegrad::ofi {

// One thread, except Wake.
class OfiContext : public TransportContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportOptions& options, TransportHandler* handler);

  // Cuts all endpoints. No handler and no `done` is called any more.
  ~OfiContext() override;

  TransportInfo info() const override;
  bool TakesSome(DeviceKind device) const override {
    return Takes(device) || fabric_->has_device_memory();
  }
  bool TakesNow(Bytes target) override;
  bool IsInMemory(EndpointId endpoint) const override {
    return fabric_->is_shm() && endpoints_.Find(endpoint) != nullptr;
  }
  absl::StatusOr<std::string> Listen() override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;
  void Wake() override { poller_.Wake(); }

 private:
  OfiContext(const TransportOptions& options, TransportHandler* handler);
  absl::Status Init();

  // greeting.cc
  absl::StatusOr<Endpoint*> AddEndpoint(UniqueFd socket);
  void Accept();
  void HandleSocket(Endpoint& endpoint, uint32_t events);
  void WriteHello(Endpoint& endpoint);
  void ReadSocket(Endpoint& endpoint);
  void ReceiveHello(Endpoint& endpoint);
  void HandleEnd(Endpoint& endpoint);
  static bool HasPeerLeft(const Endpoint& endpoint);

  // messages.cc
  Outgoing& Enqueue(Endpoint& endpoint, Kind kind, bool is_urgent);
  void StartPumping(Endpoint& endpoint);
  void PumpAll();
  bool Pump(Endpoint& endpoint);
  bool PumpOne(Endpoint& endpoint, Slot* slot);
  void HandleSent(Slot* slot, int error);
  void FinishPart(Endpoint& endpoint, Outgoing& message);
  void CallDone() { num_events_ += done_.CallAll(); }

  // receiving.cc
  void HandleCompletions();
  void HandleReceived(ConstBytes bytes);
  void TakeInOrder(Endpoint& endpoint, const Record& record, ConstBytes bytes);
  void Take(Endpoint& endpoint, const Record& record);
  static bool IsInMessage(const Endpoint& endpoint);
  Incoming* Begin(Endpoint& endpoint, const Record& record);
  void TakeData(Endpoint& endpoint, const Record& record);
  void Deliver(Endpoint& endpoint);
  void FailProtocol(Endpoint& endpoint, absl::string_view what);

  // large.cc
  absl::StatusOr<Registration> RegisterToSend(const Endpoint& endpoint,
                                              ConstBytes payload);
  bool IsAgreed(const Endpoint& endpoint) const;
  bool PrepareLarge(Endpoint& endpoint);
  void SendLarge(Endpoint& endpoint, Outgoing& message);
  size_t PackPlace(const Outgoing& message, std::byte* out) const;
  void Offer(Endpoint& endpoint);
  void Answer(Endpoint& endpoint, Kind kind, ConstBytes header);
  bool OpenLane(std::unique_ptr<Lane>* lane);
  void TakeOffer(Endpoint& endpoint, ConstBytes header);
  void TakeAccept(Endpoint& endpoint, ConstBytes header);
  void TakeTaken(Endpoint& endpoint);
  void TakeLarge(Endpoint& endpoint, const Record& record);
  void ReadFromPeer(Endpoint& endpoint, Incoming* message, ConstBytes place);
  void ReceiveOnLane(Endpoint& endpoint, Incoming* message, size_t num_bytes);
  void HandleLaneReceived(const Completion& completion);
  void CloseLanes(Endpoint& endpoint);

  // closing.cc
  void Fail(Endpoint& endpoint, absl::Status why);
  void ReceiveGoodbye(Endpoint& endpoint);
  void AdvanceClosing();
  void Cut(Endpoint& endpoint);
  void AwaitFragilePeers();

  // progress.cc
  bool HandleEvents(bool is_complete);
  void PollSockets();
  void Sleep(TimePoint until);

  const TransportOptions options_;
  TransportHandler* const handler_;
  std::unique_ptr<Fabric> fabric_;
  Poller poller_;
  Acceptor acceptor_;

  EndpointTable<Endpoint> endpoints_;
  size_t num_lanes_ = 0;
  uint64_t num_large_ = 0;  // messages sent that were not copied into slots
  std::deque<EndpointId> pumping_;  // that have something to send
  bool is_stalled_ = false;  // libfabric took no more; it does not say when
  DueCompletions done_;
  std::vector<Completion> completions_;
  IdlePolls idle_polls_;
  bool is_in_large_header_ = false;  // OnHeader runs, the payload has a lane
  std::optional<Registration> asked_for_;  // what TakesNow has registered
  bool has_yielded_ = false;               // since anything moved
  unsigned num_polls_ = 0;
  Duration nap_ = {};        // of the next sleep without a file to wait for
  size_t num_moved_ = 0;     // completions since HandleEvents began
  size_t num_events_ = 0;    // since HandleEvents began
  uint64_t num_strays_ = 0;  // records that belong to no endpoint
};

}  // namespace telegrad::ofi
