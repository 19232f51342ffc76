#include "trainer/training_flags.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "trainer/profile.h"

namespace telegrad {
namespace {

constexpr char kGroup[] = "Training";

void AddNetworkFlags(CLI::App& app, TrainOptions& options) {
  app.add_option("--network", options.network, "model (below)")
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--num-layers", options.num_layers,
                 "of --network resnet and vgg: resnet with 50 is resnet50")
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
  app.add_option("--image-shape", options.image_shape,
                 "channels,rows,columns of synthetic images and of those of "
                 "imagefolder: 3,224,224; else what the network is made for")
      ->group(kGroup);
  app.add_option("--num-classes", options.num_classes,
                 "of synthetic data; else what the network is made for")
      ->check(CLI::Range(2, 65536))
      ->group(kGroup);
  app.add_option("--num-examples", options.num_examples,
                 "of an epoch of synthetic data; else 100 batches per worker")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->group(kGroup);
  app.add_option("--dtype", options.dtype, "of weights and gradients")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32"}))
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
  app.add_option("--lr", options.lr, "learning rate")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
  app.add_option("--lr-step-epochs", options.lr_step_epochs,
                 "epochs before which lr is multiplied by --lr-factor: 1,2")
      ->delimiter(',')
      ->group(kGroup);
  app.add_option("--lr-factor", options.lr_factor, "see --lr-step-epochs")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
  app.add_option("--mom", options.mom, "momentum")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->group(kGroup);
  app.add_option("--wd", options.wd, "weight decay")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
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

void AddTrainingFlags(CLI::App& app, TrainOptions& options) {
  AddNetworkFlags(app, options);
  app.add_option("--data", options.data, "data set (below)")
      ->capture_default_str()
      ->group(kGroup);
  AddScheduleFlags(app, options);
}

absl::Status FinishTrainingFlags(TrainOptions& options) {
  ASSIGN_OR_RETURN(options.network,
                   NetworkOfDepth(options.network, options.num_layers));
  if (!options.image_shape.empty()) {
    RETURN_IF_ERROR(ParseImageShape(options.image_shape).status());
  }
  if (IsProfile(options.network) && !options.benchmark) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--network ", options.network,
        " is a gradient profile without a model; it needs --benchmark 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NetworkSpec> RequestedSpec(const TrainOptions& options) {
  ASSIGN_OR_RETURN(NetworkSpec spec, DefaultSpec(options.network));
  if (!options.image_shape.empty()) {
    ASSIGN_OR_RETURN(const auto shape, ParseImageShape(options.image_shape));
    spec.channels = shape[0];
    spec.rows = shape[1];
    spec.cols = shape[2];
  }
  if (options.num_classes > 0) spec.num_classes = options.num_classes;
  if (!options.seeds.empty()) spec.seed = options.seeds[0];
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
