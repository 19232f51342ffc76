#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace telegrad {

// A generated language of 27 symbols, 'a' to 'z' and a space. The next symbol
// lies 1 to 4 places of a fixed list behind the last one, modulo 27; which list
// is told by the one before. The places have the chances 1/2, 1/4, 1/8, 1/8 and
// no list has one twice, so the entropy given the two symbols before is exactly
// kLanguageNats, which no model's loss per byte can go below.
inline constexpr double kLanguageNats = 1.2130075659799042;  // 1.75 ln 2
inline constexpr size_t kLanguageTrain = 2'000'000;          // bytes
inline constexpr size_t kLanguageTest = 200'000;

// A text that is equal on every machine; `stream` tells texts apart.
std::vector<uint8_t> WriteLanguage(uint64_t stream, size_t num_bytes);
DatasetPair MakeLanguage(int context);

// The bytes of a file, plain or gzip, at most 4 GiB; the last tenth is the test
// set. InvalidArgument where it is too short for a sample in both.
absl::StatusOr<DatasetPair> ReadText(const std::string& path, int context);

}  // namespace telegrad
