#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compression/codec_spec.h"
#include "kvstore/options.h"

namespace re2 {
class RE2;
}

namespace telegrad {

struct JobCodec : CodecSpec {
  std::string text = {};
};
// By the codec's text and the job's packing, where the text says none; kAuto is
// plain. Errors as ParseCodecSpec.
absl::StatusOr<JobCodec> ParseJobCodec(absl::string_view text,
                                       PackingMode packing);

// Which codec a tensor gets, which may replace it, and why.
struct CodecChoice {
  std::vector<const JobCodec*> specs = {};  // its own first
  // The codec for values of single rows; null: they travel as floats.
  const JobCodec* rows = nullptr;
  bool has_rule = false;
  std::string reason = {};
};

// CompressionConfig's type, alternatives, rules and min_bytes, ready to be
// asked. Precedence: the tensor's own codec, then a rule, then the smallest
// size, then the type, which alone has alternatives. A tensor with rows goes
// dense; its codec is that of its rows, where it keeps nothing between steps.
class CodecPolicy {
 public:
  CodecPolicy();
  CodecPolicy(CodecPolicy&&) noexcept;
  CodecPolicy& operator=(CodecPolicy&&) noexcept;
  ~CodecPolicy();

  // Lives as long as the policy. Errors are of the tensor's own codec.
  absl::StatusOr<CodecChoice> Choose(const TensorSpec& tensor);
  // The type's, the alternatives' and the rules' codecs.
  std::vector<const JobCodec*> specs() const;

 private:
  friend absl::StatusOr<CodecPolicy> MakeCodecPolicy(
      const CompressionConfig& config);
  struct Rule {
    std::string text;
    std::unique_ptr<re2::RE2> pattern;  // null: every name
    JobCodec spec;
  };
  absl::StatusOr<CodecChoice> ChooseWhole(const TensorSpec& tensor);

  std::vector<Rule> rules_;
  std::vector<JobCodec> types_;  // the type, then alternatives
  JobCodec dense_;
  // Codecs that tensors name themselves, by text.
  std::map<std::string, JobCodec> own_;
  PackingMode packing_ = PackingMode::kPlain;
  std::string type_text_;
  int64_t min_bytes_ = 0;
  bool is_constant_ = true;  // no codec changes while the job runs
};

// InvalidArgument or NotFound names the part that is wrong.
constexpr size_t kMaxRulesBytes = 4096;
absl::StatusOr<CodecPolicy> MakeCodecPolicy(const CompressionConfig& config);

}  // namespace telegrad
