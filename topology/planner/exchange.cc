#include "topology/planner/exchange.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/planner/aggregation.h"

namespace telegrad {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8;
constexpr double kMinGain = 0.01;  // of a step; less is not worth a loss

struct Times {
  double comm_s = 0;
  double exposed_s = 0;
};

// Predicts a step; `pipelines` has one for each codec of `tensors`.
Times PredictTimes(const std::map<std::string, Pipeline>& pipelines,
                   const std::vector<TensorPlan>& tensors,
                   const Prospect& prospect) {
  std::vector<TensorCost> costs;
  std::vector<TensorCost> at_once;
  for (size_t i = tensors.size(); i-- > 0;) {  // as backward makes them
    const Pipeline& pipeline = pipelines.at(tensors[i].codec);
    costs.push_back({&pipeline, tensors[i].elems, tensors[i].chunk_bytes / 4,
                     prospect.ready_s[i]});
    at_once.push_back(costs.back());
    at_once.back().ready_s = 0;
  }
  return {FinishSeconds(at_once),
          std::max(0.0, FinishSeconds(costs) - prospect.backward_s)};
}

// Elements of a tensor's chunks.
int64_t ChunkElems(const PlanRequest& request, const Pipeline& pipeline,
                   int64_t elems) {
  return request.chunk_bytes > 0 ? std::max<int64_t>(1, request.chunk_bytes / 4)
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
          const Prospect& prospect, Plan* plan)
      : calibration_(calibration),
        request_(request),
        prospect_(prospect),
        plan_(*plan),
        hopeful_(prospect) {
    // The corner of all spreads in which compression pays least.
    hopeful_.cluster.bytes_per_s *= 1 + prospect.link_spread;
    hopeful_.cluster.reduce_elems_per_s *= 1 + prospect.reduce_spread;
    dense_aggregation_ = DenseAggregation(
        prospect_, 4.0 * static_cast<double>(request_.profile.num_elems()),
        &why_);
  }

  absl::Status Choose() {
    const Option dense = Dense(prospect_);
    Option best = dense;
    RETURN_IF_ERROR(request_.tensor_codecs.empty() ? ChooseCodec(dense, &best)
                                                   : Give(&best));
    if (best.aggregation != dense.aggregation) {
      why_ =
          absl::StrCat("sums of ", best.codec, " are made where a shard lives");
    }
    plan_.reasons.push_back(
        absl::StrCat("aggregation ", Name(best.aggregation), ": ", why_));
    plan_.aggregation = best.aggregation;
    plan_.codec = best.codec;
    plan_.tensors = std::move(best.tensors);
    plan_.comm_s = best.times.comm_s;
    plan_.exposed_s = best.times.exposed_s;
    plan_.comm_dense_s = dense.times.comm_s;
    return absl::OkStatus();
  }

 private:
  Option Dense(const Prospect& prospect) const {
    Option option{.aggregation = dense_aggregation_};
    const Pipeline pipeline = MakePipeline(option.aggregation, prospect.cluster,
                                           DenseCost(prospect.cluster));
    option.tensors = DenseTensors(request_, pipeline);
    option.times = PredictTimes({{"none", pipeline}}, option.tensors, prospect);
    return option;
  }

  enum class Which : uint8_t { kAll, kFaster };

  // `tensors`: who gets the codec; null: by `which`.
  Option With(const CodecFigures& figures, const CodecCost& cost,
              const Prospect& prospect, Which which,
              const std::vector<TensorPlan>* tensors = nullptr) const {
    Option option{
        .codec = figures.name,
        .aggregation = CodecAggregation(dense_aggregation_, figures, cost)};
    const ClusterCost& cluster = prospect.cluster;
    const std::map<std::string, Pipeline> pipelines = {
        {"none", MakePipeline(option.aggregation, cluster, DenseCost(cluster))},
        {figures.name, MakePipeline(option.aggregation, cluster, cost)}};
    option.tensors =
        tensors != nullptr ? *tensors : Assign(figures.name, pipelines, which);
    option.times = PredictTimes(pipelines, option.tensors, prospect);
    option.break_even_gbps =
        BreakEvenBytesPerS(dense_aggregation_, option.aggregation, cluster,
                           cost, request_.profile.num_elems()) /
        kBytesPerGbit;
    return option;
  }

  // Gives the codec to all tensors, or to each that is faster with it.
  std::vector<TensorPlan> Assign(
      const std::string& codec,
      const std::map<std::string, Pipeline>& pipelines, Which which) const {
    const Pipeline& raw = pipelines.at("none");
    const Pipeline& small = pipelines.at(codec);
    std::vector<TensorPlan> tensors = DenseTensors(request_, raw);
    for (TensorPlan& tensor : tensors) {
      const auto i = static_cast<size_t>(&tensor - tensors.data());
      if (!request_.may_compress.empty() && !request_.may_compress[i]) continue;
      const int64_t chunk = ChunkElems(request_, small, tensor.elems);
      const double raw_s =
          PipelineSeconds(raw, tensor.elems, tensor.chunk_bytes / 4);
      if (which == Which::kFaster &&
          PipelineSeconds(small, tensor.elems, chunk) >= raw_s) {
        continue;
      }
      tensor.codec = codec;
      tensor.chunk_bytes = 4 * chunk;
    }
    return tensors;
  }

  absl::Status ChooseCodec(const Option& dense, Option* best) {
    if (request_.gc_type == "none") {
      plan_.reasons.push_back("compression off: asked for");
      return absl::OkStatus();
    }
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
          absl::StrCat("not measured: ", absl::StrJoin(unmeasured_, ", ")));
    }
    if (best->codec == "none") {
      plan_.reasons.push_back(
          absl::StrCat("compression off: ", absl::StrJoin(against, "; ")));
      return absl::OkStatus();
    }
    plan_.reasons.push_back(absl::StrFormat(
        "compression %s: link %g Gb/s < %s; a step exposes %.4g ms of "
        "communication instead of %.4g ms",
        best->codec, LinkGbps(), BreakEven(*best), 1e3 * best->times.exposed_s,
        1e3 * dense.times.exposed_s));
    return absl::OkStatus();
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
    ASSIGN_OR_RETURN(const CodecCost cost, CostOf(*figures, prospect_.cluster));
    *best = With(*figures, cost, prospect_, Which::kAll);
    plan_.reasons.push_back(
        absl::StrFormat("compression %s: asked for; link %g Gb/s, %s",
                        best->codec, LinkGbps(), BreakEven(*best)));
    return absl::OkStatus();
  }

  // Each tensor its own of `tensor_codecs`.
  absl::Status Give(Option* best) {
    const ClusterCost& cluster = prospect_.cluster;
    std::map<std::string, CodecCost> costs;
    for (const std::string& name : request_.tensor_codecs) {
      if (name == "none" || costs.contains(name)) continue;
      ASSIGN_OR_RETURN(const CodecFigures* figures, Find(name));
      ASSIGN_OR_RETURN(costs[name], CostOf(*figures, cluster));
      const Aggregation needed =
          CodecAggregation(dense_aggregation_, *figures, costs[name]);
      if (needed != dense_aggregation_) best->aggregation = needed;
    }
    std::map<std::string, Pipeline> pipelines = {
        {"none", MakePipeline(best->aggregation, cluster, DenseCost(cluster))}};
    std::vector<std::string> said;
    for (const auto& [name, cost] : costs) {
      pipelines[name] = MakePipeline(best->aggregation, cluster, cost);
      said.push_back(Given(name, cost, *best));
    }
    best->tensors = DenseTensors(request_, pipelines.at("none"));
    for (size_t i = 0; i < best->tensors.size(); ++i) {
      TensorPlan& tensor = best->tensors[i];
      tensor.codec = request_.tensor_codecs[i];
      tensor.chunk_bytes =
          4 * ChunkElems(request_, pipelines.at(tensor.codec), tensor.elems);
    }
    if (!costs.empty()) best->codec = NamesOf(costs);
    best->times = PredictTimes(pipelines, best->tensors, prospect_);
    plan_.reasons.push_back(
        said.empty()
            ? "compression off: asked for"
            : absl::StrFormat("compression %s: asked for; link %g Gb/s",
                              absl::StrJoin(said, ", "), LinkGbps()));
    return absl::OkStatus();
  }

  static std::string NamesOf(const std::map<std::string, CodecCost>& costs) {
    return absl::StrJoin(costs, ",", [](std::string* out, const auto& each) {
      absl::StrAppend(out, each.first);
    });
  }

  // "2bit for 9 of 10 tensors (break-even 44 Gb/s)".
  std::string Given(const std::string& name, const CodecCost& cost,
                    const Option& option) const {
    Option one{.aggregation = option.aggregation};
    one.break_even_gbps =
        BreakEvenBytesPerS(dense_aggregation_, one.aggregation,
                           prospect_.cluster, cost,
                           request_.profile.num_elems()) /
        kBytesPerGbit;
    const std::vector<std::string>& all = request_.tensor_codecs;
    return absl::StrCat(name, " for ", std::count(all.begin(), all.end(), name),
                        " of ", all.size(), " tensors (", BreakEven(one), ")");
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
    if (figures->is_lossy && !prospect_.link_known) {
      against->assign(1, "the link's rate is not known");
      return absl::OkStatus();
    }
    const auto cost = CostOf(*figures, prospect_.cluster);
    const auto slow = CostOf(*figures, prospect_.cluster, -1);
    if (!cost.ok() || !slow.ok()) {
      against->push_back(std::string(cost.status().message()));
      return absl::OkStatus();
    }
    // It must pay in the corner that is worst for it.
    const Option sure = With(*figures, *slow, hopeful_, Which::kFaster);
    const double dense_s = Dense(hopeful_).times.exposed_s;
    const double gain = dense_s - sure.times.exposed_s;
    if (gain <= kMinGain * (request_.compute_s + dense_s)) {
      against->push_back(WhyNot(sure, dense_s));
      return absl::OkStatus();
    }
    Option option =
        With(*figures, *cost, prospect_, Which::kFaster, &sure.tensors);
    if (option.times.exposed_s < best->times.exposed_s) {
      *best = std::move(option);
    }
    return absl::OkStatus();
  }

  std::string WhyNot(const Option& option, double dense_s) const {
    if (option.break_even_gbps <= LinkGbps()) {
      return absl::StrFormat("link %g Gb/s > %s of %s", LinkGbps(),
                             BreakEven(option), option.codec);
    }
    return absl::StrFormat(
        "%s leaves %.4g ms of a step exposed, no compression %.4g ms (%.4g ms "
        "hide behind backward)",
        option.codec, 1e3 * option.times.exposed_s, 1e3 * dense_s,
        1e3 * prospect_.backward_s);
  }

  static std::string BreakEven(const Option& option) {
    if (std::isinf(option.break_even_gbps)) {
      return "break-even inf (dense, the transport keeps the cores busier)";
    }
    return absl::StrFormat("break-even %.3g Gb/s", option.break_even_gbps);
  }

  double LinkGbps() const {
    return prospect_.cluster.bytes_per_s / kBytesPerGbit;
  }

  const Calibration& calibration_;
  const PlanRequest& request_;
  const Prospect& prospect_;
  Plan& plan_;
  Prospect hopeful_;
  Aggregation dense_aggregation_ = Aggregation::kLocal;
  std::string why_;                      // this one
  std::vector<std::string> unmeasured_;  // codecs
};

}  // namespace

absl::Status ChooseExchange(const Calibration& calibration,
                            const PlanRequest& request,
                            const Prospect& prospect, Plan* plan) {
  return Chooser(calibration, request, prospect, plan).Choose();
}

absl::Status Predict(const Calibration& calibration, const Prospect& prospect,
                     Plan* plan) {
  std::map<std::string, Pipeline> pipelines = {
      {"none", MakePipeline(plan->aggregation, prospect.cluster,
                            DenseCost(prospect.cluster))}};
  if (plan->tensors.size() != prospect.ready_s.size()) {
    return absl::FailedPreconditionError("the plan is for other tensors");
  }
  for (const TensorPlan& tensor : plan->tensors) {
    if (pipelines.count(tensor.codec) > 0) continue;
    const CodecFigures* figures = calibration.FindCodec(tensor.codec);
    if (figures == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("the calibration knows no codec ", tensor.codec));
    }
    ASSIGN_OR_RETURN(const CodecCost cost, CostOf(*figures, prospect.cluster));
    pipelines[tensor.codec] =
        MakePipeline(plan->aggregation, prospect.cluster, cost);
  }
  const Times times = PredictTimes(pipelines, plan->tensors, prospect);
  plan->comm_s = times.comm_s;
  plan->exposed_s = times.exposed_s;
  return absl::OkStatus();
}

}  // namespace telegrad
