#include "perf/network/report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "perf/network/page.h"
#include "perf/network/sizes.h"

namespace telegrad::perf {
namespace {

std::string JsonLine(const NetworkRow& row, const NetworkOptions& options,
                     const TransportInfo& transport) {
  nlohmann::ordered_json line;
  line["what"] = row.what;
  line["transport"] = transport.name;
  line["tls"] = options.path.transport.tls;
  line["details"] = transport.details;
  line["link"] = options.link;
  line["ranks"] = row.ranks;
  line["algorithm"] = row.algorithm;
  if (!row.profile.empty()) line["profile"] = row.profile;
  line["size_bytes"] = row.size_bytes;
  line["iterations"] = row.result.iterations;
  line["p50_us"] = row.result.p50_us;
  line["p99_us"] = row.result.p99_us;
  line["min_us"] = row.result.min_us;
  line["max_us"] = row.result.max_us;
  line["algbw_GBps"] = row.algbw_GBps();
  line["busbw_GBps"] = row.busbw_GBps();
  if (row.messages > 0) {
    line["messages_per_s"] = row.messages / row.result.p50_us * 1e6;
  }
  line["raw_bytes"] = row.raw_bytes;
  line["wire_bytes"] = row.wire_bytes;
  // Checking costs time of its own.
  line["cpu_ns_per_byte"] = nullptr;
  if (row.bytes_moved > 0 && row.checked == "no") {
    line["cpu_ns_per_byte"] = row.result.cpu_s * 1e9 / row.bytes_moved;
  }
  line["checked"] = row.checked;
  if (options.lists_times) line["times_us"] = row.result.times_us;
  for (const auto& [name, value] : row.settings) {
    std::visit([&](const auto& each) { line[name] = each; }, value);
  }
  return line.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

std::string TableLine(const NetworkRow& row) {
  std::string line = absl::StrFormat(
      "%10s %7d %11.2f %11.2f %11.2f %9.3f %9.3f %12.0f",
      row.profile.empty() ? FormatSize(row.size_bytes) : row.profile,
      row.result.iterations, row.result.min_us, row.result.p50_us,
      row.result.p99_us, row.algbw_GBps(), row.busbw_GBps(), row.wire_bytes);
  if (row.messages > 0) {
    absl::StrAppendFormat(&line, " %11.0f",
                          row.messages / row.result.p50_us * 1e6);
  }
  return absl::StrCat(line, "  ", row.algorithm,
                      row.checked == "no" ? "" : ", checked: ",
                      row.checked == "no" ? "" : row.checked);
}

}  // namespace

// Bytes in a microsecond are megabytes in a second.
double NetworkRow::algbw_GBps() const {
  return result.p50_us > 0 ? bytes_moved / result.p50_us / 1e3 : 0;
}
double NetworkRow::busbw_GBps() const { return algbw_GBps() * bus_factor; }

Report::Report(const NetworkOptions& options, std::string heading)
    : options_(options), heading_(std::move(heading)) {}

void Report::Add(const NetworkRow& row, const TransportInfo& transport) {
  transport_ = absl::StrCat(transport.name, ": ", transport.details);
  if (options_.json) {
    absl::PrintF("%s\n", JsonLine(row, options_, transport));
  } else {
    if (rows_.empty()) {
      absl::PrintF("# %s, %d ranks, %s\n# link %s, %d iterations to warm up\n",
                   heading_, row.ranks,
                   transport_.substr(0, transport_.find(", set by us")),
                   options_.link, options_.warmup);
      absl::PrintF("%10s %7s %11s %11s %11s %9s %9s %12s%s  algorithm\n",
                   "bytes", "iters", "min us", "p50 us", "p99 us", "algGB/s",
                   "busGB/s", "wire", row.messages > 0 ? "  messages/s" : "");
    }
    absl::PrintF("%s\n", TableLine(row));
  }
  std::fflush(stdout);
  rows_.push_back(row);
}

absl::Status Report::Finish() const {
  if (options_.html.empty()) return absl::OkStatus();
  std::ofstream file(options_.html, std::ios::trunc);
  file << HtmlPage(heading_, transport_, options_.command_line, rows_);
  file.close();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("cannot write --html ", options_.html));
}

}  // namespace telegrad::perf
