#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/launch/placement.h"
#include "kvstore/kvstore.h"
#include "kvstore/program/member_flags.h"
#include "trainer/flags/laboratory.h"
#include "trainer/flags/rate_rules.h"
#include "trainer/flags/strategy.h"

namespace telegrad {

struct TrainOptions;

// One setting of a comparison: what is compressed and how.
struct Setting {
  std::string name;  // as the user wrote it: "2bit+reply=reencode"
  CompressionConfig compression;
  UpdateOn update_on = UpdateOn::kWorker;
  // --gc-momentum; none: auto. SettleFewBits fills `compression` by it.
  std::optional<PushMomentum> momentum;
  // --gc-normalize; none: auto. SettleFewBits decides by it.
  std::optional<bool> normalize;
  bool normalizes = false;
  std::string threshold;  // as written
  bool is_auto = false;   // --gc-type auto: where and while it pays
  std::string allow_why;  // what chose --gc-allow; empty: the user, the default
  // "--local-steps=5": what else differs from the other settings' flags; then
  // `own` is all of the command line with these, this setting alone in it.
  std::vector<std::string> flags;
  std::shared_ptr<TrainOptions> own;
};

// What the command line says; docs/user_guide.md.
struct TrainOptions : MemberFlags {
  std::vector<Setting> settings;  // at least one
  std::vector<uint64_t> seeds;    // at least one
  std::string network = "lenet";
  int num_layers = 0;        // a family's, resnet or vgg
  std::string image_shape;   // "3,224,224"; empty: the network's or the data's
  int num_classes = 0;       // 0: the network's or the data's
  int64_t num_examples = 0;  // synthetic data's, an epoch; 0: 100 batches
  std::string dtype = "float32";
  std::string loss_scale = "dynamic";
  std::string bn_stats = "mean";  // or "rank0"
  std::string data = "digits";
  std::string kv_store = "dist_sync";
  std::string tier_one = "auto";  // ParseTierOne
  bool benchmark = false;
  int64_t num_batches = 0;     // > 0: ends each epoch after so many
  int devices = 1;             // a worker's, each with a copy of the network
  int batch_size = 64;         // per device
  std::vector<int> work_load;  // shares of the devices, where they differ
  std::vector<int> device_batches;  // samples of a step, by device
  int num_epochs = 2;
  float lr = 0.05f;
  float lr_factor = 0.1f;
  std::vector<int> lr_step_epochs;   // lr is multiplied before these epochs
  std::string lr_schedule = "step";  // or "cosine"
  std::string lr_scaling = "none";   // or "linear": with contributors
  int warmup_epochs = 0;             // epochs in which lr rises from 0
  bool wd_1d = true;                 // weight decay of biases and norms, too
  int grad_accumulation = 1;         // batches of a step
  float clip_norm = 0.0f;  // a worker's largest norm of its gradient; 0: any
  float label_smoothing = 0.0f;
  int eval_every = 1;  // epochs
  int pad_size = 0;    // the border for --random-crop
  bool random_crop = false;
  bool random_mirror = false;
  bool gc_dense_1d = false;  // biases and norms go dense
  std::string checkpoint;    // folder; empty: none
  std::string checkpoint_every = "1epoch";
  int keep = 2;  // checkpoints
  bool resume = false;
  // --resume where there is a checkpoint, else from the start: of workers that
  // go on without others.
  bool may_begin_anew = false;
  ElasticLimits elastic;
  std::string reshard_residuals;  // sum, drop; empty: the same numbers
  std::string show_checkpoint;
  float mom = 0.9f;
  float wd = 0.0001f;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  bool has_muon = false;  // for hidden weights, beside adamw for the others
  AdamParameters adam;
  int64_t adam_freeze_after = 0;  // steps; 0: never
  RateRules rate_rules;
  int local_steps = 0;      // > 0: alone between two exchanges
  int local_fragments = 1;  // fragments that take turns
  float outer_lr = 1;       // the outer optimizer's rate
  float outer_mom = 0;
  int64_t max_staleness = kAnyStaleness;
  int drop_slowest = 0;
  int display_batches = 50;
  bool early_step = true;  // each tensor when its sum is there
  std::string out = "telegrad-out";
  size_t chunk_elems = size_t{512} * 1024;  // where nothing else is known
  bool has_auto_chunk = false;              // the plan's, tensor by tensor
  bool recalibrate = false;                 // cores and codecs
  std::string cache_folder;  // where they are kept; empty: nowhere
  std::string inject;        // tests: see Injection
  std::string inject_link;   // tests: as --link, of this process alone
  std::string gpus;          // as written
  std::string gdr = "auto";  // ParseGdr
  bool tf32 = false;         // --tf32
  // On its host, where a launcher tells it.
  std::optional<int> local_rank = std::nullopt;
  bool verbose = false;
  std::string command_line;
  std::set<std::string> given;       // flags: "--batch-size"
  bool has_comparison = false;       // --compare names something
  bool hosts_parts = false;          // the store's trait; SettleStore sets it
  StrategyRequest strategy_request;  // --variable-update and what goes with it
  std::optional<Strategy> strategy;  // if that is given
  std::string store_why;             // what chose the store; empty: the user
  LaboratoryOptions laboratory;

  // Set for the processes that the launcher starts.
  std::string internal_role;
  std::string internal_job;
  std::string internal_scheduler;
  int internal_rank = -1;
  int internal_setting = 0;
  uint64_t internal_seed = 0;
  int internal_report_fd = -1;

  bool has_loss_scale() const { return dtype == "float16"; }
};

// Parses argv, in which flags have dashes or underscores. `exit_code` >= 0 on
// return means that the program ends now with it (help was printed, or an error
// was).
TrainOptions ParseTrainOptions(int argc, char** argv, int* exit_code);

// Puts a type in the place of --kv-store auto: servers where some are there
// (`placement`: of a launcher) and the planner finds nothing faster, else none.
absl::Status SettleAutoStore(const std::optional<Placement>& placement,
                             TrainOptions& options);
// What --variable-update stands for. InvalidArgument and Unimplemented as
// FindStrategy, and where another flag says the same.
absl::Status SettleStrategy(const std::optional<Placement>& placement,
                            TrainOptions& options);
// A store of one process has no other workers, servers or links, one whose
// workers sum parts no servers: sets their numbers. InvalidArgument where flags
// ask for what the store has not.
absl::Status SettleStore(TrainOptions& options);

// "2bit", "2bit+reply=reencode+threshold=0.5:batch+local-steps=5": a codec and
// what differs from `base`; flags of a run are only noted.
absl::StatusOr<Setting> ParseSetting(absl::string_view text,
                                     const Setting& base);

// The flags of a run of `setting`, which is one of `options`.
inline const TrainOptions& OptionsOf(const TrainOptions& options,
                                     const Setting& setting) {
  return setting.own == nullptr ? options : *setting.own;
}

// The setting as these flags have it.
inline const Setting& SettledOf(const Setting& setting) {
  return setting.own == nullptr ? setting : setting.own->settings.front();
}

// What the store does: servers with an optimizer answer with weights.
CompressionConfig CompressionOf(const Setting& setting);

}  // namespace telegrad
