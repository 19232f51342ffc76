#include "trainer/run/codec_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "kvstore/tuning/few_bits.h"
#include "trainer/flags/optimizer_flags.h"

namespace telegrad {
namespace {

constexpr size_t kMostLines = 40;

bool IsAlike(const TensorReport& a, const TensorReport& b) {
  return a.codec == b.codec && a.reason == b.reason && a.reply == b.reply;
}

std::string Line(const std::vector<TensorReport>& reports, size_t begin,
                 size_t end) {
  const TensorReport& first = reports[begin];
  size_t elems = 0;
  size_t bytes = 0;
  for (size_t i = begin; i < end; ++i) {
    elems += reports[i].num_elems;
    bytes += reports[i].push_bytes;
  }
  std::string name = first.name;
  if (end - begin > 1) {
    absl::StrAppend(&name, " and ", end - begin - 1, " more");
  }
  return absl::StrFormat(
      "  %-28s %11d elements  %-10s reply %-8s %6.2f bits  %s", name, elems,
      first.codec, first.reply,
      8.0 * static_cast<double>(bytes) / static_cast<double>(elems),
      first.reason);
}

// Bits of an element of a push, at most.
double BitsOf(const TensorReport& report) {
  return 8.0 * static_cast<double>(report.push_bytes) /
         static_cast<double>(report.num_elems);
}

void WarnOfFewBits(const std::vector<TensorReport>& reports,
                   const TrainOptions& options, bool is_normal,
                   std::vector<std::string>& warnings) {
  std::set<std::string> told;
  for (const TensorReport& report : reports) {
    const double bits = BitsOf(report);
    if (bits >= kLeastBitsForSquares || !told.insert(report.codec).second) {
      continue;
    }
    const bool can_be_normal = WantsNormal(report.codec).value_or(false);
    if (is_normal && can_be_normal) continue;
    warnings.push_back(absl::StrFormat(
        "warning: %s sends %.2f bits of an element in each step, and the mean "
        "of squares of %s takes what is held back for noise (1-bit Adam, arXiv "
        "2102.02888): take %s--local-steps H, or int4",
        report.codec, bits, ToString(options.optimizer),
        !HasBetas(options) ? ""
        : can_be_normal    ? "--gc-normalize on, --adam-freeze-after STEPS, "
                           : "int2, --adam-freeze-after STEPS, "));
  }
}

void HintAtMomentum(const std::vector<TensorReport>& reports,
                    const TrainOptions& options,
                    std::vector<std::string>& warnings) {
  for (const TensorReport& report : reports) {
    const double momentum = options.mom;
    if (!ComesLate(report.codec, momentum).value_or(false)) continue;
    // Without momentum, 0.4 of the steps' size in the end, lr / (1 - momentum).
    const std::string cure =
        options.has_muon ? "try --local-steps H, or int4"
        : absl::StartsWith(report.codec, "powersgd")
            ? absl::StrFormat("try --mom 0 --lr %.2g",
                              0.4 * double{options.lr} / (1 - momentum))
            : "leave --gc-momentum off out";
    warnings.push_back(absl::StrFormat(
        "hint: %s beside momentum %g costs accuracy: %s (docs/laboratory.md)",
        report.codec, momentum, cure));
    return;
  }
}

// What the guard saw.
std::string Complaint(const TensorReport& report) {
  if (std::isnan(report.residual_ratio)) {
    return absl::StrFormat(
        "the cosine of what was sent and its gradient was %.3f, the error %.3g "
        "times its gradient",
        report.cosine, report.relative_error);
  }
  return absl::StrFormat(
      "its residual was %.0f times its gradients of late, %.1f %% beyond 64 "
      "thresholds",
      report.residual_ratio, 100 * report.saturated_share);
}

}  // namespace

std::vector<std::string> PlanLines(const std::vector<TensorReport>& reports) {
  std::vector<std::string> lines = {
      absl::StrCat("Compression plan, ", reports.size(),
                   " tensors (bits: most per element and push)")};
  for (size_t begin = 0; begin < reports.size();) {
    size_t end = begin + 1;
    while (end < reports.size() && IsAlike(reports[begin], reports[end])) {
      ++end;
    }
    if (lines.size() == kMostLines) {
      lines.push_back(
          absl::StrCat("  ... and ", reports.size() - begin, " tensors more"));
      break;
    }
    lines.push_back(Line(reports, begin, end));
    begin = end;
  }
  return lines;
}

std::vector<std::string> PlanWarnings(const std::vector<TensorReport>& reports,
                                      const Setting& setting,
                                      const TrainOptions& options) {
  const CompressionConfig& gc = setting.compression;
  const bool has_momentum = gc.momentum != PushMomentum::kNone;
  const float momentum = HasMomentum(options) ? options.mom : 0;
  std::set<std::string> reasons;
  bool has_dgc = false;
  for (const TensorReport& report : reports) {
    reasons.insert(report.reason);
    has_dgc |= report.codec == "dgc" || absl::StartsWith(report.codec, "dgc:");
  }
  std::vector<std::string> warnings;
  for (absl::string_view rule :
       absl::StrSplit(gc.rules, ';', absl::SkipEmpty())) {
    rule = absl::StripAsciiWhitespace(rule);
    if (rule.empty() || reasons.contains(absl::StrCat("rule ", rule))) continue;
    warnings.push_back(
        absl::StrCat("warning: --gc-rule ", rule,
                     " decides for no tensor: no name has this pattern, or an "
                     "earlier rule takes all that have"));
  }
  if (has_dgc && (momentum != 0 || has_momentum)) {
    warnings.push_back(absl::StrFormat(
        "warning: dgc has a momentum of its own, which counts beside the "
        "optimizer's: --mom 0 in place of %g is what its paper means",
        momentum));
  }
  if (StepsByMeanSquares(options)) {
    WarnOfFewBits(reports, options, setting.normalizes, warnings);
  }
  if (HasMomentumBehind(options) && !options.benchmark && !has_momentum) {
    HintAtMomentum(reports, options, warnings);
  }
  return warnings;
}

void TellPlan(RunContext& context, int64_t num_steps) {
  const std::vector<TensorReport> reports = context.store.codecs().Report();
  const CompressionConfig& gc = context.setting.compression;
  const TrainOptions& options = context.options;
  for (const std::string& line : PlanLines(reports)) {
    context.observer.OnLine(line);
  }
  if (gc.warmup_steps > 0) {
    context.observer.OnLine(absl::StrCat(
        "  warm-up: all go dense in the first ", gc.warmup_steps, " steps"));
  }
  if (gc.warmup_steps >= num_steps && gc.warmup_steps > 0) {
    context.Warn(absl::StrCat("warning: all ", num_steps, " steps go dense: ",
                              options.adam_freeze_after == gc.warmup_steps
                                  ? "--adam-freeze-after "
                                  : "--gc-warmup-steps ",
                              gc.warmup_steps));
  }
  if (gc.momentum != PushMomentum::kNone) {
    context.decisions.push_back(absl::StrFormat(
        "momentum %g is before the codec%s (--gc-momentum)", gc.momentum_rate,
        gc.momentum == PushMomentum::kNesterov ? ", with Nesterov's lead"
                                               : ""));
    context.observer.OnNotice(context.decisions.back());
  }
  if (context.setting.normalizes) {
    context.decisions.push_back(absl::StrFormat(
        "codecs get gradients divided by the root of the mean of squares of "
        "%s, which steps with Nesterov's lead (--gc-normalize)",
        options.has_muon ? "muon's adamw" : ToString(options.optimizer)));
    context.observer.OnNotice(context.decisions.back());
  }
  for (const std::string& line :
       PlanWarnings(reports, context.setting, options)) {
    context.Warn(line);
  }
  const bool skips = gc.nonfinite == NonFinitePolicy::kSkip;
  if (!skips && !options.has_loss_scale()) return;
  context.Warn(absl::StrCat(
      skips ? "--gc-nonfinite skip" : "--dtype float16",
      ": no gradient leaves before all workers have seen that all are finite; "
      "the exchange overlaps with nothing"));
}

std::vector<TensorMetrics> ToMetrics(const std::vector<TensorReport>& reports) {
  std::vector<TensorMetrics> metrics;
  for (const TensorReport& report : reports) {
    if (!report.has_sample && report.num_nonfinite == 0) continue;
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    const auto sampled = [&](double value) {
      return report.has_sample ? value : unknown;
    };
    metrics.push_back({.tensor = report.name,
                       .codec = report.is_dense ? "none" : report.codec,
                       .residual_ratio = sampled(report.residual_ratio),
                       .zero_share = sampled(report.zero_share),
                       .saturated_share = sampled(report.saturated_share),
                       .cosine = sampled(report.cosine),
                       .relative_error = sampled(report.relative_error),
                       .num_nonfinite = report.num_nonfinite});
  }
  return metrics;
}

void GuardNews::Tell(const std::vector<TensorReport>& reports, int64_t step,
                     RunContext& context) {
  if (step < context.setting.compression.warmup_steps) return;
  told_.resize(reports.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    const TensorReport& report = reports[i];
    if (!report.gave_up || told_[i] == report.codec) continue;
    told_[i] = report.codec;
    context.decisions.push_back(absl::StrFormat(
        "guard: %s goes dense from step %d at the latest: with %s %s "
        "(--gc-guard off switches this off)",
        report.name, step, report.codec, Complaint(report)));
    context.observer.OnNotice(context.decisions.back());
  }
}

std::string ReplyOf(const std::vector<TensorReport>& reports) {
  for (const TensorReport& report : reports) {
    if (report.codec == "none") continue;
    return report.reply;
  }
  return "dense";
}

}  // namespace telegrad
