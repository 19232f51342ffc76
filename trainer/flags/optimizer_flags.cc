#include "trainer/flags/optimizer_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kvstore/optimizer.h"
#include "kvstore/tuning/auto_compression.h"
#include "kvstore/tuning/few_bits.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"

namespace telegrad {
namespace {

constexpr char kOptimizerGroup[] = "Training";
constexpr float kMuonMomentum = 0.95f;  // Jordan's

void AddRateFlags(CLI::App& app, TrainOptions& options,
                  RawOptimizerFlags& raw) {
  app.add_option("--lr", options.lr, "learning rate")
      ->capture_default_str()
      ->check(&CheckRate, "POSITIVE")
      ->group(kOptimizerGroup);
  app.add_option("--lr-step-epochs", options.lr_step_epochs,
                 "epochs before which lr is multiplied by --lr-factor: 1,2")
      ->delimiter(',')
      ->group(kOptimizerGroup);
  app.add_option("--lr-factor", options.lr_factor, "see --lr-step-epochs")
      ->capture_default_str()
      ->check(&CheckNotNegative, "NONNEGATIVE")
      ->group(kOptimizerGroup);
  app.add_option("--wd", options.wd,
                 "weight decay: added to the gradient, but with adamw and muon")
      ->capture_default_str()
      ->check(&CheckNotNegative, "NONNEGATIVE")
      ->group(kOptimizerGroup);
  app.add_option("--lr-mult", raw.lr_mult,
                 "factors of the learning rate for some tensors, "
                 "PATTERN=FACTOR separated by ';', the first that matches "
                 "wins: 'bias=2;conv=0.5'; patterns as with --gc-rule")
      ->group(kOptimizerGroup);
  app.add_option("--wd-mult", raw.wd_mult,
                 "factors of the weight decay, likewise: 'bias=0'")
      ->group(kOptimizerGroup);
}

}  // namespace

void AddOptimizerFlags(CLI::App& app, TrainOptions& options,
                       RawOptimizerFlags& raw) {
  app.add_option("--optimizer", raw.optimizer,
                 "sgd (with --mom), nag (Nesterov's momentum), adam, adamw, "
                 "adagrad, rmsprop, muon (hidden weights; adamw the others)")
      ->capture_default_str()
      ->group(kOptimizerGroup);
  AddRateFlags(app, options, raw);
  app.add_option("--mom", options.mom,
                 "momentum of sgd, nag and muon, whose default is 0.95")
      ->capture_default_str()
      ->check(&CheckDecay, "SHARE")
      ->group(kOptimizerGroup);
  app.add_option("--beta1", options.adam.beta1,
                 "what adam and adamw keep of the mean of gradients per step")
      ->capture_default_str()
      ->check(&CheckDecay, "SHARE")
      ->group(kOptimizerGroup);
  app.add_option("--beta2", options.adam.beta2,
                 "what they and rmsprop keep of the mean of squares per step")
      ->capture_default_str()
      ->check(&CheckDecay, "SHARE")
      ->group(kOptimizerGroup);
  app.add_option("--adam-freeze-after", options.adam_freeze_after,
                 "1-bit Adam: so many steps go dense, then adam's and adamw's "
                 "mean of squares stays, and codecs get the momentum; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->group(kOptimizerGroup);
  app.add_option("--epsilon", options.adam.epsilon,
                 "what all but sgd and nag add to the root of squares")
      ->capture_default_str()
      ->check(&CheckNotNegative, "NONNEGATIVE")
      ->group(kOptimizerGroup);
}

void AddConsistencyFlags(CLI::App& app, TrainOptions& options) {
  app.add_option(
         "--max-staleness", options.max_staleness,
         "steps that a worker may be ahead of the slowest with --kv-store "
         "dist_async; without it any")
      ->check(CLI::Range(int64_t{0}, kMaxStaleness))
      ->group(kOptimizerGroup);
  app.add_option(
         "--drop-slowest", options.drop_slowest,
         "with --kv-store dist_sync and --update-on server: workers for "
         "which a step does not wait; their gradients count in the next "
         "one; 0: it waits for all")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxDropSlowest))
      ->group(kOptimizerGroup);
  app.add_option("--local-steps", options.local_steps,
                 "workers step alone so many times, then exchange the change "
                 "of their weights; 0: every gradient is exchanged")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20))
      ->group(kOptimizerGroup);
  app.add_option("--local-fragments", options.local_fragments,
                 "tensors take turns in so many parts, whose exchanges run "
                 "beside the steps until the next turn; 1: all at once, waited "
                 "for")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->group(kOptimizerGroup);
  app.add_option("--outer-lr", options.outer_lr,
                 "the rate of the optimizer that steps with the mean of these "
                 "changes; 1 without momentum: their average")
      ->capture_default_str()
      ->check(&CheckRate, "POSITIVE")
      ->group(kOptimizerGroup);
  app.add_option("--outer-mom", options.outer_mom,
                 "Nesterov momentum of that optimizer")
      ->capture_default_str()
      ->check(&CheckDecay, "SHARE")
      ->group(kOptimizerGroup);
}

bool HasBetas(const TrainOptions& options) {
  return options.optimizer == OptimizerKind::kAdam ||
         options.optimizer == OptimizerKind::kAdamW;
}

bool HasMomentum(const TrainOptions& options) {
  return options.optimizer == OptimizerKind::kSgd ||
         options.optimizer == OptimizerKind::kNag || options.has_muon;
}

bool HasBeta2(const TrainOptions& options) {
  return HasBetas(options) || options.optimizer == OptimizerKind::kRmsProp;
}

bool HasEpsilon(const TrainOptions& options) {
  return HasBeta2(options) || options.optimizer == OptimizerKind::kAdagrad;
}

bool StepsByMeanSquares(const TrainOptions& options) {
  return HasBeta2(options) && !options.has_muon && options.local_steps == 0 &&
         options.adam_freeze_after == 0;
}

bool HasMomentumBehind(const TrainOptions& options) {
  return HasMomentum(options) && options.local_steps == 0 &&
         !IsProfile(options.network);
}

namespace {

// The momentum that can stand in front of a codec; 0: there is none.
float MovableMomentum(const TrainOptions& options) {
  if (IsProfile(options.network)) return 0;
  if (options.local_steps > 0) return options.outer_mom;
  return HasMomentum(options) && !options.has_muon ? options.mom : 0;
}

// Why codecs cannot get normal gradients; null: they can.
const char* WhyNotNormal(const TrainOptions& options, const Setting& setting) {
  return !HasBetas(options) ? kForAdams
         : IsProfile(options.network)
             ? "a profile's gradients have no mean of squares"
         : options.local_steps > 0
             ? "with --local-steps codecs get changes of weights"
         : options.adam_freeze_after > 0
             ? "--adam-freeze-after gives codecs the momentum"
         : setting.update_on == UpdateOn::kServer ||
                 options.strategy.has_value()
             ? "the mean of squares must be on the workers (--update-on "
               "worker, without --variable-update)"
             : nullptr;
}

absl::Status SettleNormal(const TrainOptions& options, Setting& setting) {
  const char* const why_not = WhyNotNormal(options, setting);
  if (why_not == nullptr) {
    ASSIGN_OR_RETURN(const bool is_wanted, WantsNormal(setting.compression));
    setting.normalizes = setting.normalize.value_or(is_wanted);
    return absl::OkStatus();
  }
  if (!setting.normalize.value_or(false)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--gc-normalize on has no effect: ", why_not));
}

absl::Status SettleMomentum(const TrainOptions& options, Setting& setting) {
  CompressionConfig& gc = setting.compression;
  const float rate = MovableMomentum(options);
  const bool is_asked =
      setting.momentum.value_or(PushMomentum::kNone) != PushMomentum::kNone;
  if (rate == 0 && is_asked) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--gc-momentum ", ToString(*setting.momentum),
        " has no effect: there is no momentum of --optimizer sgd or nag, nor "
        "--outer-mom beside --local-steps"));
  }
  if (rate == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool is_wanted, WantsMomentumBefore(gc));
  gc.momentum = setting.momentum.value_or(is_wanted ? PushMomentum::kNesterov
                                                    : PushMomentum::kNone);
  if (gc.momentum != PushMomentum::kNone) gc.momentum_rate = rate;
  return absl::OkStatus();
}

// --gc-type auto before muon or a mean of squares: leaves out what harms them.
absl::Status LimitAutomatic(TrainOptions& options) {
  const bool has_squares = StepsByMeanSquares(options);
  const bool has_muon = options.has_muon && options.local_steps == 0;
  if (!has_squares && !has_muon) return absl::OkStatus();
  for (Setting& setting : options.settings) {
    if (!setting.is_auto) continue;
    if (!options.given.contains("--gc-allow")) {
      const char* const codec =
          setting.normalizes ? kBesideSquares : kCarefulCodec;
      RETURN_IF_ERROR(
          ParseAllowedCodecs("--gc-allow", codec, setting.compression));
      setting.allow_why =
          absl::StrCat("--gc-allow ", codec, ": 2 bits or fewer can harm ",
                       has_muon ? "muon" : ToString(options.optimizer));
      continue;
    }
    if (!has_squares) continue;  // a hint follows where one is taken
    for (const std::string& type : setting.compression.types()) {
      ASSIGN_OR_RETURN(const bool harms,
                       HarmsSquares(type, setting.normalizes));
      if (!harms) continue;
      ASSIGN_OR_RETURN(const double bits, BitsOf(type));
      return absl::InvalidArgumentError(absl::StrFormat(
          "--gc-allow %s: %.2f bits of an element per step harm --optimizer "
          "%s; leave it out, or take --local-steps%s",
          type, bits, ToString(options.optimizer),
          HasBetas(options) ? ", --adam-freeze-after or int2" : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SettleFewBits(TrainOptions& options) {
  for (Setting& setting : options.settings) {
    RETURN_IF_ERROR(SettleNormal(options, setting));
  }
  RETURN_IF_ERROR(LimitAutomatic(options));
  for (Setting& setting : options.settings) {
    RETURN_IF_ERROR(SettleMomentum(options, setting));
  }
  return absl::OkStatus();
}

absl::Status FinishOptimizerFlags(const RawOptimizerFlags& raw,
                                  TrainOptions& options) {
  options.has_muon = raw.optimizer == "muon";
  if (options.has_muon && !options.given.contains("--mom")) {
    options.mom = kMuonMomentum;
  }
  const absl::StatusOr<OptimizerKind> kind =
      ParseOptimizerKind(options.has_muon ? "adamw" : raw.optimizer);
  if (!kind.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", kind.status().message(), ", muon"));
  }
  options.optimizer = *kind;
  ASSIGN_OR_RETURN(options.rate_rules.lr,
                   ParseRateRules("--lr-mult", raw.lr_mult));
  ASSIGN_OR_RETURN(options.rate_rules.wd,
                   ParseRateRules("--wd-mult", raw.wd_mult));
  // Until then all is dense, and no codec has held anything back.
  for (Setting& setting : options.settings) {
    int64_t& warmup = setting.compression.warmup_steps;
    warmup = std::max(warmup, options.adam_freeze_after);
  }
  return CheckOptimizer({.kind = options.optimizer,
                         .sgd = {.learning_rate = options.lr,
                                 .momentum_rate = options.mom,
                                 .weight_decay = options.wd},
                         .adam = options.adam});
}

}  // namespace telegrad
