#include "transport/ucx/worker.h"

#include <stdio.h>
#include <stdlib.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "transport/ucx/config.h"
#include "transport/ucx/records.h"

namespace telegrad::ucx {

Worker::Worker(Worker&& other) noexcept
    : handle(std::exchange(other.handle, nullptr)),
      fd(std::exchange(other.fd, -1)) {}

Worker& Worker::operator=(Worker&& other) noexcept {
  std::swap(handle, other.handle);
  std::swap(fd, other.fd);
  return *this;
}

Worker::~Worker() {
  if (handle != nullptr) ucp_worker_destroy(handle);
}

absl::StatusOr<Worker> MakeWorker(ucp_context_h context,
                                  ucp_am_recv_callback_t on_arrived,
                                  void* arg) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  Worker worker;
  RETURN_IF_ERROR(Check("ucp_worker_create",
                        ucp_worker_create(context, &params, &worker.handle)));
  ucp_worker_attr_t attr{};
  attr.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  RETURN_IF_ERROR(
      Check("ucp_worker_query", ucp_worker_query(worker.handle, &attr)));
  if (attr.max_am_header < kMaxRecordBytes) {
    return absl::UnimplementedError(absl::StrCat(
        "this UCX carries headers of ", attr.max_am_header, " bytes only"));
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  // UCX brings to a device only what it keeps; else whoever hears of what it
  // does not keep copies it, which costs less.
  if (TakesCuda(context)) handler.flags |= UCP_AM_FLAG_PERSISTENT_DATA;
  handler.cb = on_arrived;
  handler.arg = arg;
  RETURN_IF_ERROR(
      Check("ucp_worker_set_am_recv_handler",
            ucp_worker_set_am_recv_handler(worker.handle, &handler)));
  RETURN_IF_ERROR(Check("ucp_worker_get_efd",
                        ucp_worker_get_efd(worker.handle, &worker.fd)));
  return worker;
}

absl::Status Check(absl::string_view what, ucs_status_t status) {
  return status == UCS_OK ? absl::OkStatus() : UcxError(what, status);
}

// "lane[0]:  1:posix/memory.0 md[1]  -> md[1]/posix/sysdev[255] am am_bw#0",
// and a lane that carries messages says am or rma_bw at the end.
std::string LanesOf(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return "";
  ucp_ep_print_info(endpoint, stream);
  fclose(stream);
  const std::string printed(text, size);
  free(text);
  std::vector<std::string> lanes;
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" #"), absl::SkipEmpty());
    if (words.size() < 2 || words[0].rfind("lane[", 0) != 0) continue;
    bool carries = false;
    for (const std::string& word : words) {
      carries |= word == "am" || word == "am_bw" || word == "rma_bw";
    }
    if (!carries) continue;
    const size_t colon = words[1].find(':') + 1;
    lanes.push_back(words[1].substr(colon, words[1].rfind('.') - colon));
  }
  return absl::StrJoin(lanes, " ");
}

bool AreChecked(absl::string_view lanes) {
  bool has_rdma = false;
  for (const absl::string_view lane : absl::StrSplit(lanes, ' ')) {
    if (absl::StartsWith(lane, "tcp/")) return false;
    has_rdma |= absl::StartsWith(lane, "rc_") ||
                absl::StartsWith(lane, "dc_") || absl::StartsWith(lane, "ud_");
  }
  return has_rdma;
}

}  // namespace telegrad::ucx
