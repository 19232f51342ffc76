// A fuzz target's body on changed copies of a good file, for every build:
// random bytes would not get past the first character of XML or JSON.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace telegrad {
namespace {

std::string ReadSeed() {
  std::ifstream file(TELEGRAD_FUZZ_SEED, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << TELEGRAD_FUZZ_SEED;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Flips a byte, takes a piece away or repeats one.
void Change(Random& random, std::string& text) {
  if (text.empty()) return;
  const size_t at = random.NextBelow(static_cast<uint32_t>(text.size()));
  const size_t length = random.NextBelow(40);
  switch (random.NextBelow(3)) {
    case 0:
      text[at] = static_cast<char>(random.NextU32());
      break;
    case 1:
      text.erase(at, length);
      break;
    default:
      text.insert(at, text.substr(at, length));
  }
}

TEST(Fuzz, ChangedFilesDoNoHarm) {
  const std::string seed = ReadSeed();
  Random random(42);
  for (int i = 0; i < 2000; ++i) {
    std::string text = seed;
    for (int changes = i % 4; changes >= 0; --changes) Change(random, text);
    ASSERT_EQ(LLVMFuzzerTestOneInput(
                  reinterpret_cast<const uint8_t*>(text.data()), text.size()),
              0);
  }
}

}  // namespace
}  // namespace telegrad
