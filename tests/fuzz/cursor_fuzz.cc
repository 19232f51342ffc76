// libFuzzer: cursors of checkpoints; what is read is written and read again.
#include <cstdlib>
#include <string>

#include "tests/fuzz/edited.h"
#include "trainer/checkpoint/cursor.h"

namespace telegrad {
namespace {

std::string GoodCursor() {
  Cursor cursor{.step = 120, .epoch = 1, .batch = 20, .seconds = 3.5};
  cursor.traffic.push_raw_bytes = 1 << 20;
  cursor.auto_choice = "{\"codec\":\"2bit\",\"tensors\":[]}";
  cursor.points = {{.epoch = 1, .step = 100, .seconds = 3, .train_loss = 0.5}};
  return CursorText(cursor);
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const std::string* const good = new std::string(GoodCursor());
  const auto cursor = ParseCursor(EditedOrRaw(*good, data, size));
  if (!cursor.ok()) return 0;
  if (cursor->step < 0 || cursor->epoch < 0 || cursor->batch < 0) std::abort();
  const auto again = ParseCursor(CursorText(*cursor));
  if (!again.ok() || again->step != cursor->step ||
      again->points.size() != cursor->points.size()) {
    std::abort();
  }
  return 0;
}
