#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/device.h"
#include "kvstore/options.h"
#include "kvstore/tuning/calibrate.h"
#include "topology/calibration.h"

// What a store's work takes on a device, for the planner.
namespace telegrad {

// Puts the device's speeds of encoding and decoding in the place of a core's
// in `figures`, which MeasureCodec has made with the same arguments. What
// servers do stays a core's. Errors: Unimplemented says why there is no such
// device, others are the codec's and the device's.
absl::Status MeasureOnDevice(Device device, absl::string_view text,
                             const CompressionConfig& compression,
                             const CalibrationOptions& options,
                             CodecFigures& figures);

// The link "bus" between the device and pinned memory of the host: `send` to
// the host, `receive` to the device. Errors as MeasureOnDevice.
absl::StatusOr<LinkFigures> MeasureBus(Device device,
                                       const CalibrationOptions& options);

}  // namespace telegrad
