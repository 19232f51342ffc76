#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "topology/simulate.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kWidth = 720;
constexpr double kHeight = 360;
constexpr double kMargin = 60;
constexpr const char* kColours[] = {"#1b6ca8", "#c8553d", "#588b3b", "#7d4e9e",
                                    "#b58900", "#2aa198", "#6c6c6c", "#d33682"};
constexpr const char* kStyle =
    "<style>body{font:15px sans-serif;margin:2em}table{border-collapse:"
    "collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid "
    "#ddd}text{font:12px sans-serif}</style>";

struct Column {
  const char* name;
  double (*value)(const Prediction&);
};
constexpr Column kColumns[] = {
    {"step_ms", [](const Prediction& p) { return 1e3 * p.step_s; }},
    {"comm_ms", [](const Prediction& p) { return 1e3 * p.comm_s; }},
    {"exposed_ms", [](const Prediction& p) { return 1e3 * p.exposed_s; }},
    {"samples_per_s", [](const Prediction& p) { return p.samples_per_s; }},
    {"efficiency", [](const Prediction& p) { return p.efficiency; }},
    {"bytes_per_worker",
     [](const Prediction& p) { return p.bytes_per_worker; }},
    {"epoch_s", [](const Prediction& p) { return p.epoch_s; }},
    {"epoch_dollars", [](const Prediction& p) { return p.epoch_dollars; }},
    {"busiest_share", [](const Prediction& p) { return p.busiest_share; }},
};

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A table's cell of text: quoted where a comma or a quote would break it.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

using Line = std::vector<std::pair<double, double>>;

// Index of the first field whose values are numbers; the number of fields when
// there is none.
size_t FindXAxis(const SweepResult& sweep) {
  for (size_t i = 0; i < sweep.fields.size(); ++i) {
    double number = 0;
    if (std::all_of(sweep.points.begin(), sweep.points.end(),
                    [&](const SweepPoint& each) {
                      return absl::SimpleAtod(each.values[i], &number) &&
                             number > 0;
                    })) {
      return i;
    }
  }
  return sweep.fields.size();
}

std::map<std::string, Line> Lines(const SweepResult& sweep, size_t x) {
  std::map<std::string, Line> lines;
  for (const SweepPoint& point : sweep.points) {
    std::vector<std::string> others;
    for (size_t i = 0; i < point.values.size(); ++i) {
      if (i != x) {
        others.push_back(absl::StrCat(sweep.fields[i], "=", point.values[i]));
      }
    }
    double number = 0;
    if (!absl::SimpleAtod(point.values[x], &number)) continue;
    lines[absl::StrJoin(others, " ")].push_back(
        {number, point.prediction.samples_per_s});
  }
  return lines;
}

// Both axes are logarithmic: sweeps grow by factors.
struct Scale {
  double low = 1;
  double high = 10;
  double at(double value, double from, double to) const {
    const double span = std::log(high / low);
    const double share = span > 0 ? std::log(value / low) / span : 0.5;
    return from + share * (to - from);
  }
};

std::string Chart(const SweepResult& sweep, size_t x_axis) {
  const std::map<std::string, Line> lines = Lines(sweep, x_axis);
  Scale x{1e300, 1e-300};
  Scale y{1e300, 1e-300};
  for (const auto& [name, line] : lines) {
    for (const auto& [a, b] : line) {
      x = {std::min(x.low, a), std::max(x.high, a)};
      y = {std::min(y.low, b), std::max(y.high, b)};
    }
  }
  const double bottom = kHeight - kMargin;
  const double right = kWidth - kMargin;
  std::string svg = absl::StrFormat(
      "<svg viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\">"
      "<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"#888\"/>",
      kWidth + 200, kHeight, kWidth + 200, kHeight, kMargin, kMargin / 2,
      bottom, right);
  absl::StrAppendFormat(
      &svg,
      "<text x=\"%g\" y=\"%g\">%g</text><text x=\"%g\" y=\"%g\" "
      "text-anchor=\"end\">%g</text><text x=\"%g\" y=\"%g\">%s</text>"
      "<text x=\"4\" y=\"%g\">%.4g</text><text x=\"4\" y=\"%g\">%.4g</text>"
      "<text x=\"4\" y=\"14\">samples/s</text>",
      kMargin, bottom + 20, x.low, right, bottom + 20, x.high, kWidth / 2,
      bottom + 36, Escape(sweep.fields[x_axis]), bottom, y.low,
      kMargin / 2 + 12, y.high);
  size_t index = 0;
  for (const auto& [name, line] : lines) {
    const char* colour = kColours[index % std::size(kColours)];
    std::string points;
    for (const auto& [a, b] : line) {
      absl::StrAppendFormat(&points, "%.1f,%.1f ", x.at(a, kMargin, right),
                            y.at(b, bottom, kMargin / 2));
    }
    absl::StrAppendFormat(
        &svg,
        "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" "
        "stroke-width=\"2\"/><text x=\"%g\" y=\"%g\" fill=\"%s\">%s</text>",
        points, colour, right + 10, 30.0 + 18 * static_cast<double>(index),
        colour, Escape(name));
    ++index;
  }
  return svg + "</svg>\n";
}

}  // namespace

std::string SweepToCsv(const SweepResult& sweep) {
  std::vector<std::string> heading = sweep.fields;
  for (const Column& column : kColumns) heading.push_back(column.name);
  std::string text = absl::StrCat(absl::StrJoin(heading, ","), ",busiest\n");
  for (const SweepPoint& point : sweep.points) {
    for (const std::string& value : point.values) {
      absl::StrAppend(&text, CsvCell(value), ",");
    }
    for (const Column& column : kColumns) {
      absl::StrAppendFormat(&text, "%.9g,", column.value(point.prediction));
    }
    absl::StrAppend(&text, point.prediction.busiest, "\n");
  }
  return text;
}

std::string SweepToJson(const SweepResult& sweep) {
  Json json = Json::array();
  for (const SweepPoint& point : sweep.points) {
    Json row = Json::object();
    for (size_t i = 0; i < sweep.fields.size(); ++i) {
      row[sweep.fields[i]] = point.values[i];
    }
    for (const Column& column : kColumns) {
      row[column.name] = column.value(point.prediction);
    }
    row["busiest"] = point.prediction.busiest;
    json.push_back(std::move(row));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string SweepToHtml(const SweepResult& sweep, absl::string_view title) {
  std::string html = absl::StrCat(
      "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
      Escape(title), "</title>", kStyle, "</head><body><h1>", Escape(title),
      "</h1>\n");
  const size_t x_axis = FindXAxis(sweep);
  if (x_axis < sweep.fields.size() && !sweep.points.empty()) {
    absl::StrAppend(&html, Chart(sweep, x_axis));
  }
  absl::StrAppend(&html, "<table><tr>");
  for (const std::string& field : sweep.fields) {
    absl::StrAppend(&html, "<th>", Escape(field), "</th>");
  }
  for (const Column& column : kColumns) {
    absl::StrAppend(&html, "<th>", column.name, "</th>");
  }
  absl::StrAppend(&html, "<th>busiest</th></tr>\n");
  for (const SweepPoint& point : sweep.points) {
    absl::StrAppend(&html, "<tr>");
    for (const std::string& value : point.values) {
      absl::StrAppend(&html, "<td>", Escape(value), "</td>");
    }
    for (const Column& column : kColumns) {
      absl::StrAppendFormat(&html, "<td>%.4g</td>",
                            column.value(point.prediction));
    }
    absl::StrAppend(&html, "<td>", point.prediction.busiest, "</td></tr>\n");
  }
  return html + "</table></body></html>\n";
}

}  // namespace telegrad
