#include "topology/cli/simulate_command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "topology/cli/output.h"
#include "topology/simulate.h"

namespace telegrad::topo {
namespace {

// One Tesla P100 with tf_cnn_benchmarks of May 2017, images/s.
const std::map<std::string, double> kP100ImagesPerS = {{"alexnet", 2987},
                                                       {"inceptionv3", 142},
                                                       {"resnet152", 91.8},
                                                       {"resnet50", 219},
                                                       {"vgg16", 154}};

struct SimulateFlags {
  std::string profile = "resnet50";
  std::string calibration = {};
  std::string sweep = {};
  std::string html = {};
  std::string overlap = "full";
  std::optional<double> compute_ms = {};
  double images_per_s = 0;
  bool json = false;
  Scenario scenario = {};
};

void DeclareMachines(CLI::App& app, SimulateFlags& flags) {
  Scenario& scenario = flags.scenario;
  const auto number = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  number("--workers", scenario.workers, "machines with workers");
  number("--servers", scenario.servers,
         "machines with servers only; 0: servers on the workers' machines");
  number("--gpus-per-node", scenario.gpus_per_node, "GPUs of a machine");
  number("--link-gbps", scenario.link_gbps,
         "gigabits/s of a machine, each direction");
  number("--server-link-gbps", scenario.server_link_gbps,
         "of a server; 0: as a worker's");
  number("--intra-gbytes-per-s", scenario.intra_gbytes_per_s,
         "between the GPUs of a machine; 0: by the calibration");
  number("--cores", scenario.cores,
         "of a machine, for codecs and transport; 0: by the calibration");
  number("--transport", scenario.transport,
         "TCP, IB, RoCEv2 or EFA: whose costs count; auto, inproc, ofi, ucx: "
         "TCP's");
  number("--dollars-per-hour", scenario.dollars_per_hour, "of a machine");
}

void DeclareTraining(CLI::App& app, SimulateFlags& flags) {
  Scenario& scenario = flags.scenario;
  const auto number = [&](const char* name, auto& value, const char* help) {
    app.add_option(name, value, help)->capture_default_str();
  };
  number("--profile", flags.profile, "network: a name or FILE.csv");
  number("--batch", scenario.batch, "samples per GPU");
  number("--images-per-s", flags.images_per_s,
         "of one GPU alone; 0: those of a Tesla P100 for a built-in profile");
  app.add_option("--compute-ms", flags.compute_ms,
                 "of a step without communication; wins over --images-per-s");
  number("--codec", scenario.codec, "none or a codec of the calibration");
  number("--aggregation", scenario.aggregation,
         "auto, ring, recursive-doubling, halving-doubling, tree, "
         "co-located-servers, "
         "dedicated-servers, all-gather");
  number("--element-bits", scenario.element_bits,
         "of a gradient's elements without a codec");
  number("--min-codec-elements", scenario.min_codec_elems,
         "tensors with fewer are not encoded");
  number("--chunk-elements", scenario.chunk_elems,
         "of a chunk; 0: the best for each tensor");
  app.add_option("--overlap", flags.overlap, "none, backward, full")
      ->check(CLI::IsMember({"none", "backward", "full"}))
      ->capture_default_str();
  app.add_option("--first-layers-first", scenario.first_layers_first,
                 "0: gradients go in the order in which they are ready")
      ->capture_default_str();
  number("--epoch-samples", scenario.epoch_samples, "samples of an epoch");
}

void DeclareOutput(CLI::App& app, SimulateFlags& flags) {
  app.add_option("--calibration", flags.calibration,
                 "JSON of speeds; without: defaults");
  app.add_option("--sweep", flags.sweep,
                 "workers=1:1024:x2,link-gbps=1|10|25,codec=none|2bit: all "
                 "combinations, as CSV");
  app.add_flag("--json", flags.json, "JSON instead of text or CSV");
  app.add_option("--html", flags.html, "also write a page with a chart");
}

absl::Status SetCompute(SimulateFlags& flags) {
  Scenario& scenario = flags.scenario;
  if (flags.compute_ms.has_value()) {
    scenario.compute_s = *flags.compute_ms / 1e3;
    return absl::OkStatus();
  }
  double images_per_s = flags.images_per_s;
  const auto known = kP100ImagesPerS.find(flags.profile);
  if (images_per_s == 0 && known != kP100ImagesPerS.end()) {
    images_per_s = known->second;
  }
  if (!(images_per_s > 0) || std::isinf(images_per_s)) {
    return absl::InvalidArgumentError(
        absl::StrCat("how long does a step of ", flags.profile,
                     " compute? give --compute-ms or --images-per-s"));
  }
  scenario.images_per_s = images_per_s;
  scenario.compute_s = scenario.batch / images_per_s;
  return absl::OkStatus();
}

std::string ToText(const Prediction& p) {
  char text[640];
  std::snprintf(
      text, sizeof(text),
      "step            %.4g ms (%.4g ms of communication, %.4g ms exposed)\n"
      "samples/s       %.6g\nefficiency      %.1f %%\nsent per worker %s\n"
      "epoch           %.4g s, $%.2f\nbusiest         %s, %.0f %% of a step\n",
      1e3 * p.step_s, 1e3 * p.comm_s, 1e3 * p.exposed_s, p.samples_per_s,
      100 * p.efficiency, FormatBytes(p.bytes_per_worker).c_str(), p.epoch_s,
      p.epoch_dollars, p.busiest.c_str(), 100 * p.busiest_share);
  return text;
}

absl::Status Run(SimulateFlags& flags) {
  Calibration calibration = AssumedCalibration();
  if (!flags.calibration.empty()) {
    ASSIGN_OR_RETURN(calibration, LoadCalibration(flags.calibration));
  }
  Scenario& scenario = flags.scenario;
  ASSIGN_OR_RETURN(scenario.profile, LoadGradientProfile(flags.profile));
  RETURN_IF_ERROR(SetCompute(flags));
  scenario.overlap = flags.overlap == "none"       ? Overlap::kNone
                     : flags.overlap == "backward" ? Overlap::kBackward
                                                   : Overlap::kFull;
  SweepResult result;
  if (flags.sweep.empty()) {
    ASSIGN_OR_RETURN(const Prediction prediction,
                     Simulate(scenario, calibration));
    result.points = {{.prediction = prediction}};
  } else {
    ASSIGN_OR_RETURN(result, Sweep(scenario, calibration, flags.sweep));
  }
  if (!flags.html.empty()) {
    RETURN_IF_ERROR(WriteFile(
        flags.html, SweepToHtml(result, absl::StrCat(flags.profile,
                                                     ": simulated training"))));
  }
  return Print(flags.json            ? SweepToJson(result)
               : flags.sweep.empty() ? ToText(result.points.front().prediction)
                                     : SweepToCsv(result));
}

}  // namespace

void AddSimulateCommand(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<SimulateFlags>();
  flags->scenario.workers = 8;
  DeclareMachines(app, *flags);
  DeclareTraining(app, *flags);
  DeclareOutput(app, *flags);
  app.callback(
      [flags, &exit_code] { exit_code = Finish("simulate", Run(*flags)); });
}

}  // namespace telegrad::topo
