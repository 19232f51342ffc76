// libFuzzer: calibrations; what is read survives another dump.
#include <cstdlib>
#include <string>

#include "tests/fuzz/edited.h"
#include "topology/calibration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const auto* const good = [] {
    Calibration few = AssumedCalibration();
    few.codecs.resize(2);
    few.links.resize(2);
    return new std::string(CalibrationToJson(few));
  }();
  const auto read = CalibrationFromJson(EditedOrRaw(*good, data, size));
  if (!read.ok()) return 0;
  const auto again = CalibrationFromJson(CalibrationToJson(*read));
  if (!again.ok() || *again != *read) std::abort();
  return 0;
}
