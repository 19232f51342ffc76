#include "topology/detect/gdr.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "topology/path.h"

namespace telegrad::detect {
namespace {

struct Verdict {
  Tri gdr = Tri::kUnknown;
  Evidence why = {};
};

Verdict Say(Tri gdr, std::string what, Confidence confidence) {
  return {gdr,
          {.what = std::move(what),
           .source = "rule of GPUDirect RDMA",
           .confidence = confidence}};
}

Verdict Judge(const SysRoot& root, const Machine& machine) {
  const Capabilities& has = machine.capabilities;
  if (has.gdr_probe != Tri::kUnknown) {
    return Say(has.gdr_probe,
               has.gdr_probe == Tri::kYes
                   ? "the card registered GPU memory"
                   : "the card refused to register GPU memory",
               Confidence::kMeasured);
  }
  const bool has_rdma = std::any_of(machine.nics.begin(), machine.nics.end(),
                                    [](const Nic& nic) { return nic.is_rdma; });
  if (!has_rdma && root.Covers("/sys/class/infiniband")) {
    return Say(Tri::kNo, "there is no RDMA device", Confidence::kReported);
  }
  if (machine.gpus.empty() && root.Exists("/sys/bus/pci/devices")) {
    return Say(Tri::kNo, "there is no GPU", Confidence::kReported);
  }
  if (has.rdma_device_nodes == Tri::kNo) {
    return Say(Tri::kNo, "no RDMA device can be opened (/dev/infiniband)",
               Confidence::kReported);
  }
  const bool no_dmabuf =
      has.gdr_dmabuf_nic == Tri::kNo || has.gdr_dmabuf_gpu == Tri::kNo;
  if (has.gdr_peermem == Tri::kNo && no_dmabuf) {
    return Say(Tri::kNo, "neither a peer memory module nor dmabuf",
               Confidence::kInferred);
  }
  return Say(Tri::kUnknown,
             absl::StrCat("peer memory ", Name(has.gdr_peermem),
                          ", dmabuf of the card ", Name(has.gdr_dmabuf_nic),
                          ", of the GPU ", Name(has.gdr_dmabuf_gpu),
                          "; only a probe (--probe) is proof"),
             Confidence::kInferred);
}

// The path between the GPU and the RDMA device that are nearest to each other;
// null: there is none.
const PathInfo* NearestPath(const Machine& machine) {
  const PathInfo* nearest = nullptr;
  for (const std::vector<PathInfo>& row : machine.gpu_nic) {
    for (size_t n = 0; n < row.size() && n < machine.nics.size(); ++n) {
      if (!machine.nics[n].is_rdma) continue;
      if (nearest == nullptr ||
          Distance(row[n].path) < Distance(nearest->path)) {
        nearest = &row[n];
      }
    }
  }
  return nearest;
}

}  // namespace

void JudgeGdr(const SysRoot& root, Machine& machine) {
  Verdict verdict = Judge(root, machine);
  Capabilities& has = machine.capabilities;
  has.gdr = verdict.gdr;
  std::vector<Evidence>& why = has.why["gdr"];
  why = {std::move(verdict.why)};
  const PathInfo* path = NearestPath(machine);
  if (path == nullptr) return;
  why.push_back({.what = absl::StrCat("libraries that take GPU memory: UCX ",
                                      Name(has.ucx_cuda), ", libfabric ",
                                      Name(has.ofi_hmem)),
                 .source = "ucx_cuda, ofi_hmem"});
  why.push_back(
      {.what = absl::StrCat("nearest GPU and RDMA device: ", Name(path->path),
                            "; PXB or nearer is used"),
       .source = "gpu_nic",
       .raw = path->why,
       .confidence = Confidence::kInferred});
}

}  // namespace telegrad::detect
