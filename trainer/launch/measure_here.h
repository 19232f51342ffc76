#pragma once

#include <set>
#include <string>

#include "kvstore/tuning/calibrate.h"
#include "trainer/flags/options.h"

namespace telegrad {

// Figures of this machine's cores, `cores` of them (1 at least), and of the
// codecs, as the setting has them; links as they are assumed. Errors as
// MeasureCodec.
absl::StatusOr<Calibration> MeasureHere(const Setting& setting,
                                        std::set<std::string> codecs,
                                        const CalibrationOptions& how,
                                        double cores);

}  // namespace telegrad
