#include "topology/picture/svg.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "topology/path.h"
#include "topology/picture.h"

namespace telegrad {
namespace picture {
namespace {

constexpr double kMargin = 16;
constexpr double kBarHeight = 26;

const char* StyleOf(const Box& box) {
  switch (box.kind) {
    case Box::Kind::kMachine:
      return "fill=\"#ffffff\" stroke=\"#555555\"";
    case Box::Kind::kPackage:
      return "fill=\"#f4f4f8\" stroke=\"#8888a0\" rx=\"6\"";
    case Box::Kind::kHostBridge:
      return "fill=\"#e9eef6\" stroke=\"#9bb0cc\" rx=\"5\"";
    case Box::Kind::kSwitch:
      return "fill=\"#dbe6f4\" stroke=\"#6f8fb8\" rx=\"5\"";
    case Box::Kind::kGpu:
      return "fill=\"#e4f3cf\" stroke=\"#5c8f00\" rx=\"4\"";
    case Box::Kind::kNic:
      return box.is_down ? "fill=\"#f5f5f5\" stroke=\"#c23b3b\" "
                           "stroke-dasharray=\"4 3\" rx=\"4\""
                         : "fill=\"#ffe9cc\" stroke=\"#cc7a00\" rx=\"4\"";
  }
  return "";
}

double Middle(const Box& box) { return box.x + box.width / 2; }

// Between two GPUs, bent so that lines of a row do not lie on each other.
void DrawDirectLink(const Box& a, const Box& b, const GpuLink& link,
                    std::string& svg) {
  const double distance = std::abs(Middle(a) - Middle(b));
  const double x = (Middle(a) + Middle(b)) / 2;
  const double y = (a.y + b.y) / 2 + a.height + 10 + distance / 16;
  absl::StrAppendFormat(
      &svg,
      "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\" class=\"nvlink\" "
      "stroke-width=\"%.1f\"><title>%d NVLinks</title></path>\n",
      Middle(a), a.y + a.height, x, y, Middle(b), b.y + b.height,
      1.0 + std::min(link.lanes, 18) / 6.0, link.lanes);
}

// A drop from the GPU to the bar.
void DrawSwitchLink(const Box& gpu, int lanes, double y, std::string& svg) {
  const double x = Middle(gpu) + 5 * static_cast<double>(gpu.index % 8);
  absl::StrAppendFormat(&svg,
                        "<path d=\"M%.1f %.1f V%.1f\" class=\"nvlink\" "
                        "stroke-width=\"2\"><title>%d NVLinks</title></path>\n",
                        x, gpu.y + gpu.height, y, lanes);
}

bool IsDevice(const Box& box) {
  return box.kind == Box::Kind::kGpu || box.kind == Box::Kind::kNic;
}

}  // namespace

std::string Escape(absl::string_view text, size_t max_chars) {
  std::string escaped;
  for (const char c : text.substr(0, max_chars)) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return escaped;
}

void DrawRectangle(double x, double y, double width, double height,
                   absl::string_view style, std::string& svg) {
  absl::StrAppendFormat(&svg,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                        "height=\"%.1f\" %s/>\n",
                        x, y, width, height, style);
}

void DrawText(double x, double y, absl::string_view style,
              absl::string_view text, std::string& svg) {
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x,
                        y, style, text);
}

void DrawBoxes(const Box& box, bool devices, std::string& svg) {
  if (IsDevice(box) == devices) {
    DrawRectangle(box.x, box.y, box.width, box.height, StyleOf(box), svg);
    DrawText(box.x + kPadding, box.y + 16, "class=\"title\"",
             Escape(box.title, devices ? 20 : 200), svg);
    double y = box.y + 32;
    for (const std::string& line : box.lines) {
      DrawText(box.x + kPadding, y, "class=\"small\"", Escape(line, 25), svg);
      y += 15;
    }
  }
  for (const Box& child : box.children) DrawBoxes(child, devices, svg);
}

double DrawNvlinks(const Machine& machine, const Box& root, double y,
                   std::string& svg) {
  const std::vector<const Box*> gpus =
      Devices(root, Box::Kind::kGpu, machine.gpus.size());
  std::map<size_t, int> lanes;  // a GPU's lanes to switches
  std::set<std::string> switches;
  for (const GpuLink& link : machine.links) {
    const auto a = static_cast<size_t>(link.a);
    if (link.b >= 0) {
      DrawDirectLink(*gpus[a], *gpus[static_cast<size_t>(link.b)], link, svg);
    } else if (link.b == GpuLink::kToSwitch) {
      lanes[a] += link.lanes;
      switches.insert(link.b_name);
    }
  }
  if (switches.empty()) return y;
  for (const auto& [gpu, count] : lanes) {
    DrawSwitchLink(*gpus[gpu], count, y, svg);
  }
  DrawRectangle(root.x, y, root.width, kBarHeight,
                "fill=\"#cfe8a0\" stroke=\"#5c8f00\" rx=\"4\"", svg);
  DrawText(root.x + kPadding, y + 17, "class=\"title\"",
           Escape(absl::StrCat(switches.size(),
                               " NVSwitches: ", absl::StrJoin(switches, ", ")),
                  static_cast<size_t>(root.width / 8.5)),
           svg);
  return y + kBarHeight + kMargin;
}

}  // namespace picture

std::string ToSvg(const Machine& machine) {
  using picture::Box;
  const Box root = picture::LayOut(machine, picture::kMargin, picture::kMargin);
  std::string body;
  picture::DrawBoxes(root, false, body);
  double y = root.y + root.height + picture::kMargin;
  y = picture::DrawNvlinks(machine, root, y, body);  // behind the devices
  picture::DrawBoxes(root, true, body);
  std::vector<std::string> gpus;
  for (const Gpu& gpu : machine.gpus) gpus.push_back(gpu.name);
  std::vector<std::string> nics;
  for (const Nic& nic : machine.nics) nics.push_back(nic.name);
  const double x = picture::kMargin;
  y = picture::DrawMatrix({"GPU to NIC", &machine.gpu_nic, gpus, nics}, x, y,
                          body);
  y = picture::DrawMatrix({"GPU to GPU", &machine.gpu_gpu, gpus, gpus}, x, y,
                          body);
  if (!gpus.empty()) y = picture::DrawLegend(x, y, body);
  const size_t columns =
      std::min<size_t>(std::max(gpus.size(), nics.size()), 64);
  const double width = std::max({root.x + root.width,
                                 130.0 + 62.0 * static_cast<double>(columns),
                                 gpus.empty() ? 0.0 : 1530.0});
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
      "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.title{font-weight:bold}.small{font-size:11px}"
      ".nvlink{fill:none;stroke:#5c8f00;stroke-opacity:0.55}</style>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
      width + picture::kMargin, y + picture::kMargin, body);
}

}  // namespace telegrad
