#include "trainer/data/text.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/data/inflate.h"

namespace telegrad {
namespace {

constexpr uint64_t kSeed = 0x6c616e6775616731;  // "languag1"
constexpr uint32_t kSymbols = 27;
constexpr uint32_t kSteps[3][4] = {
    {1, 5, 11, 19}, {2, 7, 13, 23}, {3, 10, 17, 25}};
constexpr uint64_t kMostBytes = uint64_t{4} << 30;
constexpr size_t kPieceBytes = size_t{1} << 20;

Dataset TextOf(const std::string& name, std::vector<uint8_t> bytes,
               int context) {
  Dataset text;
  text.name = name;
  text.channels = text.rows = text.cols = 1;
  text.context = context;
  text.num_classes = 256;
  text.pixels = std::move(bytes);
  return text;
}

}  // namespace

std::vector<uint8_t> WriteLanguage(uint64_t stream, size_t num_bytes) {
  Random random(kSeed, stream);
  std::vector<uint8_t> text;
  uint32_t before = 0;
  uint32_t last = 0;
  while (text.size() < num_bytes) {
    const uint32_t chance = random.NextU32() >> 29;  // 0..7
    const size_t place = chance < 4 ? 0 : chance < 6 ? 1 : chance - 4;
    const uint32_t next = (last + kSteps[before % 3][place]) % kSymbols;
    text.push_back(static_cast<uint8_t>(next < 26 ? 'a' + next : ' '));
    before = std::exchange(last, next);
  }
  return text;
}

DatasetPair MakeLanguage(int context) {
  return {.train = TextOf("text", WriteLanguage(0, kLanguageTrain), context),
          .test = TextOf("text", WriteLanguage(1, kLanguageTest), context)};
}

absl::StatusOr<DatasetPair> ReadText(const std::string& path, int context) {
  ASSIGN_OR_RETURN(const std::unique_ptr<InflateReader> reader,
                   InflateReader::Open(path));
  std::vector<uint8_t> bytes;
  for (size_t got = kPieceBytes; got == kPieceBytes;) {
    const size_t at = bytes.size();
    if (at >= kMostBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": byte ", at, ": the text is longer than ", kMostBytes));
    }
    bytes.resize(at + kPieceBytes);
    ASSIGN_OR_RETURN(got, reader->Read(bytes.data() + at, kPieceBytes));
    bytes.resize(at + got);
  }
  const size_t sample = static_cast<size_t>(context) + 1;
  const size_t num_test = bytes.size() / 10;
  if (num_test < sample) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", bytes.size(),
                     " bytes are too few: a tenth is to test, and "
                     "a sample has ",
                     sample));
  }
  std::vector<uint8_t> test(bytes.end() - static_cast<ptrdiff_t>(num_test),
                            bytes.end());
  bytes.resize(bytes.size() - num_test);
  return DatasetPair{.train = TextOf("text", std::move(bytes), context),
                     .test = TextOf("text", std::move(test), context)};
}

}  // namespace telegrad
