#include "kvstore/connections.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/network_device.h"
#include "base/socket.h"
#include "topology/apply.h"
#include "topology/detect.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

// Of the device that has the bind address.
ConnectionChoice OverDevice(const std::string& name, const SysRoot& root,
                            NetworkKind network) {
  const std::vector<NetInterface> interfaces = ReadInterfaces(root);
  const auto device =
      std::find_if(interfaces.begin(), interfaces.end(),
                   [&](const NetInterface& each) { return each.name == name; });
  if (device == interfaces.end()) {
    return {1, absl::StrCat("nothing is known of ", name)};
  }
  const double gbps = device->gbps.value_or(0);
  const PlannedConnections planned =
      ConnectionsOver(network, gbps, IsOverBond(interfaces, name));
  const auto count = static_cast<size_t>(planned.connections);
  if (!planned.why.empty()) {
    return {count, absl::StrCat(name, ": ", planned.why)};
  }
  return {count, gbps > 0
                     ? absl::StrFormat("%s is one link of %g Gb/s", name, gbps)
                     : absl::StrCat(name, " is one link")};
}

ConnectionChoice WithoutRails(const TransportOptions& options,
                              const TransportChoice& transport,
                              const absl::StatusOr<std::string>& device,
                              const SysRoot& root) {
  const absl::StatusOr<SocketAddress> address =
      ParseIp(options.bind_address, 0);
  if (address.ok() && IsLoopback(*address)) {
    return {1, absl::StrCat(options.bind_address, " is this host alone")};
  }
  if (!device.ok()) return {1, std::string(device.status().message())};
  const bool is_tcp = transport.name == "tcp" || transport.tls == "tcp";
  // Which one of the others does not matter here.
  return OverDevice(*device, root,
                    is_tcp ? NetworkKind::kTcp : NetworkKind::kRoceV2);
}

}  // namespace

absl::StatusOr<size_t> ParseConnections(absl::string_view text) {
  if (text == "auto") return kAutoConnections;
  size_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 1 &&
      count <= kMaxConnections) {
    return count;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is neither auto nor a number of 1 to ", kMaxConnections));
}

std::string CheckConnections(const std::string& text) {
  return std::string(ParseConnections(text).status().message());
}

std::string Describe(const ConnectionChoice& choice) {
  return absl::StrCat("connections ", choice.connections, ": ", choice.reason);
}

ConnectionChoice ChooseConnections(const TransportOptions& options,
                                   const TransportChoice& choice) {
  return ChooseConnections(
      options, choice, DeviceOfAddress(options.bind_address), SysRoot::Live());
}

ConnectionChoice ChooseConnections(const TransportOptions& options,
                                   const TransportChoice& transport,
                                   const absl::StatusOr<std::string>& device,
                                   const SysRoot& root) {
  const ConnectionChoice choice =
      WithoutRails(options, transport, device, root);
  const size_t rails = 1 + options.rails.size();
  if (choice.connections >= rails) return choice;
  return {rails, absl::StrCat("one for each of ", rails, " rails")};
}

}  // namespace telegrad
