#include "kvstore/engine/codec/checks.h"

#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/codec_policy.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/optimizer.h"

namespace telegrad {

namespace {

std::string NameOf(Device device) {
  if (device == kEmulatedDevice) return "on the emulated device";
  return device.kind == DeviceKind::kCpu
             ? "in host memory"
             : absl::StrCat("on cuda:", device.ordinal);
}

absl::Status CheckMomentum(const CompressionConfig& compression,
                           const OptimizerConfig& optimizer,
                           std::span<const TensorSpec> tensors) {
  if (compression.momentum == PushMomentum::kNone) return absl::OkStatus();
  const float rate = compression.momentum_rate;
  if (!(rate >= 0 && rate < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("momentum in front of the codec with a rate of ", rate,
                     ": 0 to 1, 1 excluded"));
  }
  if (optimizer.update_on == UpdateOn::kServer &&
      optimizer.sgd.momentum_rate != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "momentum in two places: ", rate, " in front of the codec and ",
        optimizer.sgd.momentum_rate, " in the optimizer; take one of them"));
  }
  for (const TensorSpec& tensor : tensors) {
    if (tensor.row_elems == 0 || !tensor.has_momentum) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "momentum in front of the codec, and tensor ", tensor.name,
        " has rows, whose pushes are of some elements only: leave the momentum "
        "to the optimizer"));
  }
  return absl::OkStatus();
}

// What the network does is no part of a graph, and what a captured stream is
// given would never be ready.
absl::Status CheckStream(const TensorSpec& tensor, const TensorView& view) {
  if (!kernels::IsCaptured(view.bytes.device, view.stream)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "tensor ", tensor.name,
      ": its stream on cuda:", view.bytes.device.ordinal,
      " is being captured into a CUDA graph, which cannot hold an operation of "
      "a store; end the capture first, and call the store behind each replay"));
}

}  // namespace

bool IsTensorName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("_.:/-").find(c) == absl::string_view::npos) {
      return false;
    }
  }
  return true;
}

absl::Status CheckTensors(std::span<const TensorSpec> tensors) {
  if (tensors.empty() || tensors.size() > kMaxTensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensors.size(), " tensors; 1 to ", kMaxTensors));
  }
  std::set<absl::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    for (const float rate : {tensor.rates.lr, tensor.rates.wd}) {
      if (std::isfinite(rate) && rate >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name.substr(0, kMaxNameBytes),
                       " with a multiplier of ", rate, " for its rates"));
    }
    if (tensor.row_elems > 0 && tensor.num_elems % tensor.row_elems > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor.name.substr(0, kMaxNameBytes), " of ",
          tensor.num_elems, " elements in rows of ", tensor.row_elems));
    }
    if (tensor.chunk_elems > 0) {
      RETURN_IF_ERROR(CheckChunkElems(tensor.chunk_elems));
    }
    if (IsTensorName(tensor.name) && tensor.num_elems <= kMaxTensorElems) {
      if (names.insert(tensor.name).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " twice"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name.substr(0, kMaxNameBytes),
                     "' with ", tensor.num_elems,
                     " elements: names are [A-Za-z0-9_.:/-]{1,256}, "
                     "sizes 0 to ",
                     kMaxTensorElems));
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const CompressionConfig& compression,
                         const OptimizerConfig& optimizer,
                         std::span<const TensorSpec> tensors) {
  RETURN_IF_ERROR(CheckOptimizer(optimizer));
  ASSIGN_OR_RETURN(CodecPolicy policy, MakeCodecPolicy(compression));
  std::vector<const JobCodec*> specs = policy.specs();
  for (const TensorSpec& tensor : tensors) {
    if (tensor.codec.empty()) continue;
    ASSIGN_OR_RETURN(const CodecChoice own, policy.Choose(tensor));
    specs.push_back(own.specs.front());
  }
  bool is_lossy = false;
  for (const JobCodec* spec : specs) {
    const CodecTraits& traits = spec->codec->traits();
    const ThresholdSpec threshold =
        spec->threshold.value_or(compression.threshold);
    const float fixed = FixedThreshold(threshold, compression.batch_size);
    if (traits.needs_threshold && !FollowsGradient(threshold) &&
        (!std::isnormal(fixed) || fixed < 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "threshold ", ToString(threshold), " at batch size ",
          compression.batch_size, " is not a positive normal number"));
    }
    is_lossy |= !traits.lossless;
  }
  RETURN_IF_ERROR(CheckMomentum(compression, optimizer, tensors));
  if (compression.reply == ReplyMode::kReencode && is_lossy &&
      optimizer.update_on == UpdateOn::kServer) {
    return absl::InvalidArgumentError(
        "reply mode reencode needs the optimizer on the workers "
        "(--update-on worker): weights are sent dense");
  }
  return absl::OkStatus();
}

absl::Status CheckAsync(const CompressionConfig& compression,
                        const OptimizerConfig& optimizer,
                        int64_t max_staleness) {
  if (optimizer.update_on == UpdateOn::kWorker) {
    return absl::InvalidArgumentError(
        "an asynchronous store needs the optimizer on the servers (--update-on "
        "server): there is no sum for workers to step with");
  }
  if (compression.reply == ReplyMode::kSum) {
    return absl::InvalidArgumentError(
        "reply mode sum needs a synchronous store: an asynchronous one has no "
        "sums, weights are sent dense");
  }
  if (max_staleness < kAnyStaleness || max_staleness > kMaxStaleness) {
    return absl::InvalidArgumentError(
        absl::StrCat("a staleness of at most ", max_staleness, " steps: 0 to ",
                     kMaxStaleness));
  }
  return absl::OkStatus();
}

absl::Status CheckDropSlowest(const CompressionConfig& compression,
                              const OptimizerConfig& optimizer) {
  if (optimizer.update_on == UpdateOn::kWorker) {
    return absl::InvalidArgumentError(
        "a store that drops the slowest needs the optimizer on the servers "
        "(--update-on server): a worker that comes late takes the newest "
        "weights, and sums that it has missed are gone");
  }
  if (compression.reply == ReplyMode::kSum) {
    return absl::InvalidArgumentError(
        "reply mode sum is of as many codes as there are workers, and a store "
        "that drops the slowest has other numbers in each round: weights are "
        "sent, take dense or auto");
  }
  return absl::OkStatus();
}

absl::Status CheckChunkElems(size_t chunk_elems) {
  if (chunk_elems >= 1 && chunk_elems <= kMaxChunkElems) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "chunks of ", chunk_elems, " elements; at most ", kMaxChunkElems));
}

Device PlaceOf(const TensorSpec& tensor, size_t device) {
  return tensor.devices.empty() ? Device{} : tensor.devices[device];
}

absl::Status CheckPlaces(std::span<const TensorSpec> tensors, int num_devices) {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.dtype != Dtype::kFloat32 && tensor.dtype != Dtype::kFloat16 &&
        tensor.dtype != Dtype::kBfloat16) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " of ", ToString(tensor.dtype),
                       "; float32, float16 or bfloat16"));
    }
    if (!tensor.devices.empty() &&
        tensor.devices.size() != static_cast<size_t>(num_devices)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " on ", tensor.devices.size(),
                       " devices in a store of ", num_devices,
                       num_devices == 1 ? " device" : " devices"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckViews(const TensorSpec& tensor,
                        std::span<const TensorView> views, int num_devices) {
  if (views.size() != static_cast<size_t>(num_devices)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", tensor.name, " with ", views.size(), " views in a store of ",
        num_devices, num_devices == 1 ? " device" : " devices"));
  }
  for (const TensorView& view : views) {
    if (view.rows.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor.name,
          ": a view of some rows where all are needed: "
          "rows are pushed and pulled one after the other, in stores that take "
          "them"));
    }
    const Device place =
        PlaceOf(tensor, static_cast<size_t>(&view - &views[0]));
    const size_t num_bytes = SizeOf(tensor.dtype) * tensor.num_elems;
    if (view.dtype == tensor.dtype && view.bytes.size == num_bytes &&
        (view.bytes.device == place || num_bytes == 0)) {
      RETURN_IF_ERROR(CheckStream(tensor, view));
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor.name, " has ", num_bytes, " bytes of ",
                     ToString(tensor.dtype), " ", NameOf(place),
                     "; this view has ", view.bytes.size, " bytes of ",
                     ToString(view.dtype), " ", NameOf(view.bytes.device)));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(Key key, size_t num_tensors) {
  if (key < num_tensors) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("key ", key, " of ", num_tensors));
}

absl::Status CheckTurn(const TensorSpec& tensor, bool lacks_value,
                       bool is_taken) {
  if (lacks_value) {
    return absl::FailedPreconditionError(
        absl::StrCat("pull of tensor ", tensor.name,
                     ", which has no value before its first push"));
  }
  if (!is_taken) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tensor ", tensor.name, " has an operation already"));
}

absl::Status CheckRoot(int root, int num_workers) {
  if (root >= 0 && root < num_workers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "broadcast by worker/", root, " of ", num_workers, " workers"));
}

absl::Status CheckValues(std::span<const TensorSpec> tensors,
                         std::span<const TensorView> values, int num_devices,
                         const OptimizerConfig& optimizer) {
  if (values.empty()) {
    if (optimizer.update_on == UpdateOn::kWorker) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "an optimizer in the store (update_on server) needs initial values");
  }
  const auto devices = static_cast<size_t>(num_devices);
  if (values.size() != tensors.size() * devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("Init with ", tensors.size(), " tensors and ",
                     values.size(), " values on ", devices, " devices"));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    RETURN_IF_ERROR(CheckViews(tensors[i], values.subspan(i * devices, devices),
                               num_devices));
  }
  return absl::OkStatus();
}

namespace {

// Without a device.
kernels::EncodeStats CountOnHost(const TensorSpec& tensor, ConstBytes grad) {
  const kernels::KernelTable& kernels = kernels::CpuKernels();
  Buffer floats;
  if (tensor.dtype != Dtype::kFloat32) {
    floats = Buffer(4 * tensor.num_elems);
    Widen(kernels, grad, tensor.dtype, tensor.num_elems, floats.as<float>(),
          {});
    grad = floats.view();
  }
  kernels::EncodeStats whole;
  kernels.count_nonfinite(Floats(grad), tensor.num_elems, &whole, {});
  return whole;
}

}  // namespace

// The whole tensor is looked at again, for a report that does not depend on
// which chunk was first.
absl::Status NonFiniteError(absl::string_view who, int number,
                            const TensorSpec& tensor, uint64_t step,
                            ConstBytes grad, DeviceLane* lane,
                            const Chunk& chunk, const EncodedChunk& encoded) {
  kernels::EncodeStats whole;
  if (lane == nullptr) {
    whole = CountOnHost(tensor, grad);
  } else {
    Buffer copy(grad.size);
    RETURN_IF_ERROR(lane->CopyNow(copy.view(), grad, {}));
    whole = CountOnHost(tensor, copy.view());
  }
  if (whole.num_nonfinite == 0) {  // gradient plus residual overflowed
    whole.num_nonfinite = encoded.num_nonfinite;
    whole.first_nonfinite = encoded.first_nonfinite + chunk.begin;
  }
  return NonFiniteError(who, number, tensor, step, whole);
}

absl::Status NonFiniteError(absl::string_view who, int number,
                            const TensorSpec& tensor, uint64_t step,
                            const EncodeStats& whole) {
  absl::Status status = WithExitCode(
      ExitCode::kNumericFault,
      absl::DataLossError(absl::StrFormat(
          "%s: gradient of %s holds %d NaN or infinite elements, the "
          "first at index %d, step %d",
          who, tensor.name, whole.num_nonfinite, whole.first_nonfinite, step)));
  status.SetPayload(
      "telegrad/details",
      absl::Cord(absl::StrFormat(
          R"({"worker":%d,"tensor":"%s","index":%d,"count":%d})", number,
          tensor.name, whole.first_nonfinite, whole.num_nonfinite)));
  return status;
}

}  // namespace telegrad
