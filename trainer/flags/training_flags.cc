#include "trainer/flags/training_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "trainer/flags/checkpoint_flags.h"
#include "trainer/flags/profile.h"
#include "trainer/networks/loss_scale.h"

namespace telegrad {
namespace {

constexpr char kGroup[] = "Training";

void AddNetworkFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--network,--model", options.network, "model (below)")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option(
         "--num-layers", options.num_layers,
         "layers of --network resnet and vgg: resnet with 50 is resnet50")
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
  app.add_option("--image-shape", options.image_shape,
                 "channels,rows,columns of synthetic images and of those of "
                 "imagefolder: 3,224,224; else what the network is made for")
      ->group(kGroup);
  app.add_option("--num-classes", options.num_classes,
                 "classes of synthetic data; else what the network is made for")
      ->check(CLI::Range(2, 65536))
      ->group(kGroup);
  app.add_option(
         "--num-examples", options.num_examples,
         "samples of an epoch of synthetic data; else 100 batches per worker")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->group(kGroup);
  app.add_option("--dtype", options.dtype,
                 "float32, bfloat16 or float16: what products are computed in; "
                 "weights and gradients are float32")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->group(kGroup);
  app.add_option(
         "--loss-scale", options.loss_scale,
         "factor of the loss with --dtype float16: dynamic, or a power of "
         "two from 1 on; 1: none")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--bn-stats", options.bn_stats,
                 "statistics of batch normalisation that all workers take "
                 "before an evaluation: their mean, or worker 0's (rank0)")
      ->capture_default_str()
      ->check(CLI::IsMember({"mean", "rank0"}))
      ->group(kGroup);
}

void AddScheduleFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--batch-size", options.batch_size, "samples per worker")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
  app.add_option("--num-epochs", options.num_epochs, "passes over the data")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
}

void AddRuleFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--lr-schedule", options.lr_schedule,
                 "step: --lr-step-epochs; cosine: to 0 over all epochs")
      ->capture_default_str()
      ->check(CLI::IsMember({"step", "cosine"}))
      ->group(kGroup);
  app.add_option("--lr-scaling", options.lr_scaling,
                 "linear: the rate is --lr times the workers (and devices of "
                 "them), whose batches a step has")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "linear"}))
      ->group(kGroup);
  app.add_option("--warmup-epochs", options.warmup_epochs,
                 "epochs in which lr rises, step by step, from 0")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20))
      ->group(kGroup);
  app.add_option("--wd-1d", options.wd_1d,
                 "0: no weight decay of biases and normalisation")
      ->capture_default_str()
      ->check(CLI::Range(0, 1))
      ->group(kGroup);
  app.add_option("--grad-accumulation", options.grad_accumulation,
                 "batches of a worker whose mean gradient makes a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16))
      ->group(kGroup);
  app.add_option("--clip-norm", options.clip_norm,
                 "scales a worker's whole gradient down to this norm before it "
                 "is encoded; 0: never")
      ->capture_default_str()
      ->check(&CheckNotNegative, "NONNEGATIVE")
      ->group(kGroup);
  app.add_option("--label-smoothing", options.label_smoothing,
                 "share of a label that all classes get alike; in the loss of "
                 "training")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.999))
      ->group(kGroup);
  app.add_option("--eval-every", options.eval_every,
                 "epochs between two evaluations; the last is evaluated")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
}

void AddImageFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--random-crop", options.random_crop,
                 "1: cut images out of themselves with --pad-size around")
      ->capture_default_str()
      ->check(CLI::Range(0, 1))
      ->group(kGroup);
  app.add_option("--pad-size", options.pad_size,
                 "pixels around images for --random-crop; else 4")
      ->check(CLI::Range(1, 1024))
      ->group(kGroup);
  app.add_option("--random-mirror", options.random_mirror,
                 "1: mirror half of the images, left to right")
      ->capture_default_str()
      ->check(CLI::Range(0, 1))
      ->group(kGroup);
}

absl::StatusOr<std::array<int, 3>> ParseImageShape(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  std::array<int, 3> shape{};
  bool is_good = parts.size() == 3;
  for (size_t i = 0; is_good && i < 3; ++i) {
    is_good = absl::SimpleAtoi(parts[i], &shape[i]) && shape[i] > 0;
  }
  if (is_good) return shape;
  return absl::InvalidArgumentError(absl::StrCat(
      "--image-shape '", text, "': it takes channels,rows,columns: 3,224,224"));
}

}  // namespace

std::string CheckNotNegative(const std::string& text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number) && number >= 0) {
    return "";
  }
  return absl::StrCat("'", text, "' is not a number of 0 or more");
}

std::string CheckRate(const std::string& text) {
  double number = 0;
  const bool is_zero = absl::SimpleAtod(text, &number) && number == 0;
  return is_zero ? "'" + text + "' would train nothing; it takes more than 0"
                 : CheckNotNegative(text);
}

std::string CheckDecay(const std::string& text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number) && number >= 0 && number < 1) return "";
  return absl::StrCat("'", text,
                      "' is not a number from 0 on and below 1: 0.9");
}

void AddTrainingFlags(CLI::App& app, TrainOptions& options) {
  AddNetworkFlags(app, options);
  app.add_option("--data", options.data, "data set (below)")
      ->capture_default_str()
      ->group(kGroup);
  AddScheduleFlags(app, options);
  AddRuleFlags(app, options);
  AddImageFlags(app, options);
  AddCheckpointFlags(app, options);
}

absl::Status FinishTrainingFlags(TrainOptions& options) {
  ASSIGN_OR_RETURN(options.network,
                   NetworkOfDepth(options.network, options.num_layers));
  if (!options.image_shape.empty()) {
    RETURN_IF_ERROR(ParseImageShape(options.image_shape).status());
  }
  if (options.random_crop && options.pad_size == 0) options.pad_size = 4;
  if (options.pad_size > 0 && !options.random_crop) {
    return absl::InvalidArgumentError(
        "--pad-size has no effect: it needs --random-crop 1");
  }
  if (options.warmup_epochs >= options.num_epochs &&
      options.warmup_epochs > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--warmup-epochs ", options.warmup_epochs,
                     " leaves nothing of --num-epochs ", options.num_epochs));
  }
  if (options.lr_schedule == "cosine" && !options.lr_step_epochs.empty()) {
    return absl::InvalidArgumentError(
        "--lr-step-epochs has no effect: --lr-schedule is cosine");
  }
  RETURN_IF_ERROR(MakeLossScale(options.dtype, options.loss_scale).status());
  RETURN_IF_ERROR(CheckCheckpointFlags(options));
  if (IsProfile(options.network) && !options.benchmark) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--network ", options.network,
        " is a gradient profile without a model; it needs --benchmark 1"));
  }
  return absl::OkStatus();
}

int64_t NumNoiseSamples(const TrainOptions& options, int num_devices) {
  return options.num_examples > 0
             ? options.num_examples
             : int64_t{100} * options.batch_size * num_devices;
}

float LearningRate(const TrainOptions& options, const Position& at) {
  float rate = options.lr;
  const auto share = [&](int64_t epochs) {
    return static_cast<double>(epochs * at.num_batches);
  };
  const auto done = static_cast<double>(at.epoch * at.num_batches + at.batch);
  if (at.epoch < options.warmup_epochs) {
    return static_cast<float>(static_cast<double>(rate) * (done + 1) /
                              share(options.warmup_epochs));
  }
  if (options.lr_schedule == "cosine") {
    const double begin = share(options.warmup_epochs);
    const double part =
        (done - begin) / std::max(share(options.num_epochs) - begin, 1.0);
    return static_cast<float>(static_cast<double>(rate) * 0.5 *
                              (1 + std::cos(M_PI * part)));
  }
  for (int epoch = 0; epoch <= at.epoch; ++epoch) {
    for (const int step : options.lr_step_epochs) {
      if (step == epoch) rate *= options.lr_factor;
    }
  }
  return rate;
}

DatasetRequest RequestedData(const TrainOptions& options,
                             const NetworkSpec& spec) {
  const bool is_for_images = spec.channels == 1 || spec.channels == 3;
  return {.context = spec.context > 0 ? spec.context : 128,
          .images = options.image_shape.empty() && !is_for_images
                        ? SampleShape{.channels = 3, .rows = 224, .cols = 224}
                        : SamplesOf(spec)};
}

absl::StatusOr<NetworkSpec> RequestedSpec(const TrainOptions& options) {
  ASSIGN_OR_RETURN(NetworkSpec spec, OfFlag("--network", options.network,
                                            DefaultSpec(options.network)));
  if (!options.image_shape.empty()) {
    ASSIGN_OR_RETURN(const auto shape, ParseImageShape(options.image_shape));
    spec.channels = shape[0];
    spec.rows = shape[1];
    spec.cols = shape[2];
  }
  if (options.num_classes > 0) spec.num_classes = options.num_classes;
  if (!options.seeds.empty()) spec.seed = options.seeds[0];
  spec.label_smoothing = options.label_smoothing;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    if (options.dtype == ToString(dtype)) spec.dtype = dtype;
  }
  return spec;
}

void Fit(const SampleShape& samples, NetworkSpec& spec) {
  spec.channels = samples.channels;
  spec.rows = samples.rows;
  spec.cols = samples.cols;
  spec.context = samples.context;
  spec.num_classes = samples.num_classes;
}

SampleShape SamplesOf(const NetworkSpec& spec) {
  return {.channels = spec.channels,
          .rows = spec.rows,
          .cols = spec.cols,
          .context = spec.context,
          .num_classes = spec.num_classes};
}

}  // namespace telegrad
