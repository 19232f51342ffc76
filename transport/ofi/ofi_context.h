#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/acceptor.h"
#include "base/poller.h"
#include "base/socket.h"
#include "transport/idle_polls.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/lane_agreement.h"
#include "transport/ofi/receiver.h"
#include "transport/ofi/sender.h"
#include "transport/transport.h"

namespace telegrad::ofi {

// One thread, except Wake.
class OfiContext : public TransportContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportOptions& options, TransportHandler* handler);

  // Cuts all endpoints, after peers in this process were given time to leave
  // our memory alone. No handler and no `done` is called any more.
  ~OfiContext() override;

  TransportInfo info() const override;
  bool TakesSome(DeviceKind device) const override {
    return Takes(device) || fabric_->has_device_memory();
  }
  bool TakesNow(Bytes target) override { return receiver_.TakesNow(target); }
  bool IsInMemory(EndpointId endpoint) const override {
    return fabric_->is_shm() && endpoints_.Find(endpoint) != nullptr;
  }
  bool ChecksPackets(EndpointId endpoint) const override {
    return fabric_->checks_packets() && endpoints_.Find(endpoint) != nullptr;
  }
  absl::StatusOr<std::string> Listen() override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;
  void Wake() override { poller_.Wake(); }

 private:
  OfiContext(const TransportOptions& options, TransportHandler* handler,
             std::unique_ptr<Fabric> fabric);
  absl::Status Init();

  // The connection: proofs and hellos, then the sign of life.
  absl::StatusOr<Endpoint*> AddEndpoint(UniqueFd socket, bool is_accepted);
  void Accept();
  void HandleSocket(Endpoint& endpoint, uint32_t events);
  void SendHello(Endpoint& endpoint);
  void Write(Endpoint& endpoint);
  void ReadSocket(Endpoint& endpoint);
  void ReceiveProof(Endpoint& endpoint, absl::string_view* said);
  void ReceiveHello(Endpoint& endpoint);
  void HandleEnd(Endpoint& endpoint);

  void HandleCompletions();
  void AdvanceClosing();
  void Cut(Endpoint& endpoint);

  bool HandleEvents(bool is_complete);
  void PollSockets();
  void Sleep(TimePoint until);

  const TransportOptions options_;
  TransportHandler* const handler_;
  const std::unique_ptr<Fabric> fabric_;
  Poller poller_;
  Acceptor acceptor_;

  Endpoints endpoints_;
  LaneAgreement lanes_;
  Sender sender_;
  Receiver receiver_;
  std::vector<Completion> completions_;
  IdlePolls idle_polls_;
  bool has_yielded_ = false;  // since anything moved
  unsigned num_polls_ = 0;
  Duration nap_ = {};  // how long the next sleep without a file to wait for is
  size_t num_moved_ = 0;   // completions since HandleEvents began
  size_t num_events_ = 0;  // since HandleEvents began
};

}  // namespace telegrad::ofi
