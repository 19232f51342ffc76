#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "base/open_library.h"
#include "base/vendor.h"

// Functions of libucp and, among what it brings along, of libuct and libucs.
#define TELEGRAD_UCX_FUNCTIONS(F)   \
  F(ucp_am_data_release)            \
  F(ucp_am_recv_data_nbx)           \
  F(ucp_am_send_nbx)                \
  F(ucp_cleanup)                    \
  F(ucp_config_modify)              \
  F(ucp_config_print)               \
  F(ucp_config_read)                \
  F(ucp_config_release)             \
  F(ucp_context_query)              \
  F(ucp_ep_close_nbx)               \
  F(ucp_ep_create)                  \
  F(ucp_ep_print_info)              \
  F(ucp_get_version)                \
  F(ucp_get_version_string)         \
  F(ucp_init_version)               \
  F(ucp_listener_create)            \
  F(ucp_listener_destroy)           \
  F(ucp_listener_query)             \
  F(ucp_listener_reject)            \
  F(ucp_request_check_status)       \
  F(ucp_request_free)               \
  F(ucp_worker_arm)                 \
  F(ucp_worker_create)              \
  F(ucp_worker_destroy)             \
  F(ucp_worker_flush_nbx)           \
  F(ucp_worker_get_address)         \
  F(ucp_worker_get_efd)             \
  F(ucp_worker_progress)            \
  F(ucp_worker_query)               \
  F(ucp_worker_release_address)     \
  F(ucp_worker_set_am_recv_handler) \
  F(ucs_debug_disable_signal)       \
  F(ucs_global_opts_get_value)      \
  F(ucs_global_opts_set_value)      \
  F(ucs_log_pop_handler)            \
  F(ucs_log_push_handler)           \
  F(ucs_status_string)              \
  F(uct_component_query)            \
  F(uct_query_components)           \
  F(uct_release_component_list)

TELEGRAD_UCX_FUNCTIONS(TELEGRAD_FORWARD)

namespace telegrad::vendor {
namespace {

bool HasRdmaDevices() {
  std::error_code error;
  return !std::filesystem::is_empty("/dev/infiniband", error) && !error;
}

// UCX replaces brk and sbrk, to hear of registered memory that is given back,
// by functions that are wrong beside each other: where one thread makes a
// context while another's heap grows, malloc finds "break adjusted to free
// malloc space". Without a device that memory is registered with, it is told
// to leave them. Children may be on other hosts: they do not inherit that.
absl::Status Load() {
  constexpr char kMemoryEvents[] = "UCX_MEM_EVENTS";
  const bool is_told = getenv(kMemoryEvents) == nullptr && !HasRdmaDevices();
  if (is_told) setenv(kMemoryEvents, "no", /*overwrite=*/1);
#define TELEGRAD_ROW(name) {#name, &telegrad_slot_##name},
  const absl::Status opened =
      FromPackage(Open("libucp.so.0", {TELEGRAD_UCX_FUNCTIONS(TELEGRAD_ROW)}),
                  "UCX 1.13 or newer (Debian: libucx0; pip: telegrad[ucx])");
#undef TELEGRAD_ROW
  if (is_told) unsetenv(kMemoryEvents);
  return opened;
}

}  // namespace

absl::Status OpenUcx() {
  static const absl::Status opened = Load();
  return opened;
}

namespace {

// UCX moves the end of the heap when it is loaded, which goes wrong beside a
// thread that allocates: so it is loaded before there is one.
[[gnu::constructor]] void OpenUcxFirst() { OpenUcx().IgnoreError(); }

}  // namespace
}  // namespace telegrad::vendor
