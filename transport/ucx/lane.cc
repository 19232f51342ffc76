#include "transport/ucx/lane.h"

#include <ucs/config/global_opts.h>

#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "transport/ucx/config.h"

namespace telegrad::ucx {
namespace {

class QuietUcx {
 public:
  QuietUcx() {
    if (ucs_global_opts_get_value("LOG_LEVEL", level_, sizeof(level_)) ==
        UCS_OK) {
      ucs_global_opts_set_value("LOG_LEVEL", "error");
    }
  }
  ~QuietUcx() {
    if (level_[0] != 0) ucs_global_opts_set_value("LOG_LEVEL", level_);
  }

 private:
  char level_[64] = "";
};

}  // namespace

absl::StatusOr<std::unique_ptr<Lane>> Lane::Make(
    ucp_context_h context, ucp_am_recv_callback_t on_arrived, Endpoint* owner) {
  std::unique_ptr<Lane> lane(new Lane);
  lane->owner_ = owner;
  ASSIGN_OR_RETURN(lane->worker_, MakeWorker(context, on_arrived, lane.get()));
  ucp_address_t* address = nullptr;
  size_t size = 0;
  RETURN_IF_ERROR(
      Check("ucp_worker_get_address",
            ucp_worker_get_address(lane->worker(), &address, &size)));
  lane->address_.assign(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(lane->worker(), address);
  return lane;
}

Lane::~Lane() {
  Cut();
  if (close_request_ != nullptr) ucp_request_free(close_request_);
  if (flush_request_ != nullptr) ucp_request_free(flush_request_);
  if (!has_leftovers_) return;
  const QuietUcx quiet;  // it warns of each request that is left
  worker_ = Worker();
}

absl::Status Lane::Connect(absl::string_view peer_address,
                           ucp_err_handler_t on_failure) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = on_failure;
  RETURN_IF_ERROR(Check("ucp_ep_create over shared memory",
                        ucp_ep_create(worker_.handle, &params, &handle_)));
  is_pulling_ = absl::StrContains(LanesOf(handle_), "cma/");
  return absl::OkStatus();
}

void Lane::Cut() {
  if (handle_ == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request =
      ucp_ep_close_nbx(std::exchange(handle_, nullptr), &param);
  if (UCS_PTR_IS_PTR(request)) {
    close_request_ = request;
  } else if (UCS_PTR_IS_ERR(request)) {
    LogWarning("transport ucx: close of shared memory: ",
               ucs_status_string(UCS_PTR_STATUS(request)));
  }
}

bool Lane::IsQuiet() {
  if (flush_request_ == nullptr) {
    ucp_request_param_t param{};
    const ucs_status_ptr_t request =
        ucp_worker_flush_nbx(worker_.handle, &param);
    if (!UCS_PTR_IS_PTR(request)) return true;
    flush_request_ = request;
  }
  return ucp_request_check_status(flush_request_) != UCS_INPROGRESS;
}

}  // namespace telegrad::ucx
