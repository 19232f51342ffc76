#include "trainer/flags/compression_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "compression/codec_spec.h"
#include "trainer/networks/network.h"

namespace telegrad {
namespace {

void AddCodecFlags(CLI::App& app, RawCompressionFlags& raw) {
  const char* group = "Compression";
  app.add_option("--compare", raw.compare,
                 "settings to run and compare, separated by commas: a codec, "
                 "then +reply=, +packing=, +threshold=, +momentum=, "
                 "+normalize=, "
                 "+update-on=, +min-bytes=, +warmup-steps=, or another flag of "
                 "the run: "
                 "none,2bit+reply=reencode,2bit+local-steps=5+lr=0.1")
      ->group(group);
  app.add_option("--gc-type", raw.gc_type,
                 "codec when --compare is not given; its options follow after "
                 "colons: topk:0.01, int8:block=256; auto: the fastest of "
                 "--gc-allow where and while it makes steps faster, else none")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--gc-threshold", raw.threshold,
         "the threshold of codecs that have one. auto: a power of two "
         "per tensor that follows its scale; a number: in units of the "
         "gradient as pushed (mean over the worker's batch); 0.5:batch: "
         "MXNet's unit (sum over the batch); 2rms: auto, this factor")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--gc-rule", raw.rules,
         "codecs for some tensors, PATTERN=CODEC separated by ';', the "
         "first that matches wins: 'bn|bias=none;fc.*=2bit:auto;*=int8'; "
         "patterns are regular expressions (RE2) searched for in names")
      ->group(group);
  app.add_option("--gc-warmup-steps", raw.warmup_steps,
                 "the first so many steps go dense")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->group(group);
  app.add_option("--gc-momentum", raw.momentum,
                 "nesterov: workers keep the momentum of sgd and nag, or "
                 "--outer-mom, in front of the codec, push it with Nesterov's "
                 "lead, and steps apply none; heavyball: without the lead; "
                 "off: steps apply it. auto: nesterov where a codec has fewer "
                 "than 4 bits and no momentum of its own, else off")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "off", "heavyball", "nesterov"}))
      ->group(group);
  app.add_option("--gc-normalize", raw.normalize,
                 "on: codecs get gradients divided by the root of the mean of "
                 "squares of adam, adamw or muon's adamw, which then steps "
                 "with Nesterov's lead; off: as they are. auto: on where a "
                 "codec is int2, int3 or one of their shared kinds")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "off", "on"}))
      ->group(group);
}

// What else decides what compression does.
void AddPolicyFlags(CLI::App& app, TrainOptions& options,
                    RawCompressionFlags& raw) {
  const char* group = "Compression";
  app.add_option(
         "--gc-allow", raw.gc_allow,
         "codecs that --gc-type auto may use, separated by commas, the "
         "preferred one first: fp16,int8:block=256,2bit. Default: int2, "
         "but int3 with Adam, AdamW and Muon, int4 with RMSProp and where "
         "Adam is on servers")
      ->group(group);
  app.add_flag("--recalibrate", options.recalibrate,
               "measure cores and codecs anew, whatever is "
               "kept in ~/.cache/telegrad")
      ->group(group);
  app.add_option(
         "--gc-guard", raw.guard,
         "on: a tensor whose codec fails its health check goes dense; off: "
         "never")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}))
      ->group(group);
  app.add_flag("--gc-dense-1d", options.gc_dense_1d,
               "tensors of one dimension, biases and normalisation, go dense, "
               "as a --gc-rule before the others")
      ->group(group);
  app.add_option("--gc-min-bytes", raw.min_bytes,
                 "smaller tensors (float32) go dense unless a rule names them")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--gc-reply", raw.reply,
         "servers' replies. sum: exact; reencode: codes, with their own "
         "residual; dense: float32; auto: sum if possible, else reencode")
      ->capture_default_str()
      ->group(group);
  app.add_option("--gc-packing", raw.packing,
                 "2bit's bytes: plain, radix (fewer), auto (by the link)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--gc-nonfinite", raw.nonfinite,
                 "NaN or infinite gradients: error (exit 42), skip (the step, "
                 "by all workers), zero, propagate (as MXNet)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--update-on", raw.update_on,
                 "who runs the optimizer: worker, or server (MXNet's way; "
                 "weights come back dense)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-store", options.kv_store,
                 "who sums what; auto: servers if there are any and they are "
                 "no slower, else allreduce")
      ->capture_default_str()
      ->group(group);
}

// What is wrong with `text`, an item of the list that the flag was given.
absl::Status ExplainItem(const char* flag, const std::string& list,
                         absl::string_view text, const absl::Status& why) {
  if (text.empty()) {
    return OfFlag(flag, absl::StrCat("'", list, "'"),
                  absl::InvalidArgumentError(
                      absl::StrCat("nothing beside a comma: ", why.message())));
  }
  const bool is_option = absl::StrContains(text.substr(0, text.find(':')), '=');
  return OfFlag(
      flag, text,
      absl::Status(why.code(),
                   absl::StrCat(why.message(),
                                is_option ? "; options of a codec have colons "
                                            "between them: qsgd:a=1:b=2"
                                          : "")));
}

}  // namespace

void AddCompressionFlags(CLI::App& app, TrainOptions& options,
                         RawCompressionFlags& raw) {
  AddCodecFlags(app, raw);
  AddPolicyFlags(app, options, raw);
}

absl::Status FillSettings(const RawCompressionFlags& raw,
                          TrainOptions& options) {
  Setting base;
  CompressionConfig& gc = base.compression;
  gc.batch_size = options.batch_size;
  ASSIGN_OR_RETURN(gc.threshold,
                   OfFlag("--gc-threshold", ParseThreshold(raw.threshold)));
  base.threshold = raw.threshold;
  RETURN_IF_ERROR(ParseAllowedCodecs("--gc-allow", raw.gc_allow, gc));
  ASSIGN_OR_RETURN(gc.min_bytes, OfFlag("--gc-min-bytes", raw.min_bytes,
                                        ParseBytes(raw.min_bytes)));
  gc.rules = raw.rules;
  if (options.gc_dense_1d) {
    gc.rules =
        absl::StrCat(kOneDimension, raw.rules.empty() ? "" : ";", raw.rules);
  }
  gc.warmup_steps = raw.warmup_steps;
  gc.has_guard = raw.guard == "on";
  ASSIGN_OR_RETURN(gc.reply, OfFlag("--gc-reply", ParseReplyMode(raw.reply)));
  ASSIGN_OR_RETURN(gc.packing,
                   OfFlag("--gc-packing", ParsePackingMode(raw.packing)));
  ASSIGN_OR_RETURN(gc.nonfinite, OfFlag("--gc-nonfinite",
                                        ParseNonFinitePolicy(raw.nonfinite)));
  if (raw.momentum != "auto") {
    ASSIGN_OR_RETURN(base.momentum,
                     OfFlag("--gc-momentum", ParsePushMomentum(raw.momentum)));
  }
  if (raw.normalize != "auto") base.normalize = raw.normalize == "on";
  ASSIGN_OR_RETURN(base.update_on,
                   OfFlag("--update-on", ParseUpdateOn(raw.update_on)));
  RETURN_IF_ERROR(OfFlag("--gc-rule", CheckCodecRules(raw.rules)));
  const bool compares = options.has_comparison;
  const std::string& list = compares ? raw.compare : raw.gc_type;
  const char* const flag = compares ? "--compare" : "--gc-type";
  for (const absl::string_view text : absl::StrSplit(list, ',')) {
    absl::StatusOr<Setting> setting = ParseSetting(text, base);
    if (!setting.ok()) return ExplainItem(flag, list, text, setting.status());
    options.settings.push_back(*std::move(setting));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
