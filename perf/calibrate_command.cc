#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_code.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kvstore/tuning/calibrate.h"
#include "kvstore/tuning/device_speeds.h"
#include "perf/options.h"
#include "perf/payload_memory.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"
#include "topology/detect.h"

namespace telegrad::perf {
namespace {

struct CalibrateFlags {
  std::vector<std::string> codecs = {"fp16", "int8",   "int2",
                                     "2bit", "onebit", "threshold"};
  std::string reply = "auto";
  std::string memory = "host";
  size_t elements = CalibrationElems();
  int repeats = 7;
  int workers = 2;
  int cores = 1;
  double link_gbps = 0;
  bool keep = false;
};

Figure Stated(double value, const char* reason) {
  return {
      .value = value, .confidence = Confidence::kReported, .reason = reason};
}

// What is measured replaces what runs on this machine would take.
absl::StatusOr<CalibrationCache::Options> CacheOptions() {
  ASSIGN_OR_RETURN(const TopologyOptions options,
                   TopologyOptionsFromEnvironment());
  const SysRoot root = SysRoot::Live();
  ASSIGN_OR_RETURN(const Machine machine, DetectMachine(root, options));
  std::string folder = CacheFolder();
  if (folder.empty()) {
    return absl::InvalidArgumentError(
        "--keep: nothing says where; set HOME or XDG_CACHE_HOME");
  }
  return CalibrationCache::Options{
      .folder = std::move(folder),
      .identity =
          CalibrationIdentity(machine, CpuModel(root), TELEGRAD_VERSION),
      .recalibrate = true};
}

absl::StatusOr<Calibration> Measure(const CalibrateFlags& flags) {
  ASSIGN_OR_RETURN(const Device device, PayloadDevice(flags.memory, 0));
  CompressionConfig compression;
  ASSIGN_OR_RETURN(compression.reply,
                   OfFlag("--reply", ParseReplyMode(flags.reply)));
  CalibrationOptions options{.num_elems = CalibrationElems(flags.elements),
                             .repeats = flags.repeats,
                             .budget = std::chrono::minutes(1),
                             .num_workers = flags.workers};
  std::optional<CalibrationCache> cache;
  if (flags.keep) {
    ASSIGN_OR_RETURN(CalibrationCache::Options place, CacheOptions());
    cache.emplace(std::move(place));
    options.cache = &*cache;
  }
  Calibration calibration = AssumedCalibration();
  calibration.codecs.clear();
  for (const std::string& codec : flags.codecs) {
    ASSIGN_OR_RETURN(CodecFigures figures,
                     MeasureCodec(codec, compression, options));
    if (device != Device{}) {
      RETURN_IF_ERROR(
          MeasureOnDevice(device, codec, compression, options, figures));
    }
    calibration.codecs.push_back(std::move(figures));
  }
  if (device != Device{}) {
    ASSIGN_OR_RETURN(calibration.links.emplace_back(),
                     MeasureBus(device, options));
  }
  const Calibration cores = MeasureCores(options);
  calibration.reduce = cores.reduce;
  calibration.check = cores.check;
  calibration.copy = cores.copy;
  calibration.handover_s = cores.handover_s;
  if (cache.has_value()) {
    for (const std::string& note : cache->TakeNotes()) {
      std::fprintf(stderr, "telegrad-perf: %s\n", note.c_str());
    }
  }
  calibration.cores = Stated(flags.cores, "--cores");
  if (flags.link_gbps > 0) {
    for (LinkFigures& link : calibration.links) {
      if (link.name == "intra" || link.name == kBusLink) continue;
      link.send = Stated(flags.link_gbps * 1e9 / 8, "--link-gbps");
      link.receive = link.send;
    }
  }
  RETURN_IF_ERROR(CheckCalibration(calibration));
  return calibration;
}

}  // namespace

void AddCalibrateCommand(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<CalibrateFlags>();
  app.add_option("--codecs", flags->codecs, "codecs to measure: 2bit,topk:0.01")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--reply", flags->reply,
                 "servers' answers: auto, sum, reencode, dense")
      ->capture_default_str();
  app.add_option(
         "--elements", flags->elements,
         "float32 elements that a step exchanges; arrays have as many, "
         "rounded up to a power of two, and at most what no cache holds")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(size_t{1024}, size_t{1} << 32))
      ->capture_default_str();
  app.add_option("--memory", flags->memory,
                 "where gradients lie: host; cuda or cuda:1: codecs encode and "
                 "decode on that GPU, and the bus to it is measured, too")
      ->capture_default_str();
  app.add_option("--repeats", flags->repeats, "runs; the median counts")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  app.add_option("--workers", flags->workers, "whose replies are measured")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--cores", flags->cores,
                 "cores of a machine for codecs and transport")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--link-gbps", flags->link_gbps,
                 "the link between machines; 0: the planner's default, which "
                 "is assumed")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  app.add_flag("--keep", flags->keep,
               "also keep the speeds for runs of telegrad-train --gc-type auto "
               "with so many --workers on this machine, whose models have "
               "about so many --elements");
  app.callback([flags, &exit_code] {
    const absl::StatusOr<Calibration> calibration = Measure(*flags);
    if (calibration.ok()) {
      std::fputs(CalibrationToJson(*calibration).c_str(), stdout);
      return;
    }
    std::fprintf(stderr, "telegrad-perf: %s\n",
                 std::string(calibration.status().message()).c_str());
    exit_code = static_cast<int>(ExitCode::kUsage);
  });
}

}  // namespace telegrad::perf
