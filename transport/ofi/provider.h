#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad::ofi {

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

// libfabric's error codes are positive here.
absl::Status FabricError(absl::string_view what, int code);
// Makes a status of what a function of libfabric has returned: 0 or a negative
// code.
absl::Status CheckFi(absl::string_view what, int result);

// The first provider that `options.tls` allows and libfabric offers for the
// bind address: "tcp" is net or tcp;ofi_rxm, "shm", "verbs", "efa", a
// provider's own name, or "" (efa, verbs, tcp; on loopback tcp only). The
// user's FI_PROVIDER takes providers away, as always in libfabric. With the
// memory "direct" it is asked for FI_HMEM and, where it has none or no lanes to
// use it for, taken without.
// Errors: InvalidArgument, Unavailable.
absl::StatusOr<InfoPtr> ChooseProvider(const TransportOptions& options);

bool IsShm(const fi_info& info);
// Removes memory of shm that is named after this process's number and older
// than it: of one that was killed and had the same number, for which shm would
// take this process, and refuse the name (FI_EBUSY).
void RemoveForerunners(const fi_info& info);
// TransportContext::ChecksPackets.
bool ChecksPackets(const fi_info& info);
// Whether connections get endpoints of their own for large payloads.
bool HasLanes(const fi_info& info);
// Whether these may be in memory of CUDA devices.
bool HasDeviceMemory(const fi_info& info);

// "provider net 117.0, domain lo, ..., FI_HMEM no".
std::string Describe(const fi_info& info);

// Peers with the same text can talk to each other: the provider; for shared
// memory also the host, user and namespaces.
std::string FabricIdentity(const fi_info& info);

// An address of a peer is given to libfabric only if it is one of the kind of
// `own`: libfabric itself checks none.
bool IsAddressLike(const fi_info& info, absl::string_view own,
                   absl::string_view peers);

// The process of a peer in shared memory, by its address; 0: no such number.
int ShmProcess(const std::string& peers);

// Removes what the process of this peer has left in /dev/shm if it was killed;
// false while it lives.
bool RemoveLeftovers(const fi_info& info, const std::string& peers);

}  // namespace telegrad::ofi
