#include "trainer/flags/checkpoint_flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

absl::Status CheckReshardFlag(const TrainOptions& options) {
  const auto refuse = [](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reshard-residuals: ", why));
  };
  if (options.reshard_residuals.empty()) return absl::OkStatus();
  if (!options.resume) return refuse("it is for --resume");
  if (options.laboratory.emulate_workers > 0) {
    return refuse("workers of one process (--emulate-workers) stay as many");
  }
  if (!options.has_auto_chunk) return absl::OkStatus();
  return refuse(
      "with --chunk-elems auto chunks are the plan's, and those of the saved "
      "run cannot be known");
}

}  // namespace

void AddCheckpointFlags(CLI::App& app, TrainOptions& options) {
  const char* group = "Checkpoints";
  app.add_option("--checkpoint", options.checkpoint,
                 "folder for checkpoints, which all workers reach")
      ->group(group);
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "steps or epochs between two: 500, 1epoch, 2epochs")
      ->capture_default_str()
      ->group(group);
  app.add_option("--keep", options.keep, "how many stay, the newest")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20))
      ->group(group);
  app.add_flag("--resume", options.resume,
               "go on from the newest checkpoint that is whole")
      ->group(group);
  app.add_option("--reshard-residuals", options.reshard_residuals,
                 "resume with other numbers of workers or servers: sum adds "
                 "up and deals out what codecs hold back, drop forgets it")
      ->check(CLI::IsMember({"sum", "drop"}))
      ->group(group);
  app.add_option("--show-checkpoint", options.show_checkpoint,
                 "print what the checkpoints of a folder hold, and end")
      ->group(group);
}

absl::StatusOr<CheckpointInterval> ParseCheckpointInterval(
    absl::string_view text) {
  absl::string_view number = text;
  const bool is_epochs = absl::ConsumeSuffix(&number, "epochs") ||
                         absl::ConsumeSuffix(&number, "epoch");
  int64_t value = 0;
  if (!absl::SimpleAtoi(number, &value) || value < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint-every '", text,
                     "': it takes steps or epochs: 500, "
                     "1epoch, 2epochs"));
  }
  return is_epochs ? CheckpointInterval{.epochs = value}
                   : CheckpointInterval{.steps = value};
}

absl::Status CheckCheckpointFlags(const TrainOptions& options) {
  RETURN_IF_ERROR(CheckReshardFlag(options));
  if (options.checkpoint.empty()) {
    if (!options.resume) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--resume needs --checkpoint DIR, where to resume from");
  }
  RETURN_IF_ERROR(ParseCheckpointInterval(options.checkpoint_every).status());
  if (options.settings.size() > 1 || options.seeds.size() > 1) {
    return absl::InvalidArgumentError(
        "--checkpoint is for one setting and one seed, so that a folder is of "
        "one run");
  }
  return absl::OkStatus();
}

}  // namespace telegrad
