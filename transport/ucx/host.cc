#include "transport/ucx/host.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace telegrad::ucx {

std::string HostIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string identity;
  if (!std::getline(file, identity)) return "";
  for (const char* name : {"pid", "ipc", "net", "user"}) {
    std::error_code error;
    const std::string link =  // "pid:[4026531836]"
        std::filesystem::read_symlink(absl::StrCat("/proc/self/ns/", name),
                                      error);
    if (error) return "";
    absl::StrAppend(&identity, " ", link);
  }
  return absl::StrCat(identity, " uid:", geteuid());
}

}  // namespace telegrad::ucx
