#include "topology/picture/layout.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "topology/path.h"

namespace telegrad::picture {
namespace {

constexpr double kDeviceWidth = 158;
constexpr double kDeviceHeight = 58;
constexpr size_t kMaxLevels = 8;  // levels of switches; more are not drawn
// Where a row of children ends, by kind.
constexpr std::array<double, 4> kMaxWidth = {1560, 760, 730, 700};

bool IsDevice(const Box& box) {
  return box.kind == Box::Kind::kGpu || box.kind == Box::Kind::kNic;
}

// The child of that title, made when it is not there.
Box& Child(Box& parent, Box::Kind kind, const std::string& title) {
  for (Box& child : parent.children) {
    if (child.kind == kind && child.title == title) return child;
  }
  return parent.children.emplace_back(Box{.kind = kind, .title = title});
}

Box& Place(Box& machine, const PciPosition& position) {
  const std::string group =
      position.package >= 0     ? absl::StrCat("package ", position.package)
      : position.numa_node >= 0 ? absl::StrCat("NUMA node ", position.numa_node)
                                : "no known place";
  Box* box = &Child(machine, Box::Kind::kPackage, group);
  if (!position.host_bridge.empty()) {
    box = &Child(*box, Box::Kind::kHostBridge,
                 absl::StrCat("host bridge ", position.host_bridge));
  }
  const size_t levels = std::min(position.switches.size(), kMaxLevels);
  for (size_t i = levels; i > 0; --i) {
    box = &Child(*box, Box::Kind::kSwitch,
                 absl::StrCat("switch ", position.switches[i - 1]));
  }
  return *box;
}

std::string Rate(const Port& port) {
  if (!port.gbps.known()) return Name(port.fabric);
  return absl::StrFormat("%s %.9g Gb/s", Name(port.fabric), *port.gbps.value);
}

Box NicBox(const Nic& nic, size_t index) {
  Box box = {.kind = Box::Kind::kNic, .title = nic.name, .index = index};
  if (!nic.ports.empty()) {
    const size_t more = nic.ports.size() - 1;
    box.lines.push_back(Rate(nic.ports.front()) +
                        (more == 0 ? "" : absl::StrCat(" +", more)));
    box.is_down = std::all_of(
        nic.ports.begin(), nic.ports.end(),
        [](const Port& port) { return port.state.value_or(4) != 4; });
  }
  box.lines.push_back(nic.bdf.known() ? ToString(*nic.bdf.value) : "no PCI");
  return box;
}

Box GpuBox(const Machine& machine, size_t index) {
  const Gpu& gpu = machine.gpus[index];
  const int capability = gpu.compute_capability.value_or(0);
  int lanes = 0;
  for (const GpuLink& link : machine.links) {
    const auto self = static_cast<int>(index);
    if (link.a == self || link.b == self) lanes += link.lanes;
  }
  const std::string kind =
      gpu.model.empty() && capability > 0
          ? absl::StrCat("compute capability ", capability / 10, ".",
                         capability % 10)
          : gpu.model;
  return {
      .kind = Box::Kind::kGpu,
      .title = gpu.name,
      .lines = {kind, absl::StrCat(
                          ToString(gpu.bdf),
                          lanes > 0 ? absl::StrCat(" NVLink x", lanes) : "")},
      .index = index};
}

// Children left to right, in rows; devices before boxes.
void Measure(Box& box) {
  if (IsDevice(box)) {
    box.width = kDeviceWidth;
    box.height = kDeviceHeight;
    return;
  }
  std::stable_partition(box.children.begin(), box.children.end(), IsDevice);
  const double right = kMaxWidth[static_cast<size_t>(box.kind)];
  double x = kPadding;
  double y = kTitleHeight + kPadding;
  double row_height = 0;
  for (Box& child : box.children) {
    Measure(child);
    if (x > kPadding && x + child.width + kPadding > right) {
      x = kPadding;
      y += row_height + kPadding;
      row_height = 0;
    }
    child.x = x;
    child.y = y;
    x += child.width + kPadding;
    row_height = std::max(row_height, child.height);
    box.width = std::max(box.width, x);
  }
  box.width = std::max(box.width, 9.0 * static_cast<double>(box.title.size()));
  box.height = y + row_height + kPadding;
}

// From places within the parent to places in the picture.
void Move(Box& box, double x, double y) {
  box.x += x;
  box.y += y;
  for (Box& child : box.children) Move(child, box.x, box.y);
}

}  // namespace

Box LayOut(const Machine& machine, double x, double y) {
  Box root = {.title = machine.host.empty() ? "machine" : machine.host};
  if (!machine.arch.empty()) absl::StrAppend(&root.title, ", ", machine.arch);
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    Place(root, machine.gpus[i].position)
        .children.push_back(GpuBox(machine, i));
  }
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    Place(root, nic.position).children.push_back(NicBox(nic, i));
  }
  std::stable_sort(
      root.children.begin(), root.children.end(),
      [](const Box& a, const Box& b) { return a.title < b.title; });
  Measure(root);
  Move(root, x, y);
  return root;
}

std::vector<const Box*> Devices(const Box& box, Box::Kind kind, size_t count) {
  std::vector<const Box*> found(count, nullptr);
  std::vector<const Box*> open = {&box};
  while (!open.empty()) {
    const Box* each = open.back();
    open.pop_back();
    if (each->kind == kind && each->index < count) found[each->index] = each;
    for (const Box& child : each->children) open.push_back(&child);
  }
  return found;
}

}  // namespace telegrad::picture
