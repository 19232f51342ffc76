#include <stdlib.h>

#include "base/open_library.h"
#include "base/vendor.h"

// libfabric's functions with a body; the others are inline, by tables of the
// provider. With the versions of libfabric 1.17's header, which newer ones
// keep.
#define TELEGRAD_OFI_FUNCTIONS(F) \
  F(fi_dupinfo, "FABRIC_1.3")     \
  F(fi_fabric, "FABRIC_1.1")      \
  F(fi_freeinfo, "FABRIC_1.3")    \
  F(fi_getinfo, "FABRIC_1.3")     \
  F(fi_strerror, "FABRIC_1.0")    \
  F(fi_version, "FABRIC_1.0")

#define TELEGRAD_DEFINE(name, version) TELEGRAD_FORWARD(name)
TELEGRAD_OFI_FUNCTIONS(TELEGRAD_DEFINE)

namespace telegrad::vendor {

absl::Status OpenOfi() {
#define TELEGRAD_ROW(name, version) {#name, &telegrad_slot_##name, version},
  static const absl::Status opened = FromPackage(
      Open("libfabric.so.1", {TELEGRAD_OFI_FUNCTIONS(TELEGRAD_ROW)}),
      "libfabric 1.17 or newer (Debian: libfabric1)");
#undef TELEGRAD_ROW
  return opened;
}

namespace {

// libfabric's old PSM library, libinfinipath, else takes the signals of ends
// and faults when it is loaded, and its handler calls exit(): a process that is
// told to end then ends with 1, or hangs in destructors. Before there are
// threads, since they may read the environment.
[[gnu::constructor]] void LeaveSignals() {
  setenv("IPATH_NO_BACKTRACE", "1", /*overwrite=*/0);
}

}  // namespace
}  // namespace telegrad::vendor
