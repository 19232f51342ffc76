#include "trainer/flags/checkpoint_flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "kvstore/kvstore.h"

namespace telegrad {
namespace {

absl::Status CheckReshardFlag(const TrainOptions& options) {
  const auto refuse = [](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--reshard-residuals: ", why));
  };
  if (options.reshard_residuals.empty()) return absl::OkStatus();
  if (!options.resume && options.elastic.min == 0) {
    return refuse("it is for --resume and --elastic");
  }
  if (options.laboratory.emulate_workers > 0) {
    return refuse("workers of one process (--emulate-workers) stay as many");
  }
  if (!options.has_auto_chunk) return absl::OkStatus();
  return refuse(
      "with --chunk-elems auto chunks are the plan's, and those of the saved "
      "run cannot be known");
}

// Who goes on does what --reshard-residuals does, without being asked.
absl::Status CheckElastic(const TrainOptions& options,
                          const CheckpointInterval& interval) {
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("--elastic: ", why...));
  };
  ASSIGN_OR_RETURN(const StoreTraits traits, FindStoreType(options.kv_store));
  if (!traits.has_workers) {
    return refuse("--kv-store ", options.kv_store, " has one worker");
  }
  if (options.has_auto_chunk) {
    return refuse("it takes a number for --chunk-elems, not auto");
  }
  const int period = options.local_steps;
  if (period > 0 && (options.local_fragments > 1 || interval.steps == 0 ||
                     interval.steps % period != 0)) {
    return refuse("with --local-steps ", period,
                  " all workers have the same weights at its multiples alone: "
                  "give --checkpoint-every one of them, and no "
                  "--local-fragments");
  }
  return absl::OkStatus();
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
  app.add_option("--keep", options.keep,
                 "how many checkpoints stay, the newest")
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
  app.add_option_function<std::string>(
         "--elastic",
         [&options](const std::string& text) {
           options.elastic = ParseElastic(text).value_or(ElasticLimits());
         },
         "MIN or MIN:MAX: when workers die and MIN are left, these go back to "
         "the newest checkpoint and on from there; others may come, up to MAX, "
         "and who started the workers starts one again that was killed; "
         "without it a death ends the job")
      ->check([](const std::string& text) {
        return std::string(ParseElastic(text).status().message());
      })
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
  const auto store = FindStoreType(options.kv_store);
  if (options.elastic.min > 0 && store.ok() && store->is_async) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--elastic with --kv-store ", options.kv_store,
        ", whose workers have no moment in the same step and so no checkpoint "
        "to go back to: take dist_sync, or the library, where servers keep the "
        "weights (elastic= of telegrad.kvstore.create)"));
  }
  if (options.checkpoint.empty()) {
    if (!options.resume && options.elastic.min == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(options.resume ? "--resume" : "--elastic",
                     " needs --checkpoint DIR, where to ",
                     options.resume ? "resume" : "go on", " from"));
  }
  ASSIGN_OR_RETURN(const CheckpointInterval interval,
                   ParseCheckpointInterval(options.checkpoint_every));
  if (options.elastic.min > 0) RETURN_IF_ERROR(CheckElastic(options, interval));
  if (options.settings.size() > 1 || options.seeds.size() > 1) {
    return absl::InvalidArgumentError(
        "--checkpoint is for one setting and one seed, so that a folder is of "
        "one run");
  }
  return absl::OkStatus();
}

}  // namespace telegrad
