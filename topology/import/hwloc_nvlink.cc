#include "topology/import/hwloc_nvlink.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "topology/import/pci.h"

namespace telegrad::topology_import {
namespace {

constexpr size_t kMaxObjects = 512;
constexpr double kLaneMbytes = 25000;  // NVLink 2 and later, without 5

// The words of all children of that name, in their order.
std::vector<std::string> Words(const XmlElement& table,
                               absl::string_view name) {
  std::vector<std::string> words;
  for (const XmlElement& child : table.children) {
    if (child.name != name) continue;
    for (const absl::string_view word : absl::StrSplit(
             child.text, absl::ByAnyChar(" \n\t\r"), absl::SkipEmpty())) {
      words.emplace_back(word);
      if (words.size() > kMaxObjects * kMaxObjects) return words;
    }
  }
  return words;
}

// "OSDev:802" or, in a table of one type, "802".
const GpObject* Find(const GpObjects& objects, const std::string& word) {
  const size_t colon = word.find(':');
  const auto it =
      objects.find(colon == std::string::npos ? word : word.substr(colon + 1));
  return it == objects.end() ? nullptr : &it->second;
}

void AddLink(const GpObject& a, const GpObject& b, double mbytes,
             Machine& machine) {
  if (machine.links.size() >= kMaxLinks) return;
  GpuLink link = {.a = a.gpu, .b = b.gpu};
  if (b.gpu < 0) {
    link.b = GpuLink::kToSwitch;
    link.b_name = b.name;
  }
  link.lanes = std::max(1, static_cast<int>(std::lround(mbytes / kLaneMbytes)));
  link.gbytes_per_s = {.value = mbytes / 1000,
                       .why = {{.what = "gbytes_per_s",
                                .source = "hwloc XML, NVLinkBandwidth",
                                .raw = absl::StrCat(mbytes, " MB/s")}}};
  machine.links.push_back(std::move(link));
}

void AddTable(const XmlElement& table, const GpObjects& objects,
              Machine& machine) {
  const std::vector<std::string> names = Words(table, "indexes");
  const std::vector<std::string> values = Words(table, "u64values");
  const size_t size = names.size();
  if (size > kMaxObjects || values.size() != size * size) {
    machine.notes.push_back(
        Note("skipped a table of NVLinks", "hwloc XML",
             absl::StrCat(size, " objects, ", values.size(), " values")));
    return;
  }
  for (size_t i = 0; i < size; ++i) {
    const GpObject* a = Find(objects, names[i]);
    for (size_t j = 0; a != nullptr && a->gpu >= 0 && j < size; ++j) {
      const GpObject* b = Find(objects, names[j]);
      double mbytes = 0;
      const bool is_link = b != nullptr && b->gpu != a->gpu &&
                           absl::SimpleAtod(values[i * size + j], &mbytes) &&
                           mbytes > 0 && mbytes < 1e7;
      // Two GPUs have an entry for each direction in the table; one is taken.
      if (is_link && (b->gpu < 0 || i < j)) AddLink(*a, *b, mbytes, machine);
    }
  }
}

}  // namespace

void AddNvlinks(const XmlElement& root, const GpObjects& objects,
                Machine& machine) {
  for (const XmlElement& table : root.children) {
    if ((table.name == "distances2" || table.name == "distances2hetero") &&
        table.Attribute("name") == "NVLinkBandwidth") {
      AddTable(table, objects, machine);
    }
  }
}

}  // namespace telegrad::topology_import
