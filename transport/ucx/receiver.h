#pragma once

#include <ucp/api/ucp.h>

#include <utility>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx/endpoints.h"
#include "transport/ucx/pool.h"
#include "transport/ucx/records.h"
#include "transport/ucx/routes.h"
#include "transport/ucx/sender.h"
#include "transport/ucx/shared_memory.h"
#include "transport/ucx/worker.h"

namespace telegrad::ucx {

// Puts what comes in order, and brings it to where the handler wants it. UCX's
// callbacks only append to lists, which HandleArrived and HandleReceived work
// off. One thread.
class Receiver {
 public:
  // `worker` is that of connections; `context` says what it takes.
  Receiver(const TransportContext& context, TransportHandler& handler,
           size_t max_header_bytes, const Worker& worker, SharedMemory& memory,
           Endpoints& endpoints, Sender& sender, Routes& routes)
      : context_(context),
        handler_(handler),
        max_header_bytes_(max_header_bytes),
        worker_(worker),
        memory_(memory),
        endpoints_(endpoints),
        sender_(sender),
        routes_(routes) {}

  // For ucp_am_recv_callback_t, with a Receiver or a Lane as argument.
  static ucs_status_t OnArrived(void* receiver, const void* header,
                                size_t header_bytes, void* data,
                                size_t data_bytes,
                                const ucp_am_recv_param_t* param);
  static ucs_status_t OnLaneArrived(void* lane, const void* header,
                                    size_t header_bytes, void* data,
                                    size_t data_bytes,
                                    const ucp_am_recv_param_t* param);

  bool has_events() const { return !arrived_.empty() || !received_.empty(); }
  void HandleArrived();
  void HandleReceived();
  // Calls of the handler since it was asked last.
  size_t TakeEvents() { return std::exchange(num_events_, 0); }

  // The endpoint is cut: what was not announced.
  void ReleaseEarly(Endpoint& endpoint);
  // Its lane is: what UCX waits for a peer with, who may be dead.
  void Abandon(Endpoint& endpoint);
  // It is gone: what was announced.
  void ReleaseAnnounced(Endpoint& endpoint);
  // Works off the lists for nobody.
  void Forget();

 private:
  ucs_status_t Take(const Endpoint& endpoint, ucp_worker_h worker,
                    ConstBytes header, Bytes payload, uint64_t attributes);
  static void OnReceived(void* request, ucs_status_t status, size_t num_bytes,
                         void* incoming);
  void ReceiveControl(Endpoint& endpoint, const Incoming& message);
  void ReceiveGoodbye(Endpoint& endpoint);
  void ReceiveCuts();
  void TakeInOrder(Endpoint& endpoint, Incoming* message);
  void Announce(Endpoint& endpoint, Incoming* message);
  void Receive(Endpoint& endpoint, Incoming* message);
  void Deliver(Endpoint& endpoint);
  void Release(Incoming* message);

  const TransportContext& context_;
  TransportHandler& handler_;
  const size_t max_header_bytes_;
  const Worker& worker_;
  SharedMemory& memory_;
  Endpoints& endpoints_;
  Sender& sender_;
  Routes& routes_;
  Pool<Incoming> incoming_;
  // What UCX has told us; the second of each pair is being worked off.
  std::vector<Incoming*> arrived_, arrived_now_;
  std::vector<Incoming*> received_, received_now_;
  size_t num_events_ = 0;
};

}  // namespace telegrad::ucx
