#include "kvstore/tuning/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kvstore/job/path/gather_numbers.h"
#include "kvstore/store_link.h"

namespace telegrad {
namespace {

constexpr double kLeastGain = 0.05;  // a part of an exchange

double ExchangeSeconds(std::span<const int64_t> tensor_elems,
                       const ClusterCost& cluster, size_t chunk_elems,
                       const CodecCost& codec) {
  const Pipeline pipeline =
      MakePipeline(Aggregation::kDedicatedServers, cluster, codec);
  std::vector<TensorCost> tensors;
  for (const int64_t elems : tensor_elems) {
    tensors.push_back({.pipeline = &pipeline,
                       .elems = elems,
                       .chunk_elems = static_cast<int64_t>(chunk_elems)});
  }
  return FinishSeconds(tensors);
}

// Servers take part in what was measured, so they are no limit of their own.
ClusterCost ClusterOf(KVStore& store, const PackingOptions& options) {
  ClusterCost cluster{.workers = store.group().num_pushers(),
                      .servers = store.group().num_servers(),
                      .cores = static_cast<double>(std::max(1, options.cores)),
                      .bytes_per_s = std::min(options.link.send.value,
                                              options.link.receive.value) /
                                     store.link()->load(),
                      .latency_s = options.link.latency_s.value};
  cluster.server_bytes_per_s =
      cluster.bytes_per_s * cluster.workers / std::max(cluster.servers, 1);
  return cluster;
}

// The one codec that has packings.
absl::StatusOr<CodecFigures> MeasurePacking(KVStore& store,
                                            const PackingOptions& options,
                                            int64_t num_elems,
                                            PackingMode mode) {
  CalibrationOptions calibration;
  calibration.num_elems = CalibrationElems(static_cast<size_t>(num_elems));
  calibration.num_workers = store.group().num_pushers();
  calibration.cache = options.cache;
  CompressionConfig compression = options.compression;
  compression.packing = mode;
  return options.measure_codec("2bit", compression, calibration);
}

}  // namespace

absl::StatusOr<PackingDecision> DecidePacking(
    std::span<const int64_t> tensor_elems, const ClusterCost& cluster,
    size_t chunk_elems, const CodecFigures& plain, const CodecFigures& radix) {
  ASSIGN_OR_RETURN(const CodecCost plain_cost, CostOf(plain, cluster));
  ASSIGN_OR_RETURN(const CodecCost radix_cost, CostOf(radix, cluster));
  const double plain_s =
      ExchangeSeconds(tensor_elems, cluster, chunk_elems, plain_cost);
  const double radix_s =
      ExchangeSeconds(tensor_elems, cluster, chunk_elems, radix_cost);
  const bool is_radix = radix_s <= (1 - kLeastGain) * plain_s;
  return PackingDecision{
      .mode = is_radix ? PackingMode::kRadix : PackingMode::kPlain,
      .reason = absl::StrFormat(
          "exchange of %.3g ms predicted, %.3g ms with %s; link %.3g Gb/s for "
          "a worker, encoding %.3g G elements/s plain, %.3g G radix",
          1e3 * (is_radix ? radix_s : plain_s),
          1e3 * (is_radix ? plain_s : radix_s), is_radix ? "plain" : "radix",
          8e-9 * cluster.bytes_per_s, 1e-9 * plain.encode.value,
          1e-9 * radix.encode.value)};
}

absl::StatusOr<std::optional<PackingDecision>> SettlePacking(
    KVStore& store, const PackingOptions& options) {
  if (store.codecs().packing() != PackingMode::kAuto) return std::nullopt;
  std::vector<int64_t> elems;
  for (const TensorReport& report : store.codecs().Report()) {
    if (report.packing != "open") continue;
    elems.push_back(static_cast<int64_t>(report.num_elems));
  }
  const int64_t num_elems =
      std::accumulate(elems.begin(), elems.end(), int64_t{0});
  CodecFigures plain;
  CodecFigures radix;
  std::vector<SlowestNumber> numbers;
  for (auto [mode, figures] : {std::pair{PackingMode::kPlain, &plain},
                               {PackingMode::kRadix, &radix}}) {
    ASSIGN_OR_RETURN(*figures, MeasurePacking(store, options, num_elems, mode));
    AppendNumbers(*figures, &numbers);
  }
  RETURN_IF_ERROR(GatherSlowest(store.group(), "packing-speeds", numbers));
  ASSIGN_OR_RETURN(PackingDecision decision,
                   DecidePacking(elems, ClusterOf(store, options),
                                 options.chunk_elems, plain, radix));
  // Settings that need not be equal, as the number of threads, are worker 0's.
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      store.group().Gather("packing", absl::StrCat(ToString(decision.mode),
                                                   ": ", decision.reason)));
  const size_t colon = std::min(all[0].find(": "), all[0].size());
  ASSIGN_OR_RETURN(decision.mode, ParsePackingMode(all[0].substr(0, colon)));
  decision.reason = all[0].substr(std::min(colon + 2, all[0].size()));
  RETURN_IF_ERROR(store.codecs().SetPacking(decision.mode));
  return std::optional(std::move(decision));
}

}  // namespace telegrad
