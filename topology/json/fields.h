#pragma once

#include "topology/machine.h"

// The members of each type under their names in JSON. The writer and the
// reader walk the same lists, so neither can forget one; Derived() names what
// the writer adds for people and the reader skips.
namespace telegrad::topology_json {

template <typename Visitor>
void VisitFields(Visitor& v, Evidence& evidence) {
  v.Field("what", evidence.what);
  v.Field("source", evidence.source);
  v.Field("raw", evidence.raw);
  v.Field("errno", evidence.error);
  v.Enum("confidence", evidence.confidence, Confidence::kAssumed);
}

template <typename Visitor>
void VisitFields(Visitor& v, Gid& gid) {
  v.Field("index", gid.index);
  v.Field("gid", gid.raw);
  v.Enum("type", gid.type, GidType::kInfiniBand);
  v.Enum("scope", gid.scope, GidScope::kIpv6);
  v.Field("net_interface", gid.net_interface);
}

template <typename Visitor>
void VisitFields(Visitor& v, Port& port) {
  for (const char* name : {"port", "mtu", "netdev"}) v.Derived(name);
  v.Field("number", port.number);
  v.Enum("link_layer", port.link_layer, LinkLayer::kUnknown);
  v.Enum("transport", port.fabric, Fabric::kUnknown);
  v.Field("state", port.state);
  v.Field("physical_state", port.physical_state);
  v.Field("gbps", port.gbps);
  v.Field("lanes", port.lanes);
  v.Field("active_mtu", port.active_mtu);
  v.Field("lid", port.lid);
  v.Field("gid_index", port.chosen_gid);
  v.Field("net_interface", port.net_interface);
  v.Field("gids", port.gids);
  v.Field("gid_rows", port.gid_rows);
}

template <typename Visitor>
void VisitFields(Visitor& v, PciPosition& position) {
  v.Field("switches", position.switches);
  v.Field("host_bridge", position.host_bridge);
  v.Field("package", position.package);
  v.Field("numa_node", position.numa_node);
}

template <typename Visitor>
void VisitFields(Visitor& v, Nic& nic) {
  v.Field("name", nic.name);
  v.Field("bus_id", nic.bdf);
  for (const char* name : {"transport", "state", "gbps", "gid_index"}) {
    v.Derived(name);
  }
  v.Field("is_rdma", nic.is_rdma);
  v.Field("card", nic.card);
  v.Field("driver", nic.driver);
  v.Field("board", nic.board);
  v.Hex("pci_class", nic.pci_class, 6);
  v.Hex("vendor", nic.vendor, 4);
  v.Hex("device", nic.device, 4);
  v.Field("node_type", nic.node_type);
  v.Field("pcie_gbps", nic.pcie_gbps);
  v.Field("pcie_now_gbps", nic.pcie_now_gbps);
  v.Enum("has_device_node", nic.has_device_node, Tri::kUnknown);
  v.Field("net_interfaces", nic.net_interfaces);
  v.Field("position", nic.position);
  v.Field("ports", nic.ports);
}

template <typename Visitor>
void VisitFields(Visitor& v, NetInterface& interface) {
  v.Field("name", interface.name);
  v.Enum("kind", interface.kind, NetInterface::Kind::kOther);
  v.Field("up", interface.up);
  v.Field("mtu", interface.mtu);
  v.Field("gbps", interface.gbps);
  v.Field("numa_node", interface.numa_node);
  v.Field("lower", interface.lower);
  v.Field("addresses", interface.addresses);
  v.Field("ecn_np", interface.ecn_np);
  v.Field("ecn_rp", interface.ecn_rp);
}

template <typename Visitor>
void VisitFields(Visitor& v, Gpu& gpu) {
  v.Field("name", gpu.name);
  v.Field("bus_id", gpu.bdf);
  v.Field("model", gpu.model);
  v.Field("uuid", gpu.uuid);
  v.Field("compute_capability", gpu.compute_capability);
  v.Field("dmabuf", gpu.dmabuf);
  v.Field("position", gpu.position);
}

template <typename Visitor>
void VisitFields(Visitor& v, GpuLink& link) {
  v.Field("a", link.a);
  v.Field("b", link.b);
  v.Field("b_name", link.b_name);
  v.Field("lanes", link.lanes);
  v.Field("gbytes_per_s", link.gbytes_per_s);
}

template <typename Visitor>
void VisitFields(Visitor& v, Capabilities& c) {
  v.Enum("gdr", c.gdr, Tri::kUnknown);
  v.Enum("gdr_peermem", c.gdr_peermem, Tri::kUnknown);
  v.Enum("gdr_dmabuf_nic", c.gdr_dmabuf_nic, Tri::kUnknown);
  v.Enum("gdr_dmabuf_gpu", c.gdr_dmabuf_gpu, Tri::kUnknown);
  v.Enum("gdr_probe", c.gdr_probe, Tri::kUnknown);
  v.Enum("gdrcopy", c.gdrcopy, Tri::kUnknown);
  v.Enum("ucx_cuda", c.ucx_cuda, Tri::kUnknown);
  v.Enum("ucx_rdma", c.ucx_rdma, Tri::kUnknown);
  v.Enum("ofi_efa", c.ofi_efa, Tri::kUnknown);
  v.Enum("ofi_hmem", c.ofi_hmem, Tri::kUnknown);
  v.Enum("rdma_device_nodes", c.rdma_device_nodes, Tri::kUnknown);
  v.Enum("acs_clear", c.acs_clear, Tri::kUnknown);
  v.Enum("iommu_passthrough", c.iommu_passthrough, Tri::kUnknown);
  v.Enum("in_vm", c.in_vm, Tri::kUnknown);
  v.Enum("in_container", c.in_container, Tri::kUnknown);
  v.Field("memlock_bytes", c.memlock_bytes);
  v.Field("cpu_limit", c.cpu_limit);
  v.Field("memory_limit_bytes", c.memory_limit_bytes);
  v.Field("shm_bytes", c.shm_bytes);
  v.Field("ucx_version", c.ucx_version);
  v.Field("ofi_version", c.ofi_version);
  v.Field("evidence", c.why);
}

template <typename Visitor>
void VisitFields(Visitor& v, PathInfo& path) {
  v.Enum("path", path.path, PathClass::kUnknown);
  v.Enum("pcie", path.pcie, PathClass::kUnknown);
  v.Field("why", path.why);
}

// Machine::gpu_nic and gpu_gpu in full; the same names at the top are views.
struct Paths {
  std::vector<std::vector<PathInfo>>* gpu_nic = nullptr;
  std::vector<std::vector<PathInfo>>* gpu_gpu = nullptr;
};

template <typename Visitor>
void VisitFields(Visitor& v, Paths& paths) {
  v.Field("gpu_nic", *paths.gpu_nic);
  v.Field("gpu_gpu", *paths.gpu_gpu);
}

template <typename Visitor>
void VisitFields(Visitor& v, Machine& machine) {
  for (const char* name : {"schema", "digest", "gdr", "gpu_nic", "gpu_gpu"}) {
    v.Derived(name);
  }
  v.Field("source", machine.source);
  v.Field("host", machine.host);
  v.Field("arch", machine.arch);
  v.Field("numa_nodes", machine.numa_nodes);
  v.Field("cpus", machine.cpus);
  v.Field("gpus", machine.gpus);
  v.Field("nics", machine.nics);
  v.Field("interfaces", machine.interfaces);
  v.Field("links", machine.links);
  v.Field("capabilities", machine.capabilities);
  v.Field("environment", machine.environment);
  v.Field("notes", machine.notes);
  Paths paths{&machine.gpu_nic, &machine.gpu_gpu};
  v.Field("paths", paths);
}

}  // namespace telegrad::topology_json
