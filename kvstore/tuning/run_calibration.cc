#include "kvstore/tuning/run_calibration.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/job/path/gather_numbers.h"
#include "kvstore/tuning/device_speeds.h"
#include "topology/cost_model.h"

namespace telegrad {
namespace {

constexpr double kSpread = 0.1;  // between runs of one loop
// Repeats of additions, checksums and copies, on arrays that no cache holds:
// with arrays of 64 MiB they take 0.1 s.
constexpr int kCoresRepeats = 3;
// The control plane takes so much.
constexpr size_t kMaxTextBytes = size_t{1} << 20;

// In the order in which they travel; short, so that a thousand workers may.
std::vector<SlowestNumber> Numbers(Calibration& calibration, LinkFigures& bus) {
  std::vector<SlowestNumber> numbers = {
      {&calibration.cores.value, false}, {&calibration.reduce.value, false},
      {&calibration.check.value, false}, {&calibration.copy.value, false},
      {&calibration.handover_s.value},   {&bus.send.value, false},
      {&bus.receive.value, false},       {&bus.latency_s.value}};
  for (CodecFigures& codec : calibration.codecs) AppendNumbers(codec, &numbers);
  return numbers;
}

absl::StatusOr<CodecFigures> MeasureThere(const std::string& codec,
                                          const RunCalibrationOptions& options,
                                          const CalibrationOptions& how) {
  ASSIGN_OR_RETURN(CodecFigures figures,
                   options.measure_codec(codec, options.compression, how));
  if (options.device != Device{}) {
    RETURN_IF_ERROR(MeasureOnDevice(options.device, codec, options.compression,
                                    how, figures));
  }
  return figures;
}

Calibration MeasureMine(const RunCalibrationOptions& options, int num_workers,
                        std::vector<std::string>* notes) {
  const CalibrationOptions how{.num_elems = CalibrationElems(options.num_elems),
                               .budget = options.budget,
                               .num_workers = num_workers,
                               .cache = options.cache};
  CalibrationOptions cores = how;
  cores.repeats = kCoresRepeats;
  Calibration mine = MeasureCores(cores);
  mine.cores = {.value = static_cast<double>(std::max(1, options.cpus)),
                .confidence = Confidence::kReported,
                .reason = "processors of the machine"};
  for (const std::string& codec : options.codecs) {
    absl::StatusOr<CodecFigures> figures = MeasureThere(codec, options, how);
    if (figures.ok()) {
      mine.codecs.push_back(*std::move(figures));
    } else {
      notes->push_back(absl::StrCat("codec ", codec, " cannot be measured: ",
                                    figures.status().message()));
    }
  }
  if (options.device == Device{}) return mine;
  absl::StatusOr<LinkFigures> bus = MeasureBus(options.device, how);
  if (bus.ok()) {
    mine.links.push_back(*std::move(bus));
  } else {
    notes->push_back(
        absl::StrCat("the bus cannot be measured: ", bus.status().message()));
  }
  return mine;
}

// The codecs of `names`; those that were not measured have no speeds.
Calibration Padded(const Calibration& calibration,
                   const std::vector<std::string>& names) {
  Calibration padded = calibration;
  padded.codecs.clear();
  for (const std::string& name : names) {
    const CodecFigures* figures = calibration.FindCodec(name);
    padded.codecs.push_back(figures != nullptr ? *figures
                                               : CodecFigures{.name = name});
  }
  return padded;
}

// Worker 0's codecs `names`: how many bits they send is a matter of the codec,
// and of arrays whose size is a matter of the machine. None, and a note, where
// it sends no calibration: all workers see that alike.
absl::StatusOr<Calibration> GatherCodecs(KVStore& store,
                                         const Calibration& mine,
                                         const std::vector<std::string>& names,
                                         std::vector<std::string>* notes) {
  std::string text =
      store.group().rank() == 0 ? CalibrationToJson(mine, -1) : "";
  if (text.size() > kMaxTextBytes) text.clear();
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   store.group().Gather("plan-codecs", text));
  absl::StatusOr<Calibration> first =
      all.empty() || all[0].empty()
          ? absl::InvalidArgumentError("it is none, or too long")
          : CalibrationFromJson(all[0]);
  if (first.ok()) return Padded(*first, names);
  notes->push_back(absl::StrCat(
      "no codec is predicted: the calibration of worker/0 cannot be read: ",
      absl::Utf8SafeCEscape(first.status().message().substr(0, 300))));
  return Calibration();
}

// What all predict with; texts and spreads are each worker's own.
void Agree(const Figure& slowest, Figure* figure) {
  *figure = {.value = slowest.value,
             .spread = slowest.value > 0 ? kSpread : 0,
             .confidence = Confidence::kMeasured,
             .reason = "slowest worker's"};
}

// The slowest worker's figures in `agreed`, of all workers alike; its codecs
// are those of `mine`, or none.
absl::Status GatherSpeeds(KVStore& store, Calibration mine,
                          Calibration* agreed) {
  const LinkFigures* const own_bus = mine.FindLink(kBusLink);
  LinkFigures bus = own_bus == nullptr ? LinkFigures() : *own_bus;
  RETURN_IF_ERROR(
      GatherSlowest(store.group(), "plan-speeds", Numbers(mine, bus)));
  agreed->links.clear();
  if (bus.send.value > 0) {
    LinkFigures& link = agreed->links.emplace_back();
    link.name = kBusLink;
    Agree(bus.send, &link.send);
    Agree(bus.receive, &link.receive);
    Agree(bus.latency_s, &link.latency_s);
  }
  for (const auto figure :
       {&Calibration::cores, &Calibration::reduce, &Calibration::check,
        &Calibration::copy, &Calibration::handover_s}) {
    Agree(mine.*figure, &(agreed->*figure));
  }
  agreed->cores.spread = 0;
  for (size_t i = 0; i < agreed->codecs.size(); ++i) {
    CodecFigures& codec = agreed->codecs[i];
    Agree(mine.codecs[i].call_s, &codec.call_s);
    for (const auto speed : kCodecSpeeds) {
      Agree(mine.codecs[i].*speed, &(codec.*speed));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunCalibration> CalibrateRun(
    KVStore& store, const RunCalibrationOptions& options) {
  RunCalibration run;
  run.mine = MeasureMine(options, store.group().num_pushers(), &run.notes);
  ASSIGN_OR_RETURN(run.agreed,
                   GatherCodecs(store, run.mine, options.codecs, &run.notes));
  RETURN_IF_ERROR(
      GatherSpeeds(store, Padded(run.mine, options.codecs), &run.agreed));
  const ClusterCost cluster{.workers = store.group().num_pushers()};
  std::erase_if(run.agreed.codecs, [&](const CodecFigures& each) {
    const absl::Status status = CostOf(each, cluster).status();
    if (!status.ok()) run.notes.push_back(std::string(status.message()));
    return !status.ok();
  });
  return run;
}

std::vector<std::string> CodecsOf(std::span<const TensorReport> reports,
                                  bool is_choice, const Calibration* known) {
  std::vector<std::string> codecs;
  for (const TensorReport& report : reports) {
    const std::string& codec = report.setting;
    const bool is_open = is_choice && codec != "none" && !report.has_rule;
    const bool is_known =
        known == nullptr || known->FindCodec(codec) != nullptr;
    codecs.push_back(is_open ? "" : is_known ? codec : "none");
  }
  return codecs;
}

absl::StatusOr<std::vector<std::string>> CodecsOf(
    std::span<const TensorSpec> tensors, const CompressionConfig& compression,
    bool is_choice) {
  ASSIGN_OR_RETURN(const std::vector<TensorLayout> layouts,
                   MakeShardPlan(tensors, 1, kMaxChunkElems, compression));
  std::vector<TensorReport> reports;
  for (const TensorLayout& each : layouts) {
    TensorReport& report = reports.emplace_back();
    report.setting = each.setting;
    report.has_rule = each.has_rule;
  }
  return CodecsOf(reports, is_choice);
}

}  // namespace telegrad
