#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/report/chart.h"
#include "trainer/report/html.h"

// One step as a time line: a row for the step itself and for each tensor.
namespace telegrad {
namespace {

constexpr double kSvgWidth = 1000, kLabels = 190, kSvgRow = 18, kSvgTop = 6;
constexpr int kShownSteps = 3;  // others are folded
constexpr double kLeastBar = 0.8;
constexpr double kLeastStep = 1e-9, kMostStep = 1e6;  // seconds; of a file

// Shapes tell stages apart, not colours alone.
struct Stage {
  const char* what;
  int style;
  double above, below;  // offsets from the row's middle
  bool is_hollow = false;
};
constexpr std::array<Stage, 9> kStages = {
    Stage{"forward and backward", 1, 6, 6},
    Stage{"wait", 0, 6, 6, true},
    Stage{"queued", 0, 0.8, 0.8},
    Stage{"encode", 2, 6, 6},
    Stage{"encode and sum", 2, 6, 6},
    Stage{"agree on a scale", 3, 4, 0, true},
    Stage{"network and server", 3, 4, 0},
    Stage{"send", 6, -1, 5},
    Stage{"decode", 4, 6, 6, true},
};
constexpr Stage kApply = {"apply", 5, 6, 6};

const Stage* FindStage(const std::string& what) {
  if (what == kApply.what) return &kApply;
  const auto found = std::ranges::find(kStages, what, &Stage::what);
  return found == kStages.end() ? nullptr : found;
}

std::string Bar(const Stage& stage, double x, double width, double middle,
                const std::string& title) {
  return absl::StrFormat(
      "<rect class=\"%s c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
      "height=\"%.1f\"><title>%s</title></rect>\n",
      stage.is_hollow ? "h" : "b", stage.style, x, middle - stage.above, width,
      stage.above + stage.below, EscapeHtml(title));
}

std::string StageLegend(const std::vector<const Stage*>& stages) {
  std::string html = "<ul class=\"legend\">\n";
  for (const Stage* const stage : stages) {
    absl::StrAppend(
        &html, "<li><svg viewBox=\"0 0 48 14\" aria-hidden=\"true\">",
        Bar(*stage, 4, 40, 7, stage->what), "</svg>", stage->what, "</li>\n");
  }
  return html + "</ul>\n";
}

std::string TimeAxis(double step_s, double bottom) {
  const double step_ms = 1e3 * step_s;
  double tick = std::pow(10, std::floor(std::log10(step_ms / 10)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (tick * 10 >= step_ms) break;
    tick *= factor;
  }
  std::string svg;
  for (int i = 0; tick * i <= step_ms; ++i) {
    const double x = kLabels + (kSvgWidth - kLabels - 20) * tick * i / step_ms;
    absl::StrAppendFormat(
        &svg,
        "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
        "y2=\"%.1f\"/><text class=\"x\" x=\"%.1f\" y=\"%.1f\">%.6g%s</text>\n",
        x, x, kSvgTop, bottom, x, bottom + 16, tick * i, i == 0 ? " ms" : "");
  }
  return svg;
}

std::string StepSvg(const RunSummary& run, std::vector<const Stage*>& used) {
  std::vector<std::string> rows = {"step"};
  for (const TensorBytes& tensor : run.tensors) {
    const auto is_of = [&](const StageSpan& span) {
      return span.row == tensor.tensor;
    };
    if (std::ranges::any_of(run.timeline, is_of)) rows.push_back(tensor.tensor);
  }
  for (const StageSpan& span : run.timeline) {
    if (std::ranges::count(rows, span.row) == 0) rows.push_back(span.row);
  }
  // Shorter ones lie on longer ones.
  std::vector<StageSpan> spans = run.timeline;
  std::ranges::stable_sort(
      spans, std::ranges::greater(),
      [](const StageSpan& span) { return span.end_s - span.begin_s; });
  const double step_s = run.timeline.front().end_s;
  const double bottom = kSvgTop + kSvgRow * static_cast<double>(rows.size());
  std::string svg = absl::StrFormat(
      "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"One step of "
      "worker 0, %s\">\n",
      kSvgWidth, bottom + 24, EscapeHtml(run.setting));
  absl::StrAppend(&svg, TimeAxis(step_s, bottom));
  for (size_t i = 0; i < rows.size(); ++i) {
    const double middle = kSvgTop + kSvgRow * (static_cast<double>(i) + 0.5);
    absl::StrAppendFormat(&svg,
                          "<text class=\"y\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                          kLabels - 8, middle + 4, EscapeHtml(rows[i]));
    for (const StageSpan& span : spans) {
      const Stage* const stage = FindStage(span.what);
      if (span.row != rows[i] || stage == nullptr) continue;
      if (std::ranges::count(used, stage) == 0) used.push_back(stage);
      const double scale = (kSvgWidth - kLabels - 20) / step_s;
      svg +=
          Bar(*stage, kLabels + scale * span.begin_s,
              std::max(kLeastBar, scale * (span.end_s - span.begin_s)), middle,
              absl::StrFormat("%s: %s, %.3f to %.3f ms", span.row, span.what,
                              1e3 * span.begin_s, 1e3 * span.end_s));
    }
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string StepHtml(const std::vector<SettingGroup>& groups) {
  std::vector<const Stage*> used;
  std::string html;
  int num_shown = 0;
  for (const SettingGroup& group : groups) {
    const auto run =
        std::ranges::find_if(group.runs, [](const RunSummary* each) {
          return !each->timeline.empty() &&
                 each->timeline[0].end_s > kLeastStep &&
                 each->timeline[0].end_s < kMostStep;
        });
    if (run == group.runs.end()) continue;
    const std::string name =
        absl::StrCat(group.setting, ", seed ", (*run)->seed);
    const std::string card =
        absl::StrCat("<div class=\"card steps\" tabindex=\"0\">",
                     StepSvg(**run, used), "</div>\n");
    absl::StrAppend(
        &html, num_shown++ < kShownSteps
                   ? absl::StrCat("<h3>", EscapeHtml(name), "</h3>\n", card)
                   : FoldedHtml(name, card));
  }
  if (html.empty()) return "";
  return absl::StrCat(
      "<h2>One step</h2>\n<p class=\"lead\">Of worker 0, from its begin to the "
      "next one's; of the largest tensors, first layers first. What lies at "
      "the left may belong to the step before, whose last sums arrive while "
      "forward runs.</p>\n",
      StageLegend(used), html);
}

}  // namespace telegrad
