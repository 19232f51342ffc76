#include "base/open_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace telegrad::vendor {

absl::Status Open(const std::string& library,
                  const std::vector<Function>& functions) {
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
