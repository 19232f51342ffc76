// libFuzzer: calibrations; what is read survives another dump.
#include <cstdlib>
#include <string>

#include "tests/fuzz/edited.h"
#include "topology/calibration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const std::string* const good =
      new std::string(CalibrationToJson(AssumedCalibration(), -1));
  const auto read = CalibrationFromJson(EditedOrRaw(*good, data, size));
  if (!read.ok()) return 0;
  const auto again = CalibrationFromJson(CalibrationToJson(*read));
  if (!again.ok() || *again != *read) std::abort();
  return 0;
}
