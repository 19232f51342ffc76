#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/ucx/worker.h"

namespace telegrad::ucx {

struct Endpoint;

// Shared memory to one peer of this host. In order of use: exchange
// address(), Connect, send over handle(), Cut. It has a worker of its own, so
// that its end is the end of all that UCX does with its messages, and nothing
// of it can be taken for another lane's.
class Lane {
 public:
  // `context` has shared memory only.
  static absl::StatusOr<std::unique_ptr<Lane>> Make(
      ucp_context_h context, ucp_am_recv_callback_t on_arrived,
      Endpoint* owner);
  ~Lane();

  absl::Status Connect(absl::string_view peer_address,
                       ucp_err_handler_t on_failure);
  // Cancels what is being sent and received; its callbacks follow.
  void Cut();
  // After Cut and Poll: nothing is under way. Must be true when it ends, unless
  // a full queue of a dead peer is what is left: UCX waits for it for ever.
  bool IsQuiet();
  unsigned Poll() const { return ucp_worker_progress(worker_.handle); }

  // Large messages are read from the sender's memory; it need not help.
  bool is_pulling() const { return is_pulling_; }

  // `arg` of on_arrived is the lane.
  Endpoint* owner() const { return owner_; }
  void Disown() { owner_ = nullptr; }

  // Some requests will never complete.
  void ExpectLeftovers() { has_leftovers_ = true; }
  const std::string& address() const { return address_; }
  ucp_ep_h handle() const { return handle_; }  // null: not connected, or cut
  ucp_worker_h worker() const { return worker_.handle; }
  int fd() const { return worker_.fd; }

 private:
  Lane() = default;
  Worker worker_;
  std::string address_;
  ucp_ep_h handle_ = nullptr;
  Endpoint* owner_ = nullptr;
  bool is_pulling_ = false;
  bool has_leftovers_ = false;
  ucs_status_ptr_t close_request_ = nullptr;
  ucs_status_ptr_t flush_request_ = nullptr;
};

}  // namespace telegrad::ucx
