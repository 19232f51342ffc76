#include "kvstore/engine/codec/codec_policy.h"

#include <re2/re2.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr int64_t kRegexMemory = 1 << 20;  // bytes of RE2, per pattern

absl::StatusOr<std::unique_ptr<re2::RE2>> Compile(absl::string_view pattern) {
  if (pattern == "*") return nullptr;
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_max_mem(kRegexMemory);
  auto compiled = std::make_unique<re2::RE2>(std::string(pattern), options);
  if (compiled->ok()) return compiled;
  return absl::InvalidArgumentError(
      absl::StrCat("codec rule: pattern '", pattern, "': ", compiled->error()));
}

// Whether nothing is kept between steps and nothing agreed: each push may have
// other rows.
bool FitsRows(const CodecSpec& spec) {
  const CodecTraits& traits = spec.codec->traits();
  if (traits.lossless || traits.needs_threshold || traits.summable ||
      !traits.constant_width) {
    return false;
  }
  if (!traits.needs_residual) return true;
  return spec.options.residual == 0 &&
         absl::c_any_of(traits.options, [](const CodecOption& option) {
           return option.field == &CodecOptions::residual;
         });
}

}  // namespace

absl::StatusOr<JobCodec> ParseJobCodec(absl::string_view text,
                                       PackingMode packing) {
  ASSIGN_OR_RETURN(CodecSpec parsed, ParseCodecSpec(text));
  JobCodec spec{std::move(parsed), std::string(text)};
  for (const CodecOption& option : spec.codec->traits().options) {
    if (option.field == &CodecOptions::packing &&
        !absl::StrContains(text, absl::StrCat(option.name, "="))) {
      spec.options.packing = packing == PackingMode::kRadix ? 1 : 0;
    }
  }
  return spec;
}

CodecPolicy::CodecPolicy() = default;
CodecPolicy::CodecPolicy(CodecPolicy&&) noexcept = default;
CodecPolicy& CodecPolicy::operator=(CodecPolicy&&) noexcept = default;
CodecPolicy::~CodecPolicy() = default;

absl::StatusOr<CodecChoice> CodecPolicy::Choose(const TensorSpec& tensor) {
  ASSIGN_OR_RETURN(CodecChoice choice, ChooseWhole(tensor));
  if (tensor.row_elems == 0) return choice;
  const JobCodec& wanted = *choice.specs.front();
  CodecChoice dense{.specs = {&dense_}, .reason = "has rows"};
  if (wanted.codec->traits().lossless) return dense;
  const std::string& name = wanted.codec->traits().name;
  if (!FitsRows(wanted)) {
    absl::StrAppend(&dense.reason, "; ", name, " keeps or agrees something");
  } else if (!is_constant_) {
    absl::StrAppend(&dense.reason, "; codecs change while the job runs");
  } else {
    absl::StrAppend(&dense.reason, ", these by ", wanted.text);
    dense.rows = &wanted;
  }
  return dense;
}

absl::StatusOr<CodecChoice> CodecPolicy::ChooseWhole(const TensorSpec& tensor) {
  if (!tensor.codec.empty()) {
    auto own = own_.find(tensor.codec);
    if (own == own_.end()) {
      ASSIGN_OR_RETURN(JobCodec codec, ParseJobCodec(tensor.codec, packing_));
      own = own_.emplace(tensor.codec, std::move(codec)).first;
    }
    return CodecChoice{
        .specs = {&own->second}, .has_rule = true, .reason = "the plan"};
  }
  for (const Rule& rule : rules_) {
    if (rule.pattern == nullptr ||
        re2::RE2::PartialMatch(tensor.name, *rule.pattern)) {
      return CodecChoice{.specs = {&rule.spec},
                         .has_rule = true,
                         .reason = absl::StrCat("rule ", rule.text)};
    }
  }
  const auto bytes = static_cast<int64_t>(4 * tensor.num_elems);
  if (bytes < min_bytes_ && !types_[0].codec->traits().lossless) {
    return CodecChoice{.specs = {&dense_},
                       .reason = absl::StrCat("below ", min_bytes_, " bytes")};
  }
  CodecChoice choice{.reason = absl::StrCat("type ", type_text_)};
  for (const JobCodec& spec : types_) choice.specs.push_back(&spec);
  return choice;
}

std::vector<const JobCodec*> CodecPolicy::specs() const {
  std::vector<const JobCodec*> specs;
  for (const JobCodec& spec : types_) specs.push_back(&spec);
  for (const Rule& rule : rules_) specs.push_back(&rule.spec);
  return specs;
}

absl::StatusOr<CodecPolicy> MakeCodecPolicy(const CompressionConfig& config) {
  CodecPolicy policy;
  if (config.alternatives.size() > kMaxAlternatives) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.alternatives.size(), " alternatives to codec ",
                     config.type, "; at most ", kMaxAlternatives));
  }
  const std::vector<std::string> types = config.types();
  for (const std::string& text : types) {
    ASSIGN_OR_RETURN(policy.types_.emplace_back(),
                     ParseJobCodec(text, config.packing));
  }
  ASSIGN_OR_RETURN(policy.dense_, ParseJobCodec("none", PackingMode::kPlain));
  policy.type_text_ = absl::StrJoin(types, " or ");
  policy.min_bytes_ = config.min_bytes;
  policy.packing_ = config.packing;
  policy.is_constant_ = config.alternatives.empty() && !config.starts_dense &&
                        config.warmup_steps == 0;
  if (config.rules.size() > kMaxRulesBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec rules of ", config.rules.size(), " bytes; at most ",
                     kMaxRulesBytes));
  }
  for (const char c : config.rules) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) continue;
    return absl::InvalidArgumentError(
        "codec rules hold a character that is not printable ASCII");
  }
  for (const absl::string_view part : absl::StrSplit(config.rules, ';')) {
    const absl::string_view text = absl::StripAsciiWhitespace(part);
    if (text.empty()) continue;
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "codec rule '", text, "' is not PATTERN=CODEC, as in bias=none"));
    }
    CodecPolicy::Rule rule{
        .text = std::string(text), .pattern = {}, .spec = {}};
    ASSIGN_OR_RETURN(rule.pattern, Compile(text.substr(0, equals)));
    ASSIGN_OR_RETURN(rule.spec,
                     ParseJobCodec(text.substr(equals + 1), config.packing));
    policy.rules_.push_back(std::move(rule));
  }
  return policy;
}

absl::Status CheckCodecRules(absl::string_view rules) {
  CompressionConfig config;
  config.rules = std::string(rules);
  return MakeCodecPolicy(config).status();
}

}  // namespace telegrad
