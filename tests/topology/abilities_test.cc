// GIDs, overrides and abilities of the kernel, on small trees in memory.
#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/topology/trees.h"
#include "topology/detect/gid.h"
#include "topology/path.h"

namespace telegrad {
namespace {

struct Row {
  const char* gid;
  const char* type;
  const char* interface;
};

constexpr char kIpv4[] = "0000:0000:0000:0000:0000:ffff:c000:0201";
constexpr char kOtherIpv4[] = "0000:0000:0000:0000:0000:ffff:0a00:0001";
constexpr char kZeroconf[] = "0000:0000:0000:0000:0000:ffff:a9fe:0001";
constexpr char kIpv6[] = "2001:0db8:0000:0000:0000:0000:0000:0001";
constexpr char kLinkLocal[] = "fe80:0000:0000:0000:0001:0000:0000:0001";
constexpr char kEmpty[] = "0000:0000:0000:0000:0000:0000:0000:0000";
constexpr char kPort[] = "sys/class/infiniband/mlx5_0/ports/1";

// A RoCE card with this GID table, and interfaces of several kinds.
Files Roce(const std::vector<Row>& rows) {
  Files files = {{"sys/class/net/eth0/type", "1"},
                 {"sys/class/net/eth0/device/vendor", "0x15b3"},
                 {"sys/class/net/eth0/mtu", "1500"},
                 {"sys/class/net/vlan0/type", "1"},
                 {"sys/class/net/vlan0/uevent", "DEVTYPE=vlan"},
                 {"sys/class/net/br0/type", "1"},
                 {"sys/class/net/br0/bridge/id", ""},
                 {absl::StrCat(kPort, "/link_layer"), "Ethernet"},
                 {absl::StrCat(kPort, "/state"), "4: ACTIVE"}};
  for (size_t i = 0; i < rows.size(); ++i) {
    files[absl::StrCat(kPort, "/gids/", i)] = rows[i].gid;
    files[absl::StrCat(kPort, "/gid_attrs/types/", i)] = rows[i].type;
    files[absl::StrCat(kPort, "/gid_attrs/ndevs/", i)] = rows[i].interface;
  }
  return files;
}

std::optional<int> Chosen(const std::vector<Row>& rows,
                          const TopologyOptions& options = {}) {
  const Machine machine = Detect(Roce(rows), options);
  return NicNamed(machine, "mlx5_0").ports[0].chosen_gid.value;
}

constexpr char kV1[] = "IB/RoCE v1\n";
constexpr char kV2[] = "RoCE v2\n";

TEST(RoceGid, PrefersVersionTwoThenInterfaceThenIpv4ThenTheFirst) {
  EXPECT_EQ(Chosen({{kIpv4, kV1, "eth0"}, {kIpv6, kV2, "br0"}}), 1);
  EXPECT_EQ(Chosen({{kIpv4, kV2, "vlan0"}, {kIpv6, kV2, "eth0"}}), 1);
  EXPECT_EQ(Chosen({{kIpv4, kV2, "br0"}, {kIpv4, kV2, "vlan0"}}), 1);
  EXPECT_EQ(Chosen({{kIpv6, kV2, "eth0"}, {kIpv4, kV2, "eth0"}}), 1);
  EXPECT_EQ(Chosen({{kOtherIpv4, kV2, "eth0"}, {kIpv4, kV2, "eth0"}}), 0);
  TopologyOptions options;
  options.wanted_interface = "br0";
  EXPECT_EQ(Chosen({{kIpv4, kV2, "eth0"}, {kIpv4, kV2, "br0"}}, options), 1);
}

TEST(RoceGid, LinkLocalEmptyAndBrokenRowsAreNoAddresses) {
  EXPECT_EQ(Chosen({{kLinkLocal, kV2, "eth0"},
                    {kZeroconf, kV2, "eth0"},
                    {kEmpty, kV2, "eth0"},
                    {"fe80::1", kV2, "eth0"},
                    {"zz", kV2, "eth0"},
                    {kIpv4, "?", "eth0"}}),
            std::nullopt);
  EXPECT_EQ(Chosen({}), std::nullopt);
  EXPECT_EQ(Chosen({{kIpv4, kV1, "eth0"}}), 0);
}

TEST(RoceGid, ATableWithoutAddressesIsNoMissingTable) {
  const auto port = [](const Files& files) {
    return NicNamed(Detect(files), "mlx5_0").ports[0];
  };
  // A container without the host's network: rows are empty, types EINVAL.
  Files hidden = Roce({{kEmpty, "", ""}, {kEmpty, "", ""}});
  hidden["ERRNO"] = absl::StrCat(kPort, "/gid_attrs/types/0\tEINVAL\n", kPort,
                                 "/gid_attrs/types/1\tEINVAL\n");
  const Port empty = port(hidden);
  EXPECT_TRUE(empty.gids.empty());
  EXPECT_EQ(empty.gid_rows.value, 2);
  EXPECT_EQ(port(Roce({{kEmpty, kV2, ""}, {kIpv4, kV2, ""}})).gid_rows.value,
            2);

  const Port none = port(Roce({}));
  EXPECT_FALSE(none.gid_rows.known());
  ASSERT_EQ(none.gid_rows.why.size(), 1U);
  EXPECT_EQ(none.gid_rows.why[0].error, ENOENT);
  Files locked = Roce({{kIpv4, kV2, ""}});
  locked["ERRNO"] = absl::StrCat(kPort, "/gids/0\tEACCES\n");
  const Port unread = port(locked);
  EXPECT_FALSE(unread.gid_rows.known());
  EXPECT_EQ(unread.gid_rows.why.at(0).error, EACCES);
}

TEST(RoceGid, OldKernelsHaveVersionOneAlone) {
  Files files = Roce({{kIpv4, kV2, "eth0"}});
  files.erase(absl::StrCat(kPort, "/gid_attrs/types/0"));
  files.erase(absl::StrCat(kPort, "/gid_attrs/ndevs/0"));
  const Machine machine = Detect(files);
  EXPECT_EQ(machine.nics[0].ports[0].fabric, Fabric::kRoceV1);
  EXPECT_EQ(machine.nics[0].ports[0].chosen_gid.value, 0);
}

TEST(RoceGid, AForcedIndexMustBeInTheTable) {
  TopologyOptions options;
  options.gids = {{.index = 0}};
  EXPECT_EQ(Chosen({{kLinkLocal, kV2, "eth0"}, {kIpv4, kV2, "eth0"}}, options),
            0);
  options.gids = {{.index = 7}};
  const Machine machine = Detect(Roce({{kIpv4, kV2, "eth0"}}), options);
  const Known<int>& chosen = machine.nics[0].ports[0].chosen_gid;
  EXPECT_FALSE(chosen.known());
  EXPECT_NE(chosen.why.back().what.find("the table has 1 rows"),
            std::string::npos)
      << chosen.why.back().what;
}

TEST(RoceGid, AnIndexMayBeForcedOnOnePort) {
  Files files = Roce({{kIpv4, kV2, "eth0"}, {kIpv4, kV1, "vlan0"}});
  files["sys/class/net/vlan0/mtu"] = "9000";
  for (const auto& [path, text] : Files(files)) {
    const size_t at = path.find("mlx5_0");
    if (at == std::string::npos) continue;
    files[std::string(path).replace(at, 6, "mlx5_1")] = text;
    files[std::string(path).replace(at, 14, "mlx5_1/ports/2")] = text;
  }
  const auto options = ParseTopologyOptions(
      {{"TELEGRAD_GID_INDEX", "mlx5_1:2:1,mlx5_0:1,mlx5_7:1"}});
  ASSERT_TRUE(options.ok()) << options.status();
  const Machine machine = Detect(files, *options);
  const Port& all = NicNamed(machine, "mlx5_0").ports[0];
  EXPECT_EQ(all.chosen_gid.value, 1);
  EXPECT_EQ(all.fabric, Fabric::kRoceV1);
  EXPECT_EQ(all.net_interface, "vlan0");
  EXPECT_EQ(all.active_mtu.value, 4096);
  const Nic& other = NicNamed(machine, "mlx5_1");
  ASSERT_EQ(other.ports.size(), 2U);
  EXPECT_EQ(other.ports[0].chosen_gid.value, 0);
  EXPECT_EQ(other.ports[0].active_mtu.value, 1024);
  EXPECT_EQ(other.ports[1].chosen_gid.value, 1);
  ASSERT_FALSE(machine.notes.empty());
  EXPECT_EQ(machine.notes.back().raw, "mlx5_7:1");
}

TEST(RoceGid, ScopesFollowTheAddress) {
  const Machine machine =
      Detect(Roce({{kLinkLocal, kV2, ""}, {kIpv4, kV2, ""}, {kIpv6, kV2, ""}}));
  const std::vector<Gid>& gids = machine.nics[0].ports[0].gids;
  ASSERT_EQ(gids.size(), 3U);
  EXPECT_EQ(gids[0].scope, GidScope::kLinkLocal);
  EXPECT_EQ(gids[1].scope, GidScope::kIpv4);
  EXPECT_EQ(gids[2].scope, GidScope::kIpv6);
  EXPECT_EQ(detect::ToText(gids[1].raw), "::ffff:192.0.2.1");
  EXPECT_EQ(detect::ToText(gids[2].raw), kIpv6);
}

TEST(Overrides, AreReadAndRefused) {
  const auto options = ParseTopologyOptions({{"TELEGRAD_GID_INDEX", "3"},
                                             {"TELEGRAD_LINK_GBPS", "12.5"},
                                             {"TELEGRAD_GDR", "off"},
                                             {"TELEGRAD_NICS", "^mlx5_1"},
                                             {"TELEGRAD_SECRET", "x"},
                                             {"NCCL_DEBUG", "INFO"},
                                             {"HOME", "/"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->gids, (std::vector<ForcedGid>{{.index = 3}}));
  EXPECT_EQ(options->link_gbps, 12.5);
  EXPECT_EQ(options->gdr, false);
  EXPECT_EQ(options->nics, "^mlx5_1");
  EXPECT_EQ(options->environment.count("NCCL_DEBUG"), 1U);
  EXPECT_EQ(options->environment.count("TELEGRAD_SECRET"), 0U);
  EXPECT_EQ(options->environment.count("HOME"), 0U);
  const std::pair<const char*, const char*> wrong[] = {
      {"TELEGRAD_GID_INDEX", "-1"},
      {"TELEGRAD_GID_INDEX", "x"},
      {"TELEGRAD_GID_INDEX", ""},
      {"TELEGRAD_GID_INDEX", "65536"},
      {"TELEGRAD_GID_INDEX", "mlx5_0:"},
      {"TELEGRAD_GID_INDEX", ":3"},
      {"TELEGRAD_GID_INDEX", "mlx5_0:N"},
      {"TELEGRAD_GID_INDEX", "a:0:3"},
      {"TELEGRAD_GID_INDEX", "a:1:2:3"},
      {"TELEGRAD_GID_INDEX", "3,a:3"},
      {"TELEGRAD_GID_INDEX", "a:3,"},
      {"TELEGRAD_GID_INDEX", "a:65536"},
      {"TELEGRAD_NICS", "^mlx5_0,^mlx5_1"},
      {"TELEGRAD_NICS", "=a,=b"},
      {"TELEGRAD_NICS", "=^a"},
      {"TELEGRAD_NICS", "mlx5_0:abc"},
      {"TELEGRAD_NICS", "mlx5_0:0"},
      {"TELEGRAD_NICS", "a,b:"},
      {"TELEGRAD_NICS", "^:1"},
      {"TELEGRAD_NICS", "a:1:2"},
      {"TELEGRAD_LINK_GBPS", "0"},
      {"TELEGRAD_LINK_GBPS", "nan"},
      {"TELEGRAD_LINK_GBPS", "inf"},
      {"TELEGRAD_GDR", "yes"}};
  for (const auto& [name, value] : wrong) {
    const absl::Status status = ParseTopologyOptions({{name, value}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << value;
    EXPECT_NE(status.message().find(name), std::string::npos);
  }
}

TEST(Overrides, TheLinkRateWins) {
  TopologyOptions options;
  options.link_gbps = 50;
  const Machine machine = Detect(Roce({{kIpv4, kV2, "eth0"}}), options);
  const Known<double>& gbps = machine.nics[0].ports[0].gbps;
  EXPECT_EQ(gbps.value, 50);
  EXPECT_EQ(gbps.why.front().confidence, Confidence::kAssumed);
}

std::vector<std::string> NicsWith(const std::string& filter) {
  Machine machine;
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_10", "eth0"}) {
    Nic nic;
    nic.name = name;
    nic.ports.resize(2);
    nic.ports[1].number = 2;
    machine.nics.push_back(std::move(nic));
  }
  machine.gpu_nic.assign(1, std::vector<PathInfo>(machine.nics.size()));
  TopologyOptions options;
  options.nics = filter;
  ApplyOverrides(options, machine);
  EXPECT_EQ(machine.gpu_nic[0].size(), machine.nics.size());
  std::vector<std::string> names;
  for (const Nic& nic : machine.nics) {
    names.push_back(absl::StrCat(nic.name, "*", nic.ports.size()));
  }
  return names;
}

TEST(Overrides, NicsAreSelectedAsByNccl) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(NicsWith("mlx5_1"), (Names{"mlx5_1*2", "mlx5_10*2"}));
  EXPECT_EQ(NicsWith("=mlx5_1"), (Names{"mlx5_1*2"}));
  EXPECT_EQ(NicsWith("^mlx5"), (Names{"eth0*2"}));
  EXPECT_EQ(NicsWith("^=mlx5_0,eth0"), (Names{"mlx5_1*2", "mlx5_10*2"}));
  EXPECT_EQ(NicsWith("=mlx5_0:2,eth0"), (Names{"mlx5_0*1", "eth0*2"}));
  EXPECT_EQ(NicsWith("none"), Names());
}

// A machine with a GPU, an RDMA device and its device node.
Files GdrMachine() {
  Files files = Roce({{kIpv4, kV2, "eth0"}});
  files["sys/bus/pci/devices/0000:01:00.0"] =
      "->/sys/devices/pci0000:00/0000:01:00.0";
  files["sys/devices/pci0000:00/0000:01:00.0/class"] = "0x030200";
  files["sys/devices/pci0000:00/0000:01:00.0/vendor"] = "0x10de";
  files["sys/module/x/version"] = "1";
  return files;
}

TEST(Gdr, ModulesAreAHintAndTheirAbsenceIsNone) {
  Files files = GdrMachine();
  files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64\n";
  EXPECT_EQ(Detect(files).capabilities.gdr_peermem, Tri::kNo);
  EXPECT_EQ(Detect(files).capabilities.gdr_dmabuf_gpu, Tri::kNo);
  EXPECT_EQ(Detect(files).capabilities.gdr, Tri::kNo);
  files["sys/module/nvidia_peermem/version"] = "550";
  EXPECT_EQ(Detect(files).capabilities.gdr_peermem, Tri::kYes);
  EXPECT_EQ(Detect(files).capabilities.gdr, Tri::kUnknown);
  files["proc/driver/nvidia/version"] = "NVIDIA UNIX Open Kernel Module\n";
  files["proc/kallsyms"] = "0 T ib_umem_dmabuf_get\n";
  const Machine machine = Detect(files);
  EXPECT_EQ(machine.capabilities.gdr_dmabuf_gpu, Tri::kYes);
  EXPECT_EQ(machine.capabilities.gdr_dmabuf_nic, Tri::kYes);
  EXPECT_EQ(machine.capabilities.gdr, Tri::kUnknown);  // never yes unproved
  const std::vector<Evidence>& why = machine.capabilities.why.at("gdr");
  ASSERT_EQ(why.size(), 3U);
  EXPECT_EQ(why[1].what,
            "libraries that take GPU memory: UCX unknown, libfabric unknown");
  EXPECT_EQ(why[2].what,
            "nearest GPU and RDMA device: unknown; PXB or nearer is used");
}

TEST(Gdr, TheUserHasTheLastWord) {
  TopologyOptions options;
  options.gdr = true;
  EXPECT_EQ(Detect(GdrMachine(), options).capabilities.gdr, Tri::kYes);
  options.gdr = false;
  EXPECT_EQ(Detect(GdrMachine(), options).capabilities.gdr, Tri::kNo);
}

TEST(Gdr, NeedsAGpuAndAnRdmaDevice) {
  Files files = GdrMachine();
  files["sys/devices/pci0000:00/0000:01:00.0/vendor"] = "0x1234";
  EXPECT_EQ(Detect(files).capabilities.gdr, Tri::kNo);
  EXPECT_EQ(Detect({{"sys/class/net/x", ""}}).capabilities.gdr, Tri::kNo);
}

TEST(Abilities, LimitOfLockedMemory) {
  Files files = {{"sys/class/x", ""}};
  EXPECT_FALSE(Detect(files).capabilities.memlock_bytes.known());
  files["proc/self/limits"] =
      "Limit      Soft Limit   Hard Limit   Units\n"
      "Max locked memory         65536                65536        bytes\n";
  EXPECT_EQ(Detect(files).capabilities.memlock_bytes.value, 65536U);
  files["proc/self/status"] = "CapEff:\t0000000000004000\n";
  EXPECT_EQ(Detect(files).capabilities.memlock_bytes.value, UINT64_MAX);
}

TEST(Abilities, IommuByGroupsThenByCommandLine) {
  Files files = GdrMachine();
  EXPECT_EQ(Detect(files).capabilities.iommu_passthrough, Tri::kUnknown);
  files["proc/cmdline"] = "quiet iommu=pt";
  EXPECT_EQ(Detect(files).capabilities.iommu_passthrough, Tri::kYes);
  const std::string type =
      "sys/devices/pci0000:00/0000:01:00.0/iommu_group/type";
  files[type] = "DMA\n";
  EXPECT_EQ(Detect(files).capabilities.iommu_passthrough, Tri::kNo);
  files[type] = "identity\n";
  EXPECT_EQ(Detect(files).capabilities.iommu_passthrough, Tri::kYes);
}

// Extended configuration space with an ACS capability behind another one.
std::string AcsSpace(int control) {
  std::string space(4096, '\0');
  space[0x100] = 0x01;  // advanced error reporting, version 1, next at 0x140
  space[0x102] = 0x01;
  space[0x103] = 0x14;
  space[0x140] = 0x0d;
  space[0x146] = static_cast<char>(control);
  return space;
}

TEST(Abilities, AcsRedirectsAreSeenByRootAlone) {
  Files files = {{"sys/class/x", ""}};
  const std::string bridge = "sys/devices/pci0000:00/0000:00:01.0";
  const std::string gpu = bridge + "/0000:01:00.0";
  files["sys/bus/pci/devices/0000:01:00.0"] = "->/" + gpu;
  files[gpu + "/class"] = "0x030200";
  files[gpu + "/vendor"] = "0x10de";
  files[bridge + "/config"] = std::string(64, '\0');
  EXPECT_EQ(Detect(files).capabilities.acs_clear, Tri::kUnknown);
  files[bridge + "/config"] = AcsSpace(0x1d);
  EXPECT_EQ(Detect(files).capabilities.acs_clear, Tri::kNo);
  files[bridge + "/config"] = AcsSpace(0x01);  // source validation alone
  EXPECT_EQ(Detect(files).capabilities.acs_clear, Tri::kYes);
  files[bridge + "/config"] = std::string(4096, '\xff');
  EXPECT_NE(Detect(files).capabilities.acs_clear, Tri::kNo);
}

TEST(Abilities, GuestsAndContainers) {
  Files files = {{"sys/class/x", ""},
                 {"proc/cpuinfo", "processor: 0\nflags : fpu sse"},
                 {"proc/1/cgroup", "0::/init.scope\n"}};
  EXPECT_EQ(Detect(files).capabilities.in_vm, Tri::kNo);
  EXPECT_EQ(Detect(files).capabilities.in_container, Tri::kNo);
  files["proc/cpuinfo"] = "processor: 0\nflags : fpu hypervisor sse";
  files["proc/1/cgroup"] = "0::/kubepods/pod1\n";
  EXPECT_EQ(Detect(files).capabilities.in_vm, Tri::kYes);
  EXPECT_EQ(Detect(files).capabilities.in_container, Tri::kYes);
}

}  // namespace
}  // namespace telegrad
