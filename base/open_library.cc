#include "base/open_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace telegrad::vendor {
namespace {

// libfabric's old PSM library, libinfinipath, takes these when it is loaded:
// its handler calls exit(), so that a process that is to end runs destructors
// in the middle of anything, and hangs or crashes. What other threads install
// meanwhile stays.
class SignalKeeper {
 public:
  SignalKeeper() {
    for (auto& [number, before] : kept_) sigaction(number, nullptr, &before);
  }
  ~SignalKeeper() {
    for (auto& [number, before] : kept_) {
      struct sigaction now = {};
      Dl_info owner = {};
      sigaction(number, nullptr, &now);
      const bool is_taken =
          dladdr(reinterpret_cast<void*>(now.sa_handler), &owner) != 0 &&
          owner.dli_fname != nullptr &&
          absl::StrContains(owner.dli_fname, "infinipath");
      if (is_taken) sigaction(number, &before, nullptr);
    }
  }
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;

 private:
  std::pair<int, struct sigaction> kept_[6] = {{SIGINT, {}},  {SIGTERM, {}},
                                               {SIGABRT, {}}, {SIGSEGV, {}},
                                               {SIGBUS, {}},  {SIGILL, {}}};
};

}  // namespace

absl::Status Open(const std::string& library,
                  const std::vector<Function>& functions) {
  const SignalKeeper keeper;
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(::dlerror());
  std::vector<void*> found;
  for (const auto& [name, slot, version] : functions) {
    found.push_back(version == nullptr ? ::dlsym(handle, name)
                                       : ::dlvsym(handle, name, version));
    if (found.back() != nullptr) continue;
    ::dlclose(handle);
    return absl::UnavailableError(
        absl::StrCat(library, " has no ", name, version == nullptr ? "" : "@",
                     version == nullptr ? "" : version));
  }
  for (size_t i = 0; i < functions.size(); ++i) *functions[i].slot = found[i];
  return absl::OkStatus();
}

absl::Status FromPackage(const absl::Status& opened,
                         absl::string_view package) {
  if (opened.ok()) return opened;
  return absl::UnavailableError(absl::StrCat(
      "not installed: ", opened.message(), "; it comes with ", package,
      "; LD_LIBRARY_PATH names other folders to look in"));
}

}  // namespace telegrad::vendor
