#include "topology/verbs/verbs_facts.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "topology/verbs/gpu_probe.h"

namespace telegrad {
namespace {

struct Closer {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
};

void AskPort(ibv_context* context, const Nic& nic, Port& port,
             std::vector<Evidence>& notes) {
  ibv_port_attr attributes{};
  const int error =
      ibv_query_port(context, static_cast<uint8_t>(port.number), &attributes);
  const std::string source =
      absl::StrCat("ibv_query_port ", nic.name, "/", port.number);
  if (error != 0) {
    notes.push_back({.what = "no answer", .source = source, .error = error});
    return;
  }
  const int state = static_cast<int>(attributes.state);
  if (port.state.known() && *port.state.value != state) {
    notes.push_back(
        {.what = "sysfs and verbs disagree about the state",
         .source = source,
         .raw = absl::StrCat(state, ", sysfs ", *port.state.value)});
  }
  port.state.value = state;
  port.state.why.push_back(
      {.what = "state", .source = source, .raw = absl::StrCat(state)});
  if (attributes.active_mtu >= IBV_MTU_256 &&
      attributes.active_mtu <= IBV_MTU_4096) {
    port.active_mtu.value = 128 << static_cast<int>(attributes.active_mtu);
    port.active_mtu.why.push_back(
        {.what = "active MTU",
         .source = source,
         .raw = absl::StrCat(*port.active_mtu.value)});
  }
}

// Whether the device takes dmabuf: a bad descriptor is refused as such only
// where it does. Source: NCCL's src/transport/net_ib/gdr.cc.
void ProbeDmabuf(ibv_pd* domain, const std::string& name,
                 Capabilities& capabilities) {
  errno = 0;
  ibv_mr* region = ibv_reg_dmabuf_mr(domain, 0, 0, 0, -1, 0);
  const int error = errno;
  if (region != nullptr) ibv_dereg_mr(region);
  Tri verdict = Tri::kUnknown;
  if (error == EOPNOTSUPP || error == EPROTONOSUPPORT) verdict = Tri::kNo;
  if (error == EBADF) verdict = Tri::kYes;
  capabilities.why["gdr_dmabuf_nic"].push_back(
      {.what = name + " with a bad descriptor",
       .source = "ibv_reg_dmabuf_mr",
       .error = error,
       .confidence = Confidence::kMeasured});
  if (verdict == Tri::kUnknown || capabilities.gdr_dmabuf_nic == Tri::kNo) {
    return;  // one card that cannot decides
  }
  capabilities.gdr_dmabuf_nic = verdict;
}

void AskDevice(ibv_device* device, const TopologyOptions& options, Nic& nic,
               Machine& machine) {
  errno = 0;
  const std::unique_ptr<ibv_context, Closer> context(ibv_open_device(device));
  if (context == nullptr) {
    nic.has_device_node = Tri::kNo;
    machine.capabilities.rdma_device_nodes = Tri::kNo;
    machine.capabilities.why["rdma_device_nodes"].push_back(
        {.what = nic.name + " cannot be opened",
         .source = "ibv_open_device",
         .error = errno});
    return;
  }
  nic.has_device_node = Tri::kYes;
  for (Port& port : nic.ports) {
    AskPort(context.get(), nic, port, machine.notes);
  }
  if (!options.probe) return;
  const std::unique_ptr<ibv_pd, Closer> domain(ibv_alloc_pd(context.get()));
  if (domain == nullptr) return;
  ProbeDmabuf(domain.get(), nic.name, machine.capabilities);
  verbs::ProbeGpuMemory(domain.get(), nic.name, machine.capabilities);
}

}  // namespace

void AddVerbsFacts(const TopologyOptions& options, Machine& machine) {
  int count = 0;
  const std::unique_ptr<ibv_device*, Closer> devices(
      ibv_get_device_list(&count));
  if (devices == nullptr) return;
  for (int i = 0; i < count; ++i) {
    ibv_device* device = devices.get()[i];
    const std::string name = ibv_get_device_name(device);
    const auto nic =
        std::find_if(machine.nics.begin(), machine.nics.end(),
                     [&](const Nic& each) { return each.name == name; });
    if (nic != machine.nics.end() && nic->is_rdma) {
      AskDevice(device, options, *nic, machine);
    }
  }
}

}  // namespace telegrad
