#include "trainer/launch/measure_here.h"

#include <algorithm>

#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<Calibration> MeasureHere(const Setting& setting,
                                        std::set<std::string> codecs,
                                        const CalibrationOptions& how,
                                        double cores) {
  Calibration calibration = MeasureCores(how);
  const Calibration assumed = AssumedCalibration();
  calibration.links = assumed.links;
  calibration.cores = assumed.cores;
  calibration.cores.value = std::max(1.0, cores);
  codecs.erase("none");
  for (const std::string& codec : codecs) {
    ASSIGN_OR_RETURN(calibration.codecs.emplace_back(),
                     MeasureCodec(codec, CompressionOf(setting), how));
  }
  return calibration;
}

}  // namespace telegrad
