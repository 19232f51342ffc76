#include <sys/stat.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "topology/detect/live.h"
#include "topology/import.h"
#include "topology/nvidia/cuda_facts.h"
#include "topology/nvidia/nvml_facts.h"
#include "topology/posix/posix_facts.h"
#include "topology/system_root.h"
#if TELEGRAD_WITH_ARCHIVE
#include "topology/archive/archive_tree.h"
#endif
#if TELEGRAD_WITH_HWLOC
#include "topology/hwloc/hwloc_source.h"
#endif
#if TELEGRAD_WITH_OFI
#include "topology/ofi/ofi_facts.h"
#endif
#if TELEGRAD_WITH_UCX
#include "topology/ucx/ucx_facts.h"
#endif
#if TELEGRAD_WITH_VERBS
#include "topology/verbs/verbs_facts.h"
#endif

namespace telegrad {
namespace {

using AddFacts = void (*)(const TopologyOptions&, Machine&);

// What a live machine is asked, in this order; each looks at what those before
// it found.
constexpr AddFacts kLiveSources[] = {
    &AddPosixFacts, &AddNvmlFacts, &AddCudaFacts,
#if TELEGRAD_WITH_VERBS
    &AddVerbsFacts,
#endif
#if TELEGRAD_WITH_UCX
    &AddUcxFacts,
#endif
#if TELEGRAD_WITH_OFI
    &AddOfiFacts,
#endif
#if TELEGRAD_WITH_HWLOC
    &AddHwlocFacts,
#endif
};

absl::StatusOr<std::unique_ptr<FileTree>> OpenArchive(const std::string& path) {
#if TELEGRAD_WITH_ARCHIVE
  return ReadArchive(path);
#else
  return absl::UnimplementedError(absl::StrCat(
      path,
      ": this build reads no archives, it needs libarchive-dev; unpack "
      "it and name the folder"));
#endif
}

}  // namespace

void detect::AddLiveFacts(const TopologyOptions& options, Machine& machine) {
  for (const AddFacts add : kLiveSources) add(options, machine);
}

absl::StatusOr<Machine> MachineFromHwloc() {
#if TELEGRAD_WITH_HWLOC
  ASSIGN_OR_RETURN(const std::string xml, XmlOfHwloc());
  ASSIGN_OR_RETURN(Machine machine, MachineFromText(xml));
  machine.source = "libhwloc";
  return machine;
#else
  return absl::UnimplementedError(
      "this build has no libhwloc, it needs libhwloc-dev; a file of lstopo can "
      "be read (--from)");
#endif
}

absl::StatusOr<SysRoot> SysRoot::Open(const std::string& path) {
  struct stat info {};
  std::string file = path;
  std::string folder;
  if (::stat(file.c_str(), &info) != 0) {
    const size_t mark = path.rfind('!');
    file = path.substr(0, mark);
    if (mark == std::string::npos || ::stat(file.c_str(), &info) != 0) {
      return absl::NotFoundError(
          absl::StrCat(path, ": no such file or folder"));
    }
    folder = path.substr(mark + 1);
  }
  if (S_ISDIR(info.st_mode)) {
    return FromTree(MakeFolderTree(file), path, folder);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<FileTree> tree, OpenArchive(file));
  return FromTree(std::move(tree), path, folder);
}

}  // namespace telegrad
