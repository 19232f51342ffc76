// libFuzzer: files of a checkpoint, with sums that fit: as somebody would make
// them who wants to do harm.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_part.h"
#include "trainer/checkpoint/digest.h"

namespace telegrad {
namespace {

// What is read of a part says what it says again.
void ReadPart(const std::string& content) {
  const uint32_t head[2] = {static_cast<uint32_t>(content.size()),
                            Crc32c(content.data(), content.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof(head));
  bytes += content;
  InputStream file(fmemopen(bytes.data(), bytes.size(), "rb"));
  if (file == nullptr) return;
  const auto reader = PartReader::Begin("part", std::move(file));
  if (!reader.ok()) return;
  for (;;) {
    const auto field = (*reader)->Next();
    if (!field.ok() || field->name.empty()) return;
    if (field->name.size() > kMostFieldName) std::abort();
    if (!(*reader)->Skip(field->size).ok()) return;
  }
}

std::string GoodHead() {
  std::string head = "TGCKPART";
  for (uint32_t rest = kPartVersion, i = 0; i < 4; ++i, rest /= 256) {
    head.push_back(static_cast<char>(rest % 256));
  }
  return head;
}

void ReadManifest(std::string line) {
  for (char& each : line) each = each == '\n' ? ' ' : each;
  line += "\n";
  const auto manifest =
      ParseManifest(absl::StrCat(line, Sha256OfBytes(line), "\n"));
  if (!manifest.ok()) return;
  const auto again = ParseManifest(ManifestText(*manifest));
  if (!again.ok() || again->step != manifest->step) std::abort();
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      telegrad::ReadPart(input);
      break;
    case 1:  // behind the head of a good one
      telegrad::ReadPart(telegrad::GoodHead() + input);
      break;
    default:
      telegrad::ReadManifest(input);
  }
  return 0;
}
