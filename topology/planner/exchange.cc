#include "topology/planner/exchange.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/planner/aggregation.h"
#include "topology/planner/predict.h"

namespace telegrad {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8;
constexpr char kGiven[] = "the job's codec and its rules";
constexpr double kMinGain = 0.01;  // a part of a step; less is not worth a loss

// Elements of a tensor's chunks.
int64_t ChunkElems(const PlanRequest& request, const Pipeline& pipeline,
                   int64_t elems) {
  return request.chunk_bytes.is_set()
             ? std::max<int64_t>(1, request.chunk_bytes.value / 4)
             : BestChunkElems(pipeline, elems);
}

std::vector<TensorPlan> DenseTensors(const PlanRequest& request,
                                     const Pipeline& dense) {
  std::vector<TensorPlan> tensors;
  std::map<int64_t, int64_t> chunks;  // most layers have equal sizes
  for (const ProfileTensor& each : request.profile.tensors) {
    int64_t& chunk = chunks[each.num_elems];
    if (chunk == 0) chunk = ChunkElems(request, dense, each.num_elems);
    tensors.push_back({.name = each.name,
                       .elems = each.num_elems,
                       .chunk_bytes = 4 * chunk,
                       .priority = -static_cast<int>(tensors.size())});
  }
  return tensors;
}

// A way to exchange with one codec (or none), and what it costs.
struct Option {
  std::string codec = "none";
  Aggregation aggregation = Aggregation::kLocal;
  std::vector<TensorPlan> tensors = {};
  Times times = {};
  double break_even_gbps = 0;
};

class Chooser {
 public:
  Chooser(const Calibration& calibration, const PlanRequest& request,
          const Estimate& estimate, Plan* plan)
      : calibration_(calibration),
        request_(request),
        estimate_(estimate),
        plan_(*plan),
        hopeful_(estimate) {
    // The corner of all spreads in which compression pays least.
    hopeful_.cluster.bytes_per_s *= 1 + estimate.link_spread;
    hopeful_.cluster.reduce_elems_per_s *= 1 + estimate.reduce_spread;
    why_ = request_.aggregation.by;
    dense_aggregation_ =
        IsFixed() ? request_.aggregation.value
                  : DenseAggregation(estimate_, 4.0 * num_elems(), &why_);
  }

  absl::Status Choose() {
    ReadGiven();
    const Option dense = With({}, estimate_);
    const Option base = With(given_, estimate_);
    Option best = base;
    RETURN_IF_ERROR(IsAllGiven() ? TellGiven(kGiven)
                                 : ChooseCodec(base, &best));
    best.codec = NamesOf(best.tensors);
    if (best.aggregation != dense.aggregation) {
      why_ =
          absl::StrCat("sums of ", best.codec, " are made where a shard lives");
    }
    plan_.decisions.push_back({.what = Decision::Kind::kAggregation,
                               .choice = Name(best.aggregation),
                               .why = why_});
    plan_.aggregation = best.aggregation;
    plan_.codec = best.codec;
    plan_.tensors = std::move(best.tensors);
    plan_.comm_s = best.times.comm_s;
    plan_.exposed_s = best.times.exposed_s;
    plan_.comm_dense_s = dense.times.comm_s;
    const absl::Status advised =
        IsFixed() ? Advise(calibration_, estimate_, &plan_) : absl::OkStatus();
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (!IsOpen(i)) plan_.tensors[i].codec = request_.tensor_codecs[i];
    }
    plan_.codec = NamesOf(plan_.tensors);
    return advised;
  }

 private:
  double num_elems() const {
    return static_cast<double>(request_.profile.num_elems());
  }

  bool IsFixed() const { return request_.aggregation.is_set(); }

  bool IsOpen(size_t tensor) const {
    return request_.tensor_codecs.empty() ||
           request_.tensor_codecs[tensor].empty();
  }

  bool IsAllGiven() const {
    const std::vector<std::string>& all = request_.tensor_codecs;
    return !all.empty() && std::find(all.begin(), all.end(), "") == all.end();
  }

  void ReadGiven() {
    for (const std::string& name : request_.tensor_codecs) {
      if (name.empty() || name == "none" || given_.contains(name)) continue;
      const CodecFigures* figures = calibration_.FindCodec(name);
      if (figures == nullptr) continue;
      const auto cost = CostOf(*figures, estimate_.cluster);
      if (cost.ok()) given_[name] = *cost;
      // Else its tensors count as dense.
    }
  }

  // Dense tensors' aggregation, unless one of the codecs needs another.
  Aggregation AggregationOf(const Costs& costs) const {
    Aggregation aggregation = dense_aggregation_;
    if (IsFixed()) return aggregation;
    for (const auto& [name, cost] : costs) {
      const Aggregation needed = CodecAggregation(
          dense_aggregation_, *calibration_.FindCodec(name), cost);
      if (needed != dense_aggregation_) aggregation = needed;
    }
    return aggregation;
  }

  void Give(const Pipelines& pipelines, const std::string& codec,
            TensorPlan* tensor) const {
    tensor->codec = codec;
    tensor->chunk_bytes =
        4 * ChunkElems(request_, pipelines.at(codec), tensor->elems);
  }

  // Tensors have what they were given of `costs`; the others are dense.
  std::vector<TensorPlan> GivenTensors(const Pipelines& pipelines) const {
    std::vector<TensorPlan> tensors =
        DenseTensors(request_, pipelines.at("none"));
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (IsOpen(i) || !pipelines.contains(request_.tensor_codecs[i])) continue;
      Give(pipelines, request_.tensor_codecs[i], &tensors[i]);
    }
    return tensors;
  }

  Option With(const Costs& given, const Estimate& estimate) const {
    Option option{.aggregation = AggregationOf(given)};
    const Pipelines pipelines =
        PipelinesOf(option.aggregation, estimate.cluster, given);
    option.tensors = GivenTensors(pipelines);
    option.times = PredictTimes(pipelines, option.tensors, estimate);
    return option;
  }

  enum class Which : uint8_t { kAll, kFaster };

  // A codec for tensors that were given none. `tensors`: who gets it; null: by
  // `which`.
  Option With(const CodecFigures& figures, const CodecCost& cost,
              const Estimate& estimate, Which which,
              const std::vector<TensorPlan>* tensors = nullptr) const {
    Costs costs = given_;
    costs[figures.name] = cost;
    Option option{.codec = figures.name, .aggregation = AggregationOf(costs)};
    const Pipelines pipelines =
        PipelinesOf(option.aggregation, estimate.cluster, costs);
    option.tensors =
        tensors != nullptr ? *tensors : Assign(figures.name, pipelines, which);
    option.times = PredictTimes(pipelines, option.tensors, estimate);
    option.break_even_gbps = BreakEvenGbps(option.aggregation, cost);
    return option;
  }

  double BreakEvenGbps(Aggregation aggregation, const CodecCost& cost) const {
    return BreakEvenBytesPerS(dense_aggregation_, aggregation,
                              estimate_.cluster, cost,
                              request_.profile.num_elems()) /
           kBytesPerGbit;
  }

  // Gives the codec to all tensors that may get it, or to each that is faster
  // with it.
  std::vector<TensorPlan> Assign(const std::string& codec,
                                 const Pipelines& pipelines,
                                 Which which) const {
    const Pipeline& raw = pipelines.at("none");
    const Pipeline& small = pipelines.at(codec);
    std::vector<TensorPlan> tensors = GivenTensors(pipelines);
    for (size_t i = 0; i < tensors.size(); ++i) {
      TensorPlan& tensor = tensors[i];
      if (!IsOpen(i)) continue;
      const int64_t chunk = ChunkElems(request_, small, tensor.elems);
      const double raw_s =
          PipelineSeconds(raw, tensor.elems, tensor.chunk_bytes / 4);
      if (which == Which::kAll ||
          PipelineSeconds(small, tensor.elems, chunk) < raw_s) {
        Give(pipelines, codec, &tensor);
      }
    }
    return tensors;
  }

  absl::Status ChooseCodec(const Option& base, Option* best) {
    if (request_.gc_type == "none") return TellGiven(kGiven);
    if (request_.gc_type != "auto") return Force(best);
    std::vector<std::string> allowed = request_.gc_allow;
    if (allowed.empty()) {
      for (const CodecFigures& each : calibration_.codecs) {
        allowed.push_back(each.name);
      }
    }
    std::vector<std::string> against;
    for (const std::string& name : allowed) {
      RETURN_IF_ERROR(Consider(name, best, &against));
    }
    if (!unmeasured_.empty()) {
      against.push_back(
          absl::StrCat("not measured: ", absl::StrJoin(unmeasured_, ", "),
                       " (telegrad-perf calibrate > FILE, then --calibration "
                       "FILE)"));
    }
    if (best->codec == "none") {
      Tell("off", absl::StrJoin(against, "; "));
      return given_.empty() ? absl::OkStatus() : TellGiven("by rule");
    }
    Tell(best->codec,
         absl::StrFormat("link %g Gb/s < %s; a step exposes %.4g ms of "
                         "communication instead of %.4g ms",
                         LinkGbps(), BreakEven(*best),
                         1e3 * best->times.exposed_s,
                         1e3 * base.times.exposed_s));
    return given_.empty() ? absl::OkStatus() : TellGiven("by rule");
  }

  absl::StatusOr<const CodecFigures*> Find(const std::string& name) const {
    const CodecFigures* figures = calibration_.FindCodec(name);
    if (figures != nullptr) return figures;
    std::vector<std::string> names = {"none"};
    for (const CodecFigures& each : calibration_.codecs) {
      names.push_back(each.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the calibration knows no codec '", name, "'; it has ",
                     absl::StrJoin(names, ", ")));
  }

  absl::Status Force(Option* best) {
    ASSIGN_OR_RETURN(const CodecFigures* figures, Find(request_.gc_type));
    ASSIGN_OR_RETURN(const CodecCost cost, CostOf(*figures, estimate_.cluster));
    *best = With(*figures, cost, estimate_, Which::kAll);
    Tell(best->codec,
         absl::StrFormat("--gc-type %s; link %g Gb/s, %s", request_.gc_type,
                         LinkGbps(), BreakEven(*best)));
    return absl::OkStatus();
  }

  void Tell(std::string choice, std::string why) {
    plan_.decisions.push_back({.what = Decision::Kind::kCodec,
                               .choice = std::move(choice),
                               .why = std::move(why)});
  }

  // "2bit,fp16", or "none".
  static std::string NamesOf(const std::vector<TensorPlan>& tensors) {
    std::set<std::string> names;
    for (const TensorPlan& tensor : tensors) names.insert(tensor.codec);
    if (names.size() > 1) names.erase("none");
    return absl::StrJoin(names, ",");
  }

  // "2bit for 9 of 10 tensors (break-even 44 Gb/s)" "--gc-type".
  absl::Status TellGiven(absl::string_view why) {
    const std::vector<std::string>& all = request_.tensor_codecs;
    std::vector<std::string> said;
    std::set<std::string> names(all.begin(), all.end());
    names.erase("");
    names.erase("none");
    for (const std::string& name : names) {
      said.push_back(absl::StrCat(name, " for ",
                                  std::count(all.begin(), all.end(), name),
                                  " of ", all.size(), " tensors"));
      const auto cost = given_.find(name);
      // Within a machine no link's rate decides.
      if (cost == given_.end() || dense_aggregation_ == Aggregation::kLocal) {
        continue;
      }
      Option one{.aggregation = AggregationOf(given_)};
      one.break_even_gbps = BreakEvenGbps(one.aggregation, cost->second);
      absl::StrAppend(&said.back(), " (", BreakEven(one), ")");
    }
    if (said.empty()) {
      Tell("off", std::string(why));
    } else {
      Tell(absl::StrJoin(said, ", "),
           absl::StrFormat("%s; link %g Gb/s", why, LinkGbps()));
    }
    return absl::OkStatus();
  }

  static bool IsMeasured(const CodecFigures& figures) {
    return figures.encode.is_grounded() && figures.decode.is_grounded() &&
           (figures.decode_add.is_grounded() || figures.sum.is_grounded());
  }

  absl::Status Consider(const std::string& name, Option* best,
                        std::vector<std::string>* against) {
    if (name == "none") return absl::OkStatus();
    ASSIGN_OR_RETURN(const CodecFigures* figures, Find(name));
    if (figures->is_lossy && !IsMeasured(*figures)) {
      unmeasured_.push_back(name);
      return absl::OkStatus();
    }
    if (figures->is_lossy && !estimate_.link_known) {
      against->assign(1, "the link's rate is not known");
      return absl::OkStatus();
    }
    const auto cost = CostOf(*figures, estimate_.cluster);
    const auto slow = CostOf(*figures, estimate_.cluster, -1);
    if (!cost.ok() || !slow.ok()) {
      against->push_back(std::string(cost.status().message()));
      return absl::OkStatus();
    }
    // It must pay in the corner that is worst for it.
    const Option sure = With(*figures, *slow, hopeful_, Which::kFaster);
    Costs given = given_;
    if (given.contains(name)) given[name] = *slow;
    const double base_s = With(given, hopeful_).times.exposed_s;
    const double gain = base_s - sure.times.exposed_s;
    if (gain <= kMinGain * (request_.compute_s + base_s)) {
      against->push_back(WhyNot(sure, base_s));
      return absl::OkStatus();
    }
    Option option =
        With(*figures, *cost, estimate_, Which::kFaster, &sure.tensors);
    if (option.times.exposed_s < best->times.exposed_s) {
      *best = std::move(option);
    }
    return absl::OkStatus();
  }

  std::string WhyNot(const Option& option, double base_s) const {
    if (option.break_even_gbps <= LinkGbps()) {
      return absl::StrFormat("link %g Gb/s > %s of %s", LinkGbps(),
                             BreakEven(option), option.codec);
    }
    return absl::StrFormat(
        "%s leaves %.4g ms of a step exposed, no compression %.4g ms (%.4g ms "
        "hide behind backward)",
        option.codec, 1e3 * option.times.exposed_s, 1e3 * base_s,
        1e3 * estimate_.backward_s);
  }

  static std::string BreakEven(const Option& option) {
    if (std::isinf(option.break_even_gbps)) {
      return "pays at any rate: dense, the transport keeps the cores busier";
    }
    return absl::StrFormat("break-even %.3g Gb/s", option.break_even_gbps);
  }

  double LinkGbps() const {
    return estimate_.cluster.bytes_per_s / kBytesPerGbit;
  }

  const Calibration& calibration_;
  const PlanRequest& request_;
  const Estimate& estimate_;
  Plan& plan_;
  Estimate hopeful_;
  Aggregation dense_aggregation_ = Aggregation::kLocal;
  std::string why_;  // why the aggregation is what it is
  Costs given_;      // costs of the codecs in `tensor_codecs`
  std::vector<std::string> unmeasured_;  // codecs
};

}  // namespace

absl::Status ChooseExchange(const Calibration& calibration,
                            const PlanRequest& request,
                            const Estimate& estimate, Plan* plan) {
  return Chooser(calibration, request, estimate, plan).Choose();
}

}  // namespace telegrad
