#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "perf/codec_chunks.h"
#include "perf/measure.h"
#include "perf/options.h"

namespace telegrad::perf {
namespace {

using Operation = CodecChunks::Operation;

struct CodecOptionsOfCommand {
  SpeedOptions speed;
  std::vector<std::string> codecs;  // empty: all
  size_t chunk = size_t{512} << 10;
};

struct OperationCase {
  const char* name;
  Operation operation;
  Traffic traffic;  // with a residual and a narrow payload
};

constexpr OperationCase kOperations[] = {
    {"encode", Operation::kEncode, Traffic::kAdd},
    {"decode", Operation::kDecode, Traffic::kWrite},
    {"decode_add", Operation::kDecodeAdd, Traffic::kUpdate},
    {"sum", Operation::kSum, Traffic::kCopy},
    {"reencode", Operation::kReencode, Traffic::kUpdate},
};

bool IsSparse(const CodecTraits& traits) {
  return std::any_of(traits.options.begin(), traits.options.end(),
                     [](const CodecOption& option) {
                       return option.field == &CodecOptions::density;
                     });
}

// What an operation cannot avoid to move. Elements that a sparse codec did not
// send need not be touched when payloads are added.
double BytesPerElement(Operation operation, const CodecChunks& chunks) {
  const CodecTraits& traits = chunks.codec().traits();
  const double payload = chunks.payload_bytes_per_element();
  const double touched = IsSparse(traits) ? chunks.density() : 1;
  const double sum =
      static_cast<double>(chunks.codec().sum_bytes(kNumPayloads)) /
      static_cast<double>(chunks.codec().num_elems());
  switch (operation) {
    case Operation::kEncode:
      return 4 + (traits.needs_residual ? 8 : 0) +
             2 * chunks.memory_bytes_per_element() + payload;
    case Operation::kDecode:
      return payload + 4;
    case Operation::kDecodeAdd:
      return payload + 8 * touched;
    case Operation::kSum:
      return kNumPayloads * payload + sum;
    case Operation::kReencode:
      return kNumPayloads * payload + 8 + payload;
  }
  return 0;
}

// Payloads of two bytes and more per element are a stream of their own.
Traffic TrafficOf(const OperationCase& each, const CodecChunks& chunks) {
  const bool is_wide = chunks.payload_bytes_per_element() >= 2;
  const bool is_float = chunks.payload_bytes_per_element() >= 4;
  switch (each.operation) {
    case Operation::kEncode:
      if (chunks.codec().traits().needs_residual) return Traffic::kAdd;
      if (!is_wide) return Traffic::kRead;
      return is_float ? Traffic::kCopy : Traffic::kNarrow;
    case Operation::kDecode:
      if (!is_wide) return Traffic::kWrite;
      return is_float ? Traffic::kCopy : Traffic::kWiden;
    case Operation::kDecodeAdd:
      return is_wide ? Traffic::kAdd : Traffic::kUpdate;
    default:
      return each.traffic;
  }
}

std::vector<Peer> PeersOf(Operation operation, CodecChunks& chunks) {
  if (operation == Operation::kEncode &&
      chunks.codec().traits().name == "topk") {
    return {{"byteps_heap", chunks.HeapLoop()}};
  }
  const RangeBody mxnet = chunks.MxnetLoop(operation);
  if (!mxnet) return {};
  return {{"mxnet", mxnet}};
}

absl::Status MeasureChunks(const std::string& text, CodecChunks& chunks,
                           Meter& meter, const SpeedOptions& options) {
  for (const OperationCase& each : kOperations) {
    Job job = {.name = text + "/" + each.name,
               .codec = text,
               .bytes_per_element = BytesPerElement(each.operation, chunks),
               .traffic = TrafficOf(each, chunks),
               .granule = chunks.codec().num_elems(),
               .body = chunks.Loop(each.operation),
               .density = chunks.density()};
    if (!meter.Takes(job.name)) continue;
    job.body(0, job.granule);
    const absl::Status possible = chunks.TakeError();
    if (absl::IsUnimplemented(possible)) continue;
    RETURN_IF_ERROR(possible);
    job.peers = PeersOf(each.operation, chunks);
    for (const int threads : options.threads) {
      Team team(threads);
      meter.Run(job, team, chunks.num_elems());
    }
    RETURN_IF_ERROR(chunks.TakeError());
  }
  return absl::OkStatus();
}

absl::Status RunCodecs(const CodecOptionsOfCommand& options) {
  std::vector<std::string> texts = options.codecs;
  if (texts.empty()) {
    for (const Codec* codec : AllCodecs()) {
      texts.push_back(codec->traits().name);
    }
  }
  Meter meter("codec", options.speed);
  const size_t chunk = std::min(options.chunk, options.speed.elements);
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(text));
    const bool is_wanted =
        absl::c_any_of(kOperations, [&](const OperationCase& each) {
          return meter.Takes(absl::StrCat(text, "/", each.name));
        });
    if (!is_wanted) continue;  // its arrays take seconds to make
    for (const double density : options.speed.densities) {
      ASSIGN_OR_RETURN(const std::unique_ptr<CodecChunks> chunks,
                       CodecChunks::Make(spec, options.speed.elements / chunk,
                                         chunk, density));
      RETURN_IF_ERROR(MeasureChunks(text, *chunks, meter, options.speed));
      if (!spec.codec->traits().needs_threshold) break;
    }
  }
  return meter.Finish();
}

}  // namespace

void AddCodecCommand(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<CodecOptionsOfCommand>();
  AddSpeedFlags(app, options->speed);
  app.add_option("--codec", options->codecs,
                 "codecs with their options: 2bit,topk:0.01; all by default")
      ->delimiter(',');
  app.add_option("--chunk", options->chunk,
                 "elements per chunk, as the trainer")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(size_t{1024}, size_t{1} << 34))
      ->capture_default_str();
  app.callback([options, &exit_code] {
    const absl::Status status = RunCodecs(*options);
    if (status.ok()) return;
    std::fprintf(stderr, "telegrad-perf: %s\n",
                 std::string(status.message()).c_str());
    exit_code = static_cast<int>(absl::IsNotFound(status) ? ExitCode::kUsage
                                                          : ExitCodeOf(status));
  });
}

}  // namespace telegrad::perf
