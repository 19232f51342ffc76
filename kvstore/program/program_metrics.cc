#include "kvstore/program/program_metrics.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

// "job.prom" and "worker/0" -> "job-worker0.prom".
std::string FileOf(const std::string& file, const std::string& name) {
  const std::filesystem::path path(file);
  std::string suffix;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) suffix += c;
  }
  const std::string own = absl::StrCat(path.stem().string(), "-", suffix,
                                       path.extension().string());
  return (path.parent_path() / own).string();
}

std::string IpOf(const std::string& bind_address, bool has_secret) {
  return has_secret && ParseIp(bind_address, 0).ok() ? bind_address
                                                     : MetricsOutlet().ip;
}

}  // namespace

void AddMetricsFlags(CLI::App& app, MetricsFlags& flags) {
  const char* group = "Metrics";
  app.add_option("--metrics-port", flags.port,
                 "answer Prometheus at http://127.0.0.1:PORT/metrics, with "
                 "--secret-file at --bind: each process at the first free port "
                 "from PORT on, which it says; 0: any")
      ->check(CLI::Range(0, 65535))
      ->group(group);
  app.add_option("--metrics-file", flags.file,
                 "write the same every 10 s and at the end: job.prom is "
                 "job-worker0.prom of worker 0")
      ->group(group);
  app.add_option("--metrics-slurm-job", flags.slurm_job_id)
      ->envname("SLURM_JOB_ID")
      ->group("");
}

absl::Status CheckMetricsFlags(const MetricsFlags& flags) {
  if (flags.file.empty()) return absl::OkStatus();
  const std::filesystem::path path(flags.file);
  std::error_code ignored;
  if (path.has_filename() &&
      (path.parent_path().empty() ||
       std::filesystem::is_directory(path.parent_path(), ignored))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--metrics-file ", flags.file,
                   ": a file in a folder that is there is wanted"));
}

absl::StatusOr<std::unique_ptr<ProcessMetrics>> StartMetrics(
    const MetricsFlags& flags, const std::string& name,
    const std::string& bind_address, bool has_secret) {
  if (flags.port == MetricsOutlet::kNoPort && flags.file.empty()) {
    return nullptr;
  }
  MetricsOutlet outlet{.port = flags.port,
                       .ip = IpOf(bind_address, has_secret)};
  if (!flags.file.empty()) outlet.file = FileOf(flags.file, name);
  auto made =
      ProcessMetrics::Start(outlet, CommonLabels(flags.slurm_job_id.c_str()));
  if (!made.ok()) {
    const std::string text =
        absl::StrCat(flags.port == MetricsOutlet::kNoPort ? "--metrics-file"
                                                          : "--metrics-port",
                     ": ", made.status().message());
    const bool is_limit = ExitCodeOf(made.status()) == ExitCode::kResourceLimit;
    return WithExitCode(is_limit ? ExitCode::kResourceLimit : ExitCode::kUsage,
                        absl::Status(made.status().code(), text));
  }
  const std::string address = (*made)->address();
  if (!address.empty()) LogInfo("metrics at http://", address, "/metrics");
  return made;
}

}  // namespace telegrad
