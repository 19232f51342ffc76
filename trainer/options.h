#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/units.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// One setting of a comparison: what is compressed and how.
struct Setting {
  std::string name;  // as the user wrote it: "2bit+reply=reencode"
  CompressionConfig compression;
  UpdateOn update_on = UpdateOn::kWorker;
  std::string threshold;  // as written
  bool is_auto = false;   // --gc-type auto: where and while it pays
};

// What the command line says; docs/user_guide.md.
struct TrainOptions {
  std::vector<Setting> settings;  // at least one
  std::vector<uint64_t> seeds;    // at least one
  std::string network = "lenet";
  std::string data = "digits";
  std::string kv_store = "dist_sync";
  bool benchmark = false;
  int64_t num_batches = 0;  // > 0: ends each epoch after so many
  int workers = 2;
  int servers = 1;
  bool has_servers = false;  // --servers was given
  int batch_size = 64;       // per worker
  int num_epochs = 2;
  float lr = 0.05f;
  float lr_factor = 0.1f;
  std::vector<int> lr_step_epochs;  // lr is multiplied before these epochs
  float mom = 0.9f;
  float wd = 0.0001f;
  int display_batches = 50;
  std::string out = "telegrad-out";
  std::string link = "none";
  LinkSpec link_spec;
  std::string transport = "auto";
  std::string tls;
  std::string tcp_congestion = "auto";
  std::string connections = "1";  // to each peer; ParseConnections
  std::vector<std::string> rails;
  bool resend = false;  // what a network loses or harms
  int threads = 1;      // of codecs, per process
  size_t chunk_elems = size_t{512} * 1024;
  std::string bind = "127.0.0.1";
  bool has_bind = false;
  std::string secret_file;
  bool insecure = false;
  std::string job_id;
  double join_timeout_s = 60;
  double dead_timeout_s = 10;
  double operation_timeout_s = 300;
  bool recalibrate = false;  // the link, cores and codecs
  std::string cache_folder;  // where they are kept; empty: nowhere
  std::string inject;        // tests: "nan:WORKER:TENSOR:INDEX:STEP"
  std::string command_line;

  // Set for the processes that the launcher starts.
  std::string internal_role;
  std::string internal_job;
  std::string internal_scheduler;
  int internal_rank = -1;
  int internal_setting = 0;
  uint64_t internal_seed = 0;
  int internal_report_fd = -1;
};

// Parses argv. `exit_code` >= 0 on return means that the program ends now with
// it (help was printed, or an error was).
TrainOptions ParseTrainOptions(int argc, char** argv, int* exit_code);

// "2bit", "2bit+reply=reencode+threshold=0.5:batch+update-on=server": a codec
// and what differs from `base`.
absl::StatusOr<Setting> ParseSetting(absl::string_view text,
                                     const Setting& base);

// --gc-allow: codecs with their options, separated by commas, into the type and
// the alternatives of `gc`. InvalidArgument for none (it is always possible),
// for one that comes twice, and for too many.
absl::Status ParseAllowedCodecs(absl::string_view list, CompressionConfig& gc);

ControlTiming TimingOf(const TrainOptions& options);

}  // namespace telegrad
