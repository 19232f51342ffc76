#include "trainer/flags/check_flags.h"

#include <set>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/kvstore.h"
#include "trainer/flags/optimizer_flags.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"
#include "trainer/networks/gpus.h"
#include "trainer/networks/network.h"

namespace telegrad {
namespace {

bool IsAutomatic(const TrainOptions& options) {
  return absl::c_any_of(options.settings,
                        [](const Setting& each) { return each.is_auto; });
}

// Whether a codec of this run, a rule's included, takes the option.
bool HasCodec(const TrainOptions& options, bool (*takes)(const Codec&)) {
  for (const Setting& setting : options.settings) {
    if (!setting.compression.rules.empty()) return true;
    for (const std::string& type : setting.compression.types()) {
      const auto spec = ParseCodecSpec(type);
      if (spec.ok() && takes(*spec->codec)) return true;
    }
  }
  return false;
}

bool TakesThreshold(const Codec& codec) {
  return codec.traits().needs_threshold;
}

bool LosesBits(const Codec& codec) { return !codec.traits().lossless; }

bool TakesPacking(const Codec& codec) {
  return absl::c_any_of(codec.traits().options, [](const CodecOption& option) {
    return option.field == &CodecOptions::packing;
  });
}

bool Trains(const TrainOptions& options) { return !IsProfile(options.network); }

bool HasLossScale(const TrainOptions& options) {
  return options.has_loss_scale();
}

bool ReadsText(const TrainOptions& options) {
  const auto spec = DefaultSpec(options.network);
  return spec.ok() && spec->context > 0;
}

bool HasImages(const TrainOptions& options) {
  return Trains(options) && !ReadsText(options);
}

// Where the data do not say it.
bool TakesShape(const TrainOptions& options) {
  return options.benchmark || options.data.starts_with("imagefolder:");
}

bool IsAsync(const TrainOptions& options) {
  const auto traits = FindStoreType(options.kv_store);
  return traits.ok() && traits->is_async;
}

bool StepsAlone(const TrainOptions& options) { return options.local_steps > 0; }

bool StepsTogether(const TrainOptions& options) { return !StepsAlone(options); }

struct Effect {
  const char* flag;
  bool (*is_used)(const TrainOptions&);
  const char* reason;
};

constexpr char kProfile[] = "a gradient profile has no model to train";
constexpr char kAlone[] = "it is for --local-steps";
constexpr char kNoImages[] = "a gradient profile and text have no images";
constexpr char kNoSums[] = "with --local-steps no gradients are summed";

constexpr Effect kEffects[] = {
    {"--gc-type", [](const TrainOptions& o) { return !o.has_comparison; },
     "--compare names the codecs"},
    {"--gc-allow", IsAutomatic, "it lists the codecs for --gc-type auto"},
    {"--gc-threshold",
     [](const TrainOptions& o) { return HasCodec(o, TakesThreshold); },
     "no codec of this run has a threshold"},
    {"--gc-warmup-steps",
     [](const TrainOptions& o) { return HasCodec(o, LosesBits); },
     "no codec of this run loses anything, so that all goes dense"},
    {"--log-json", [](const TrainOptions& o) { return !o.laboratory.explain; },
     "--explain prints text"},
    {"--gc-packing",
     [](const TrainOptions& o) { return HasCodec(o, TakesPacking); },
     "no codec of this run has packings"},
    {"--data", [](const TrainOptions& o) { return !o.benchmark; },
     "--benchmark 1 makes its own data"},
    {"--lr-factor",
     [](const TrainOptions& o) { return !o.lr_step_epochs.empty(); },
     "it needs --lr-step-epochs"},
    {"--num-epochs", Trains, kProfile},
    {"--lr", Trains, kProfile},
    {"--lr-step-epochs", Trains, kProfile},
    {"--mom", Trains, kProfile},
    {"--mom", HasMomentum, "it is for --optimizer muon, sgd and nag"},
    {"--beta1", HasBetas, kForAdams},
    {"--adam-freeze-after",
     [](const TrainOptions& o) { return HasBetas(o) && !o.has_muon; },
     "it is for --optimizer adam and adamw"},
    {"--beta2", HasBeta2, kForBeta2},
    {"--epsilon", HasEpsilon, kForEpsilon},
    {"--optimizer", Trains, kProfile},
    {"--max-staleness", IsAsync, "it is for --kv-store dist_async"},
    {"--local-steps", Trains, kProfile},
    {"--local-fragments", StepsAlone, kAlone},
    {"--outer-lr", StepsAlone, kAlone},
    {"--outer-mom", StepsAlone, kAlone},
    {"--work-load-list", StepsTogether, kNoSums},
    {"--variable-update", StepsTogether, kNoSums},
    {"--early-step", StepsTogether,
     "with --local-steps all tensors are exchanged together"},
    {"--lr-mult", Trains, kProfile},
    {"--wd-mult", Trains, kProfile},
    {"--wd", Trains, kProfile},
    {"--disp-batches", Trains, kProfile},
    {"--early-step", Trains, kProfile},
    {"--inject", Trains, kProfile},
    {"--checkpoint", Trains, kProfile},
    {"--clip-norm", Trains, kProfile},
    {"--grad-accumulation", Trains, kProfile},
    {"--dtype", Trains, kProfile},
    {"--loss-scale", HasLossScale, "it is for --dtype float16"},
    {"--batch-size", Trains, kProfile},
    {"--num-examples", Trains, kProfile},
    {"--num-classes", Trains, kProfile},
    {"--label-smoothing", Trains, kProfile},
    {"--wd-1d", Trains, kProfile},
    {"--bn-stats", Trains, kProfile},
    {"--image-shape", HasImages, kNoImages},
    {"--image-shape", TakesShape,
     "the data say it; it is for --benchmark 1 and imagefolder"},
    {"--random-crop", HasImages, kNoImages},
    {"--random-mirror", HasImages, kNoImages},
    {"--lr-schedule", Trains, kProfile},
    {"--lr-scaling", Trains, kProfile},
    {"--lr-scaling",
     [](const TrainOptions& o) { return !StepsAlone(o) && !IsAsync(o); },
     "with --local-steps and --kv-store dist_async a step has one worker's "
     "batch"},
    {"--keep", [](const TrainOptions& o) { return !o.checkpoint.empty(); },
     "it needs --checkpoint"},
    {"--checkpoint-every",
     [](const TrainOptions& o) { return !o.checkpoint.empty(); },
     "it needs --checkpoint"},
    {"--eval-every", [](const TrainOptions& o) { return !o.benchmark; },
     "--benchmark 1 evaluates nothing"},
    {"--num-examples", [](const TrainOptions& o) { return o.benchmark; },
     "it is for --benchmark 1"},
    {"--num-classes", [](const TrainOptions& o) { return o.benchmark; },
     "the data say it; it is for --benchmark 1"},
    {"--tcp-congestion",
     [](const TrainOptions& o) {
       const std::string& name = o.path.transport.name;
       return name == "tcp" || name == "auto";
     },
     "it is for --transport tcp"},
    {"--insecure", [](const TrainOptions& o) { return o.secret_file.empty(); },
     "--secret-file is given"},
    {"--gdr",
     [](const TrainOptions& o) {
       const Encryption encryption = o.path.transport.encryption;
       return o.gdr != "on" || encryption == Encryption::kAuto ||
              encryption == Encryption::kOff;
     },
     "--encryption auth and on cannot seal what cards read from GPUs; take "
     "--gdr auto, or on an isolated fabric --encryption auto"},
    {"--gdr",
     [](const TrainOptions& o) {
       return !o.gpus.empty() && o.gpus != kEmulatedGpu;
     },
     "it is for --gpus"},
    {"--tf32", [](const TrainOptions& o) { return !o.gpus.empty(); },
     "it is for --gpus"},
};

absl::Status Refuse(absl::string_view flag, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " has no effect: ", reason));
}

// Flags for servers that step with each push as it comes.
absl::Status CheckAsync(const TrainOptions& options, const Setting& setting) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-store ", options.kv_store, " ", why...));
  };
  if (setting.update_on != UpdateOn::kServer) {
    return refuse(
        "needs --update-on server: servers step the weights with each push, "
        "and there is no sum for workers");
  }
  if (setting.compression.reply == ReplyMode::kSum) {
    return refuse("has no sums to reply with: --gc-reply dense or auto");
  }
  const bool scales = options.has_loss_scale();
  if (scales || setting.compression.nonfinite == NonFinitePolicy::kSkip) {
    return refuse("has workers that do not wait for each other, and ",
                  scales ? "--dtype float16" : "--gc-nonfinite skip",
                  " makes them, in each step: take ",
                  scales ? "bfloat16" : "zero or error");
  }
  if (options.warmup_epochs > 0 || options.lr_schedule != "step") {
    return refuse(
        "takes a new rate between two epochs, not in each step as with "
        "--warmup-epochs and --lr-schedule cosine: take --lr-step-epochs");
  }
  if (!options.checkpoint.empty()) {
    return refuse(
        "has no moment at which all workers are in the same step, so that "
        "--checkpoint has nothing to save: take dist_sync");
  }
  return absl::OkStatus();
}

// Flags for servers that do not wait for the slowest.
absl::Status CheckDropped(const TrainOptions& options, const Setting& setting) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--drop-slowest ", options.drop_slowest, " ", why...));
  };
  const auto traits = FindStoreType(options.kv_store);
  if (!traits.ok() || !traits->has_workers || traits->is_async ||
      traits->hosts_parts) {
    return refuse("with --kv-store ", options.kv_store, ": ",
                  !traits.ok() || !traits->has_workers ? "there are no servers"
                  : traits->is_async
                      ? "no worker waits for another one"
                      : "each worker sums a part, for which all wait",
                  "; take --kv-store dist_sync --update-on server");
  }
  if (setting.update_on != UpdateOn::kServer) {
    return refuse(
        "needs --update-on server: a worker that comes late takes the newest "
        "weights, and sums that it has missed are gone");
  }
  if (setting.compression.reply == ReplyMode::kSum) {
    return refuse(
        "has other numbers of gradients in each step, and --gc-reply sum is of "
        "as many as there are workers: take --gc-reply dense or auto");
  }
  const bool scales = options.has_loss_scale();
  const bool skips = setting.compression.nonfinite == NonFinitePolicy::kSkip;
  if (scales || skips || setting.is_auto) {
    return refuse("lets no worker wait for the slowest, and ",
                  scales  ? "--dtype float16"
                  : skips ? "--gc-nonfinite skip"
                          : "--gc-type auto",
                  " makes all wait, in each step: take ",
                  scales  ? "bfloat16"
                  : skips ? "zero or error"
                          : "a codec by name");
  }
  if (options.warmup_epochs > 0 || options.lr_schedule != "step") {
    return refuse(
        "takes a new rate between two epochs, not in each step as with "
        "--warmup-epochs and --lr-schedule cosine: take --lr-step-epochs");
  }
  return absl::OkStatus();
}

// Flags for workers that step alone, then exchange what changed.
absl::Status CheckLocalSteps(const TrainOptions& options,
                             const Setting& setting) {
  if (options.local_fragments > options.local_steps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--local-fragments ", options.local_fragments, ": of --local-steps ",
        options.local_steps, " steps each is the turn of one at most"));
  }
  if (setting.update_on == UpdateOn::kServer) {
    return absl::InvalidArgumentError(
        "--local-steps needs the optimizer on the workers (--update-on "
        "worker), which step alone");
  }
  const bool skips = setting.compression.nonfinite == NonFinitePolicy::kSkip;
  if (skips || setting.is_auto || options.has_loss_scale()) {
    return absl::InvalidArgumentError(absl::StrCat(
        skips             ? "--gc-nonfinite skip"
        : setting.is_auto ? "--gc-type auto"
                          : "the loss scale of --dtype float16",
        " decides in each step, of which --local-steps exchanges few"));
  }
  return absl::OkStatus();
}

// What is sent are means that workers have.
absl::Status CheckFrozen(const TrainOptions& options, const Setting& setting) {
  if (options.adam_freeze_after == 0) return absl::OkStatus();
  if (setting.update_on == UpdateOn::kServer || StepsAlone(options) ||
      options.strategy.has_value() || setting.is_auto) {
    return absl::InvalidArgumentError(
        "--adam-freeze-after needs the mean gradient of each step on the "
        "workers: it goes with --update-on worker and a codec by name, without "
        "--local-steps and --variable-update");
  }
  return absl::OkStatus();
}

absl::Status CheckMuon(const TrainOptions& options, const Setting& setting) {
  if (!options.has_muon || setting.update_on == UpdateOn::kWorker) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--optimizer muon steps whole matrices, and servers have chunks of them: "
      "take --update-on worker",
      options.strategy.has_value() ? " in place of --variable-update"
      : IsAsync(options)           ? " and --kv-store dist_sync"
                                   : ""));
}

absl::Status CheckSettings(const TrainOptions& options) {
  std::set<std::string> names;
  for (const Setting& setting : options.settings) {
    if (!names.insert(setting.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--compare: ", setting.name, " comes twice"));
    }
    if (setting.own != nullptr) continue;  // was checked by itself
    RETURN_IF_ERROR(CheckMuon(options, setting));
    RETURN_IF_ERROR(CheckFrozen(options, setting));
    if (options.drop_slowest > 0) {
      RETURN_IF_ERROR(CheckDropped(options, setting));
    }
    if (IsAsync(options)) RETURN_IF_ERROR(CheckAsync(options, setting));
    if (StepsAlone(options)) RETURN_IF_ERROR(CheckLocalSteps(options, setting));
    if (setting.update_on == UpdateOn::kServer && IsProfile(options.network)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--update-on server: ", kProfile));
    }
  }
  std::set<uint64_t> seeds;
  for (const uint64_t seed : options.seeds) {
    if (!seeds.insert(seed).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--seed: ", seed, " comes twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFlags(const TrainOptions& options) {
  for (const Effect& effect : kEffects) {
    if (options.given.contains(effect.flag) && !effect.is_used(options)) {
      return Refuse(effect.flag, effect.reason);
    }
  }
  for (const int epoch : options.lr_step_epochs) {
    if (epoch >= 0 && epoch < options.num_epochs) continue;
    return Refuse(absl::StrCat("--lr-step-epochs ", epoch),
                  absl::StrCat("epochs are 0 to ", options.num_epochs - 1));
  }
  return CheckSettings(options);
}

}  // namespace telegrad
