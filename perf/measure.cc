#include "perf/measure.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/median.h"
#include "kernels/dispatch.h"
#include "kernels/prefetch.h"
#include "perf/workload.h"

namespace telegrad::perf {
namespace {

// Seconds of each loop: medians over interleaved rounds, after one to warm up.
std::vector<double> TimeInterleaved(const std::vector<RangeBody>& loops,
                                    Team& team, size_t elements, size_t granule,
                                    int repeats) {
  std::vector<std::vector<double>> seconds(loops.size());
  for (int round = -1; round < repeats; ++round) {
    for (size_t i = 0; i < loops.size(); ++i) {
      const double took = team.Run(elements, granule, loops[i]);
      if (round >= 0) seconds[i].push_back(took);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& each : seconds) {
    medians.push_back(Median(each));
  }
  return medians;
}

// Every row has all fields: null where there is nothing.
std::string CeilingFields(const Job& job, const Row& row) {
  if (row.ceiling_bytes_per_s <= 0) {
    return R"(,"traffic":null,"ceiling":null,"ceiling_GBps":null,)"
           R"("share_of_ceiling":null)";
  }
  return absl::StrFormat(
      R"(,"traffic":"%s","ceiling":"%s","ceiling_GBps":%.4g,)"
      R"("share_of_ceiling":%.4g)",
      TrafficName(job.traffic), row.ceiling, row.ceiling_bytes_per_s / 1e9,
      row.elements_per_s * job.bytes_per_element / row.ceiling_bytes_per_s);
}

std::string PeerFields(const Row& row) {
  if (row.peers.empty()) return R"(,"peer":null,"peer_elements_per_s":null)";
  const auto& [first, first_rate] = row.peers.front();
  std::string fields = absl::StrFormat(
      R"(,"peer":"%s","peer_elements_per_s":%.4g)", first, first_rate);
  for (size_t i = 1; i < row.peers.size(); ++i) {
    const auto& [name, rate] = row.peers[i];
    absl::StrAppendFormat(&fields, R"(,"%s_elements_per_s":%.4g)", name, rate);
  }
  return fields;
}

std::string JsonLine(const Job& job, const Row& row) {
  return absl::StrFormat(
      R"({"what":"%s","name":"%s","codec":"%s","kernels":"%s","elements":%d,)"
      R"("threads":%d,"elements_per_s":%.4g,"bytes_per_element":%.4g,)"
      R"("GBps":%.4g,"prefetch":%d,"density":%s%s%s})"
      "\n",
      row.what, job.name, job.codec, row.kernels, row.elements, row.threads,
      row.elements_per_s, job.bytes_per_element,
      row.elements_per_s * job.bytes_per_element / 1e9,
      kernels::PrefetchBytes(),
      job.density < 0 ? "null" : absl::StrFormat("%.4g", job.density),
      CeilingFields(job, row), PeerFields(row));
}

}  // namespace

Meter::Meter(std::string what, const SpeedOptions& options)
    : what_(std::move(what)),
      options_(options),
      source_(NormalGradient(options.elements)),
      destination_(NormalGradient(options.elements)) {}

bool Meter::Takes(const std::string& name) const {
  return name.find(options_.filter) != std::string::npos;
}

absl::Status Meter::Finish() const {
  if (has_rows_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--filter ", options_.filter,
                   ": no name has this part; without it all are measured"));
}

std::vector<RangeBody> Meter::Loops(const Job& job) {
  std::vector<RangeBody> loops = {job.body};
  for (const Peer& peer : job.peers) loops.push_back(peer.body);
  const float* s = source_.as<float>();
  float* d = destination_.as<float>();
  for (const CeilingVariant& variant : CeilingVariants(job.traffic)) {
    loops.push_back([run = variant.run, s, d](size_t begin, size_t count) {
      run(s + begin, d + begin, count);
    });
  }
  return loops;
}

void Meter::Run(const Job& job, Team& team, size_t elements) {
  const std::vector<double> seconds = TimeInterleaved(
      Loops(job), team, elements, job.granule, options_.repeats);
  const auto n = static_cast<double>(elements);
  Row row = {.what = what_,
             .kernels = kernels::CpuKernels().name,
             .elements = elements,
             .threads = team.num_threads(),
             .elements_per_s = n / seconds[0]};
  size_t loop = 1;
  for (const Peer& peer : job.peers) {
    row.peers.emplace_back(peer.name, n / seconds[loop++]);
  }
  for (const CeilingVariant& variant : CeilingVariants(job.traffic)) {
    const double rate =
        n * TrafficBytesPerElement(job.traffic) / seconds[loop++];
    if (rate > row.ceiling_bytes_per_s) {
      row.ceiling_bytes_per_s = rate;
      row.ceiling = variant.name;
    }
  }
  Print(job, row);
  has_rows_ = true;
}

void Meter::Print(const Job& job, const Row& row) {
  if (options_.json) {
    std::fputs(JsonLine(job, row).c_str(), stdout);
    std::fflush(stdout);
    return;
  }
  if (!has_rows_) {
    absl::PrintF("%-28s %3s %7s %8s %7s %7s %9s %6s  %s\n", row.what, "thr",
                 "density", "Melt/s", "B/elt", "GB/s", "ceiling", "share",
                 "times faster than");
  }
  const double rate = row.elements_per_s * job.bytes_per_element;
  std::string line = absl::StrFormat(
      "%-28s %3d %7s %8.0f %7.3f %7.2f", job.name, row.threads,
      job.density < 0 ? "" : absl::StrFormat("%.3f", job.density),
      row.elements_per_s / 1e6, job.bytes_per_element, rate / 1e9);
  if (row.ceiling_bytes_per_s > 0) {
    absl::StrAppendFormat(&line, " %9.2f %5.1f%%  %s %s",
                          row.ceiling_bytes_per_s / 1e9,
                          100 * rate / row.ceiling_bytes_per_s,
                          TrafficName(job.traffic), row.ceiling);
  }
  for (const auto& [name, peer_rate] : row.peers) {
    absl::StrAppendFormat(&line, ", %s %.2f", name,
                          row.elements_per_s / peer_rate);
  }
  absl::PrintF("%s\n", line);
  std::fflush(stdout);
}

}  // namespace telegrad::perf
