#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad::ucx {

// A UCX worker that hears our active messages. Moves; one thread.
struct Worker {
  Worker() = default;
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&& other) noexcept;
  ~Worker();

  ucp_worker_h handle = nullptr;
  int fd = -1;  // readable when there is something to do, once armed
};

absl::StatusOr<Worker> MakeWorker(ucp_context_h context,
                                  ucp_am_recv_callback_t on_arrived, void* arg);

// OK, or UcxError.
absl::Status Check(absl::string_view what, ucs_status_t status);

// The lanes that carry messages of `endpoint`: "posix/memory cma/memory".
std::string LanesOf(ucp_ep_h endpoint);
// Whether all of these that leave this machine are RDMA's, whose packets have
// checks of their own: "rc_mlx5/mlx5_0:1".
bool AreChecked(absl::string_view lanes);

}  // namespace telegrad::ucx
