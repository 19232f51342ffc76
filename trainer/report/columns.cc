#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/report/groups.h"

// The columns of the closing table.
namespace telegrad {
namespace {

struct Column {
  TableColumn head;
  std::function<std::string(const SettingGroup&)> cell;
};
using Columns = std::vector<Column>;

struct ByteUnit {
  const char* name;
  double bytes;
};

ByteUnit UnitFor(double largest) {
  if (largest >= 1e9) return {"GB", 1e9};
  if (largest >= 1e6) return {"MB", 1e6};
  return {"kB", 1e3};
}

// Three significant digits, never an exponent; "-" for what is not there.
std::string Figure(double value) {
  if (!(value > 0) || !std::isfinite(value)) return "-";
  const int places = value < 0.1 ? 4 : value < 1 ? 3 : value < 10 ? 2 : 1;
  return absl::StrFormat("%.*f", value < 100 ? places : 0, value);
}

std::string Times(double value, double divisor) {
  if (!(value > 0) || !(divisor > 0)) return "-";
  return absl::StrFormat("%.2f", value / divisor);
}

std::string AccuracyCell(const SettingGroup& group) {
  if (!group.has_accuracy) return "-";
  std::string text = absl::StrFormat("%.2f", group.accuracy * 100);
  if (group.runs.size() > 1) {
    absl::StrAppendFormat(&text, " ±%.2f", group.accuracy_spread * 100);
  }
  return text;
}

std::string DifferenceCell(const SettingGroup& group,
                           const SettingGroup* none) {
  if (none == nullptr || none == &group || !group.has_accuracy) return "-";
  const PairedDifference difference = AccuracyDifference(group, *none);
  if (difference.num_pairs == 0) return "-";
  std::string text = absl::StrFormat("%+.2f", difference.mean * 100);
  if (difference.num_pairs > 1) {
    absl::StrAppendFormat(&text, " ±%.2f", difference.half_width * 100);
  }
  return text;
}

void AddAccuracy(const SettingGroup* none, Columns& columns) {
  columns.push_back({{"test set", "accuracy %"}, AccuracyCell});
  columns.push_back({{"test set", "to none"}, [none](const SettingGroup& g) {
                       return DifferenceCell(g, none);
                     }});
  columns.push_back({{"test set", "loss"}, [](const SettingGroup& g) {
                       return g.has_accuracy ? absl::StrFormat("%.4f", g.loss)
                                             : "-";
                     }});
}

void AddDirection(const std::string& head, double SettingGroup::*raw,
                  double SettingGroup::*wire, ByteUnit unit, Columns& columns) {
  columns.push_back({{head, "wire"}, [wire, unit](const SettingGroup& g) {
                       return Figure(g.*wire / unit.bytes);
                     }});
  columns.push_back({{head, "ratio"}, [raw, wire](const SettingGroup& g) {
                       return Times(g.*raw, g.*wire);
                     }});
}

void AddBytes(const std::vector<SettingGroup>& groups, Columns& columns) {
  double largest = 0;
  for (const SettingGroup& group : groups) {
    largest = std::max({largest, group.push_raw, group.pull_raw});
  }
  const ByteUnit unit = UnitFor(largest);
  const std::string rest = absl::StrCat(", ", unit.name, "/step");
  // As much is pulled as is pushed.
  columns.push_back({{"push" + rest, "raw"}, [unit](const SettingGroup& g) {
                       return Figure(g.push_raw / unit.bytes);
                     }});
  AddDirection("push" + rest, &SettingGroup::push_raw, &SettingGroup::push_wire,
               unit, columns);
  AddDirection("pull" + rest, &SettingGroup::pull_raw, &SettingGroup::pull_wire,
               unit, columns);
  columns.push_back({{"both", "ratio"}, [](const SettingGroup& g) {
                       return Times(g.push_raw + g.pull_raw,
                                    g.push_wire + g.pull_wire);
                     }});
  const bool have_gpus = std::ranges::any_of(
      groups, [](const SettingGroup& group) { return group.from_device > 0; });
  if (!have_gpus) return;
  for (const auto& [way, bytes] :
       {std::pair("to GPUs", &SettingGroup::to_device),
        std::pair("to hosts", &SettingGroup::from_device)}) {
    columns.push_back(
        {{"bus" + rest, way}, [bytes, unit](const SettingGroup& g) {
           return Figure(g.*bytes / unit.bytes);
         }});
  }
}

void AddTimes(bool has_accuracy, bool has_samples, bool has_link,
              Columns& columns) {
  const auto add = [&columns](const char* name, auto cell) {
    columns.push_back({{"time", name}, cell});
  };
  if (!has_accuracy) {
    add("min ms",
        [](const SettingGroup& g) { return Figure(g.step_min_s * 1e3); });
  }
  add(has_accuracy ? "step ms" : "p50 ms",
      [](const SettingGroup& g) { return Figure(g.step_s * 1e3); });
  if (has_link) {
    add("limit ms",
        [](const SettingGroup& g) { return Figure(g.byte_limit_s * 1e3); });
    add("x limit",
        [](const SettingGroup& g) { return Times(g.step_s, g.byte_limit_s); });
  }
  if (has_samples && !has_accuracy) {
    add("samples/s", [](const SettingGroup& g) {
      return absl::StrFormat("%.*f", g.samples_per_s < 10 ? 2 : 0,
                             g.samples_per_s);
    });
  }
  add("wait %", [](const SettingGroup& g) {
    return absl::StrFormat("%.1f", g.wait_share * 100);
  });
}

void AddMemory(const std::vector<SettingGroup>& groups, Columns& columns) {
  double largest = 0;
  for (const SettingGroup& group : groups) {
    largest = std::max(largest, static_cast<double>(group.model_bytes));
  }
  const ByteUnit unit = UnitFor(largest);
  const std::string head = absl::StrCat("memory, ", unit.name);
  const auto add = [&](const char* name, int64_t SettingGroup::*bytes) {
    columns.push_back({{head, name}, [bytes, unit](const SettingGroup& g) {
                         return Figure(static_cast<double>(g.*bytes) /
                                       unit.bytes);
                       }});
  };
  add("model", &SettingGroup::model_bytes);
  add("worker", &SettingGroup::worker_peak_bytes);
  add("server", &SettingGroup::server_peak_bytes);
}

}  // namespace

TableCells MakeTable(const std::vector<SettingGroup>& groups) {
  const auto any = [&groups](double SettingGroup::*value) {
    return std::any_of(groups.begin(), groups.end(),
                       [value](const SettingGroup& g) { return g.*value > 0; });
  };
  const bool has_accuracy = HaveAccuracy(groups);
  Columns columns = {
      {{"", "setting"}, [](const SettingGroup& g) { return g.setting; }}};
  if (has_accuracy) AddAccuracy(FindNone(groups), columns);
  AddBytes(groups, columns);
  AddTimes(has_accuracy, any(&SettingGroup::samples_per_s),
           any(&SettingGroup::byte_limit_s), columns);
  if (!has_accuracy) AddMemory(groups, columns);
  TableCells table = {absl::StrCat(DescribeRuns(groups),
                                   "; bytes of all workers, with headers"),
                      {},
                      {}};
  for (const Column& column : columns) table.columns.push_back(column.head);
  for (const SettingGroup& group : groups) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const Column& column : columns) row.push_back(column.cell(group));
  }
  return table;
}

}  // namespace telegrad
