#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/doctor/check.h"
#include "topology/path.h"

namespace telegrad::doctor {
namespace {

// For an InfiniBand MTU of 4096 an interface must carry 96 bytes more.
constexpr int kWantedMtu = 4200;
// The source of evidence that the user gave (topology/detect/overrides.cc).
constexpr char kGidSource[] = "env TELEGRAD_GID_INDEX";

template <typename Function>
void ForEachRocePort(const Machine& machine, Function function) {
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (IsRoce(port) && IsActive(port)) function(nic, port);
    }
  }
}

bool IsRoutable(const Gid& gid) {
  return gid.scope == GidScope::kIpv4 || gid.scope == GidScope::kIpv6;
}

// Interfaces that hold the chosen row's address in rows of its type.
std::set<std::string> HoldersOfAddress(const Port& port, int chosen) {
  std::set<std::string> holders;
  const auto row =
      std::find_if(port.gids.begin(), port.gids.end(),
                   [&](const Gid& gid) { return gid.index == chosen; });
  if (row == port.gids.end()) return holders;
  for (const Gid& gid : port.gids) {
    if (gid.raw == row->raw && gid.type == row->type) {
      holders.insert(gid.net_interface);
    }
  }
  return holders;
}

// A routable row that could be used instead: of RoCE v2 where the chosen one is
// of v1, else the same address on another interface; null: none.
const Gid* OtherRow(const Port& port, int chosen) {
  const auto mine =
      std::find_if(port.gids.begin(), port.gids.end(),
                   [&](const Gid& gid) { return gid.index == chosen; });
  if (mine == port.gids.end()) return nullptr;
  const Gid* other = nullptr;
  for (const Gid& gid : port.gids) {
    if (!IsRoutable(gid)) continue;
    const bool is_newer =
        mine->type == GidType::kRoceV1 && gid.type == GidType::kRoceV2;
    if (is_newer) return &gid;
    const bool is_equal = gid.raw == mine->raw && gid.type == mine->type &&
                          gid.net_interface != mine->net_interface;
    if (is_equal && other == nullptr) other = &gid;
  }
  return other;
}

bool IsForced(const Port& port) {
  return std::any_of(
      port.chosen_gid.why.begin(), port.chosen_gid.why.end(),
      [](const Evidence& each) { return each.source == kGidSource; });
}

// The row that the user wants, or that a hint could name; nothing where the
// port's own choice is in no doubt.
std::optional<int> WantedRow(const Port& port) {
  if (!port.chosen_gid.known()) return std::nullopt;
  const int chosen = *port.chosen_gid.value;
  if (IsForced(port) && port.fabric != Fabric::kRoceV1) return chosen;
  const bool is_in_doubt = HoldersOfAddress(port, chosen).size() > 1 ||
                           port.fabric == Fabric::kRoceV1;
  const Gid* other = is_in_doubt ? OtherRow(port, chosen) : nullptr;
  if (other != nullptr) return other->index;
  return IsForced(port) ? std::optional<int>(chosen) : std::nullopt;
}

// One value for all ports: a variable that is set twice keeps the last.
std::string WantedRows(const Machine& machine) {
  std::vector<std::string> rows;
  ForEachRocePort(machine, [&](const Nic& nic, const Port& port) {
    const std::optional<int> row = WantedRow(port);
    if (!row.has_value()) return;
    rows.push_back(absl::StrCat(OverrideName(nic, port), ":", *row));
  });
  return Word(absl::StrJoin(rows, ","));
}

std::string OtherRowHint(const Machine& machine, const Nic& nic,
                         const Port& port, int chosen) {
  const Gid* other = OtherRow(port, chosen);
  if (other == nullptr) {
    return absl::StrCat(
        "RoCE v2 needs Linux 4.5 and a card that has it; grep "
        "-s . /sys/class/infiniband/",
        Word(nic.name), "/ports/", port.number, "/gid_attrs/types/*");
  }
  return absl::StrCat("to use row ", other->index,
                      other->net_interface.empty()
                          ? ""
                          : absl::StrCat(" on ", Word(other->net_interface)),
                      ": export TELEGRAD_GID_INDEX=", WantedRows(machine));
}

std::string AddressHint(const Port& port) {
  return absl::StrCat("give its interface an address",
                      port.net_interface.empty()
                          ? ""
                          : absl::StrCat(": ip addr add ADDRESS/PREFIX dev ",
                                         Word(port.net_interface)),
                      "; in a container: --net=host");
}

}  // namespace

void CheckGidNone(const Machine& machine, const DoctorOptions&,
                  Report& report) {
  int num_ports = 0;
  ForEachRocePort(machine, [&](const Nic& nic, const Port& port) {
    ++num_ports;
    if (!ShowsGids(port)) {
      return report.Add(Level::kUnknown,
                        absl::StrCat("the source shows no GID table of ",
                                     PortName(nic, port)),
                        Why(port.gid_rows.why), "run it on the machine itself");
    }
    const bool any_v2 =
        std::any_of(port.gids.begin(), port.gids.end(), [](const Gid& gid) {
          return IsRoutable(gid) && gid.type == GidType::kRoceV2;
        });
    if (any_v2) return;
    const std::string of =
        port.gid_rows.known() ? absl::StrCat(" of ", *port.gid_rows.value) : "";
    report.Add(Level::kFail,
               absl::StrCat(PortName(nic, port),
                            " has no routable RoCE v2 GID and is not used"),
               absl::StrCat(port.gids.size(), of, " rows are not empty; ",
                            Why(port.chosen_gid.why)),
               AddressHint(port));
  });
  if (report.empty()) {
    report.Ok(num_ports == 0
                  ? "there is no active RoCE port"
                  : absl::StrCat(num_ports, " RoCE ports have a routable GID"));
  }
}

void CheckGidAmbiguous(const Machine& machine, const DoctorOptions&,
                       Report& report) {
  int num_forced = 0;
  ForEachRocePort(machine, [&](const Nic& nic, const Port& port) {
    if (!port.chosen_gid.known()) return;
    const int chosen = *port.chosen_gid.value;
    const std::string hint = OtherRowHint(machine, nic, port, chosen);
    const std::set<std::string> holders = HoldersOfAddress(port, chosen);
    const bool is_forced = IsForced(port);
    num_forced += is_forced ? 1 : 0;
    if (holders.size() > 1 && !is_forced) {
      report.Add(Level::kWarn,
                 absl::StrCat(PortName(nic, port),
                              "'s address is on several interfaces (",
                              absl::StrJoin(holders, ", "), "); row ", chosen,
                              " on ", port.net_interface, " is used"),
                 Why(port.chosen_gid.why), hint);
    } else if (port.fabric == Fabric::kRoceV1) {
      report.Add(Level::kWarn,
                 absl::StrCat(PortName(nic, port), " has only RoCE v1 rows; ",
                              "row ", chosen, " does not cross a router"),
                 Why(port.chosen_gid.why), hint);
    }
  });
  if (!report.empty()) return;
  report.Ok(num_forced > 0
                ? absl::StrCat("TELEGRAD_GID_INDEX says the rows of ",
                               num_forced, " RoCE ports")
                : "no RoCE port has more than one equal GID");
}

void CheckMtu(const Machine& machine, const DoctorOptions&, Report& report) {
  ForEachRocePort(machine, [&](const Nic& nic, const Port& port) {
    const NetInterface* net = FindInterface(machine, port.net_interface);
    if (net == nullptr || net->mtu.value_or(kWantedMtu) >= kWantedMtu) return;
    report.Add(Level::kWarn,
               absl::StrCat(net->name, " of ", PortName(nic, port), " has MTU ",
                            *net->mtu.value, ", so RoCE sends packets of ",
                            port.active_mtu.value_or(1024), " of 4096 bytes"),
               Why(net->mtu.why),
               absl::StrCat("ip link set dev ", Word(net->name),
                            " mtu 9000, and the switch as well"));
  });
  if (report.empty()) report.Ok("no RoCE interface has an MTU below 4200");
}

}  // namespace telegrad::doctor
