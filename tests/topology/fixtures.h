#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace telegrad::testing {

// The folder of published files of real machines, which are not part of the
// project: that of the environment, else beside the tree; empty where there
// is none.
inline std::string PublishedFixtures() {
  namespace fs = std::filesystem;
  const char* set = std::getenv("TELEGRAD_TOPOLOGY_FIXTURES");
  const fs::path folder =
      set != nullptr ? set : TELEGRAD_TOPOLOGY_FIXTURES_BESIDE;
  std::error_code error;
  return fs::exists(folder / "EXPECTED.json", error) ? folder.string() : "";
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace telegrad::testing

#define TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES()                \
  if (::telegrad::testing::PublishedFixtures().empty()) {         \
    GTEST_SKIP() << "no published topology files: set "           \
                    "TELEGRAD_TOPOLOGY_FIXTURES to their folder"; \
  }                                                               \
  static_assert(true)
