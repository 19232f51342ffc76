#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/poller.h"
#include "transport/idle_polls.h"
#include "transport/transport.h"
#include "transport/ucx/address.h"
#include "transport/ucx/mailbox.h"
#include "transport/ucx/pool.h"
#include "transport/ucx/records.h"
#include "transport/ucx/worker.h"

namespace telegrad::ucx {

// Of all descriptors in the poller: whatever is ready, all workers are asked.
constexpr uint64_t kWorkerKey = 0;

// UCX's callbacks only append to the lists below; Progress works them off
// outside UCX, so that handlers may call whatever they like. One thread, except
// Wake.
class UcxContext : public TransportContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportOptions& options, TransportHandler* handler);
  // Cuts all endpoints. No handler and no `done` is called any more.
  ~UcxContext() override;

  TransportInfo info() const override;
  bool Takes(DeviceKind device) const override {
    return device == DeviceKind::kCpu || takes_cuda_;
  }
  bool IsInMemory(EndpointId endpoint) const override;
  absl::StatusOr<std::string> Listen() override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;
  void Wake() override { poller_.Wake(); }

 private:
  UcxContext(const TransportOptions& options, TransportHandler* handler);
  absl::Status Init();
  absl::Status InitNet();
  absl::Status InitShm();

  // ucx_context.cc
  absl::Status CheckDevice(Device device) const;
  absl::StatusOr<Endpoint*> AddEndpoint(ucp_ep_params_t* params);
  Endpoint* Find(EndpointId id) const;
  void AcceptRequested();
  void HandleFailures();
  static void OnConnectionRequest(ucp_conn_request_h request, void* context);
  static void OnFailure(void* endpoint, ucp_ep_h handle, ucs_status_t status);

  // progress.cc
  bool has_events() const;  // that nobody has heard
  bool HandleEvents();
  unsigned Poll(bool is_complete);
  void Sleep(TimePoint until);

  // route.cc
  void Greet(Endpoint& endpoint);
  void ReceiveControl(Endpoint& endpoint, const Incoming& message);
  void ReceiveHello(Endpoint& endpoint, absl::string_view text);
  void HearLane(Endpoint& endpoint, absl::string_view address);
  void SettleWhenAgreed(Endpoint& endpoint);
  void ReceiveEarly(Endpoint& endpoint, const Incoming& message);
  void Settle(Endpoint& endpoint, Route route);

  // messages.cc
  void Post(Endpoint& endpoint, Kind kind, ConstBytes header,
            ConstBytes payload, SendDone done);
  void Submit(Endpoint& endpoint, Outgoing* message);
  void HandleSent();
  void HandleArrived();
  void HandleReceived();
  void ReceiveCuts();
  void TakeInOrder(Endpoint& endpoint, Incoming* message);
  void Announce(Endpoint& endpoint, Incoming* message);
  void Receive(Endpoint& endpoint, Incoming* message);
  void Deliver(Endpoint& endpoint);
  void Release(Incoming* message);
  static void OnSent(void* request, ucs_status_t status, void* outgoing);
  static ucs_status_t OnArrived(void* context, const void* header,
                                size_t header_bytes, void* data,
                                size_t data_bytes,
                                const ucp_am_recv_param_t* param);
  static ucs_status_t OnLaneArrived(void* lane, const void* header,
                                    size_t header_bytes, void* data,
                                    size_t data_bytes,
                                    const ucp_am_recv_param_t* param);
  ucs_status_t Take(const Endpoint& endpoint, ucp_worker_h worker,
                    ConstBytes header, Bytes payload, uint64_t attributes);
  static void OnReceived(void* request, ucs_status_t status, size_t num_bytes,
                         void* incoming);

  // closing.cc
  void BeginClosing(Endpoint& endpoint, State state, absl::Status why);
  void Fail(Endpoint& endpoint, absl::Status why);
  void ReceiveGoodbye(Endpoint& endpoint, Kind kind);
  void Cut(Endpoint& endpoint);
  bool IsGone(Endpoint& endpoint);
  void Abandon(Endpoint& endpoint);
  void AdvanceClosing();
  void AdvanceRetired();
  void DropLane(Endpoint& endpoint);
  TimePoint NextTimer() const;
  void CutAll();

  const TransportOptions options_;
  TransportHandler* const handler_;
  SocketAddress bind_;
  std::string details_;
  std::vector<std::string> ours_;  // settings of UCX: "UCX_HANDLE_ERRORS=none"
  bool takes_cuda_ = false;        // asked for, and all contexts do
  ucp_context_h context_ = nullptr;
  Worker worker_;
  ucp_context_h shm_context_ = nullptr;  // null: no shared memory
  std::string identity_;                 // of the host, while shm_context_
  ucp_listener_h listener_ = nullptr;
  Poller poller_;  // of all workers

  EndpointId next_id_ = 1;
  std::unordered_map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  mutable Endpoint* found_ = nullptr;  // the last; most calls ask for it again
  std::unordered_map<ucp_ep_h, Endpoint*> by_handle_;
  std::vector<EndpointId> closing_;
  std::vector<Lane*> lanes_;  // to be polled
  struct Retired {
    std::unique_ptr<Lane> lane;
    TimePoint until;
  };
  std::vector<Retired> retired_;
  unsigned num_polls_ = 0;
  unsigned polls_to_net_ = 0;  // until the connections are asked, too
  IdlePolls idle_polls_;
  size_t num_events_ = 0;  // since HandleEvents began
  Pool<Outgoing> outgoing_;
  Pool<Incoming> incoming_;

  // What UCX has told us and nobody has heard yet; the second of each pair is
  // being worked off.
  std::vector<Outgoing*> sent_, sent_now_;
  std::vector<Incoming*> arrived_, arrived_now_;
  std::vector<Incoming*> received_, received_now_;
  // UCX may tell these two from a thread of its own.
  Mailbox<ucp_conn_request_h> requests_;
  Mailbox<std::pair<EndpointId, ucs_status_t>> failures_;
};

}  // namespace telegrad::ucx
