#include "kvstore/forecast.h"

#include "base/status_macros.h"
#include "kvstore/engine/codec/reply_format.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/ps/wire/wire.h"

namespace telegrad {
namespace {

absl::StatusOr<TensorForecast> ForecastOf(const TensorSpec& tensor,
                                          const TensorLayout& layout,
                                          const ForecastRequest& request) {
  const CodecSetting& setting = layout.codecs.front();
  const CodecTraits& traits = setting.codec->traits();
  const ReplyFormat format =
      FormatOf(traits, request.compression, {.update_on = request.update_on});
  TensorForecast forecast{.num_chunks = layout.chunks.size()};
  size_t reply_bytes = 0;
  for (const Chunk& chunk : layout.chunks) {
    ASSIGN_OR_RETURN(
        const auto codec,
        setting.codec->Prepare(chunk.num_elems, Device{}, setting.options));
    forecast.report.push_bytes += codec->max_encoded_bytes();
    reply_bytes += ReplyBytes(*codec, format, request.num_workers);
  }
  TensorReport& report = forecast.report;
  report.name = tensor.name;
  report.num_elems = tensor.num_elems;
  report.codec = traits.name;
  report.setting = layout.setting;
  report.has_rule = layout.has_rule;
  report.reason = layout.reason;
  report.reply = ToString(format);
  const size_t headers = kFrameHeaderBytes * forecast.num_chunks;
  const size_t floats = 4 * tensor.num_elems;
  const bool has_momentum = tensor.has_momentum &&
                            request.compression.momentum != PushMomentum::kNone;
  forecast.push_wire = report.push_bytes + headers;
  forecast.pull_wire = reply_bytes + headers;
  forecast.worker_memory = forecast.push_wire + forecast.pull_wire +
                           (traits.needs_residual ? floats : 0) +
                           (has_momentum ? floats : 0);
  forecast.server_memory =
      static_cast<size_t>(request.num_workers) * forecast.push_wire +
      forecast.pull_wire + (format == ReplyFormat::kReencode ? floats : 0) +
      (request.update_on == UpdateOn::kServer ? 2 * floats : 0);
  return forecast;
}

}  // namespace

absl::StatusOr<std::vector<TensorForecast>> ForecastCompression(
    std::span<const TensorSpec> tensors, const ForecastRequest& request) {
  ASSIGN_OR_RETURN(const std::vector<TensorLayout> layouts,
                   MakeShardPlan(tensors, request.num_servers,
                                 request.chunk_elems, request.compression));
  std::vector<TensorForecast> forecasts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSIGN_OR_RETURN(forecasts.emplace_back(),
                     ForecastOf(tensors[i], layouts[i], request));
  }
  return forecasts;
}

}  // namespace telegrad
