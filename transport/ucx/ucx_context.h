#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "base/poller.h"
#include "transport/idle_polls.h"
#include "transport/transport.h"
#include "transport/ucx/endpoints.h"
#include "transport/ucx/mailbox.h"
#include "transport/ucx/receiver.h"
#include "transport/ucx/routes.h"
#include "transport/ucx/sender.h"
#include "transport/ucx/shared_memory.h"
#include "transport/ucx/worker.h"

namespace telegrad::ucx {

// UCX's callbacks only append to lists; Progress works them off outside UCX, so
// that handlers may call whatever they like. One thread, except Wake.
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
  bool ChecksPackets(EndpointId endpoint) const override;
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

  absl::StatusOr<Endpoint*> AddEndpoint(ucp_ep_params_t* params,
                                        bool is_accepted);
  void AcceptRequested();
  static void OnConnectionRequest(ucp_conn_request_h request, void* context);

  bool has_events() const;  // whether there are events that nobody has heard
  bool HandleEvents();
  unsigned Poll(bool is_complete);
  void Sleep(TimePoint until);

  void Cut(Endpoint& endpoint);
  bool IsGone(Endpoint& endpoint);
  void AdvanceClosing();
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
  ucp_listener_h listener_ = nullptr;
  Poller poller_;  // descriptors of all workers
  // UCX may tell these from a thread of its own.
  Mailbox<ucp_conn_request_h> requests_;

  SharedMemory memory_;
  Endpoints endpoints_;
  Sender sender_;
  Routes routes_;
  Receiver receiver_;
  unsigned num_polls_ = 0;
  unsigned polls_to_net_ = 0;  // until the connections are asked, too
  IdlePolls idle_polls_;
  size_t num_events_ = 0;  // since HandleEvents began
};

}  // namespace telegrad::ucx
