#include "topology/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "topology/import.h"
#include "topology/import/xml.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// All texts of the elements of that name.
void Collect(const topology_import::XmlElement& element, const char* name,
             std::vector<std::string>& texts) {
  if (element.name == name) texts.push_back(element.text);
  for (const auto& child : element.children) Collect(child, name, texts);
}

std::vector<std::string> TextsOf(const std::string& svg, const char* name) {
  const auto root = topology_import::ParseXml(svg);
  EXPECT_TRUE(root.ok()) << root.status();
  std::vector<std::string> texts;
  if (root.ok()) Collect(*root, name, texts);
  return texts;
}

TEST(Picture, ShowsDevicesSwitchesLinksAndClasses) {
  for (const char* name : {"nccl_quirks.xml", "hwloc2.xml", "hwloc1.xml"}) {
    const auto machine = MachineFromFile(
        absl::StrCat(TELEGRAD_TOPOLOGY_OWN_FIXTURES, "/", name));
    ASSERT_TRUE(machine.ok()) << machine.status();
    const auto texts = TextsOf(ToSvg(*machine), "text");
    for (const Gpu& gpu : machine->gpus) {
      EXPECT_THAT(texts, ::testing::Contains(gpu.name));
      for (const std::string& each : gpu.position.switches) {
        EXPECT_THAT(texts, ::testing::Contains(absl::StrCat("switch ", each)));
      }
    }
    for (const Nic& nic : machine->nics) {
      EXPECT_THAT(texts, ::testing::Contains(nic.name));
    }
    for (const auto& row : machine->gpu_nic) {
      for (const PathInfo& path : row) {
        EXPECT_THAT(texts, ::testing::Contains(Name(path.path)));
      }
    }
    EXPECT_EQ(TextsOf(ToSvg(*machine), "path").empty(), machine->links.empty());
  }
}

TEST(Picture, NamesRatesAndNvswitches) {
  const auto machine =
      MachineFromFile(TELEGRAD_TOPOLOGY_OWN_FIXTURES "/nccl_quirks.xml");
  ASSERT_TRUE(machine.ok()) << machine.status();
  const std::string svg = ToSvg(*machine);
  EXPECT_THAT(svg, HasSubstr("RoCEv2 200 Gb/s +1"));
  EXPECT_THAT(svg, HasSubstr("2 NVSwitches: 0000:90:00.0, 0000:91:00.0"));
  EXPECT_THAT(svg, HasSubstr("4 NVLinks"));
}

TEST(Picture, KeepsHostileNamesInTheirPlace) {
  Machine machine;
  machine.host = "<script>alert(1)</script>\x01\xff";
  machine.nics = {{.name = "\"/><rect/>&"}};
  machine.gpus = {{.name = std::string(5000, 'x')}};
  machine.gpus[0].position.switches.assign(4000, "s");
  FillPaths(machine);
  const std::string svg = ToSvg(machine);
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_TRUE(TextsOf(svg, "script").empty());
  EXPECT_TRUE(topology_import::ParseXml(ToSvg(Machine())).ok());
}

}  // namespace
}  // namespace telegrad
