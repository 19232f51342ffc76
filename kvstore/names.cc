#include "absl/strings/str_cat.h"
#include "kvstore/kvstore.h"

namespace telegrad {
namespace {

template <typename T>
struct Named {
  T value;
  const char* text;
};

constexpr Named<ReplyMode> kReplyModes[] = {{ReplyMode::kSum, "sum"},
                                            {ReplyMode::kReencode, "reencode"},
                                            {ReplyMode::kAuto, "auto"},
                                            {ReplyMode::kDense, "dense"}};
constexpr Named<NonFinitePolicy> kPolicies[] = {
    {NonFinitePolicy::kError, "error"},
    {NonFinitePolicy::kSkip, "skip"},
    {NonFinitePolicy::kZero, "zero"},
    {NonFinitePolicy::kPropagate, "propagate"}};
constexpr Named<UpdateOn> kUpdateOns[] = {{UpdateOn::kWorker, "worker"},
                                          {UpdateOn::kServer, "server"}};
constexpr Named<OptimizerKind> kOptimizers[] = {
    {OptimizerKind::kSgd, "sgd"},         {OptimizerKind::kNag, "nag"},
    {OptimizerKind::kAdam, "adam"},       {OptimizerKind::kAdamW, "adamw"},
    {OptimizerKind::kAdagrad, "adagrad"}, {OptimizerKind::kRmsProp, "rmsprop"}};
constexpr Named<PackingMode> kPackingModes[] = {{PackingMode::kPlain, "plain"},
                                                {PackingMode::kRadix, "radix"},
                                                {PackingMode::kAuto, "auto"}};
constexpr Named<PushMomentum> kMomenta[] = {
    {PushMomentum::kNone, "off"},
    {PushMomentum::kHeavyBall, "heavyball"},
    {PushMomentum::kNesterov, "nesterov"}};

constexpr Named<std::optional<bool>> kTierOnes[] = {
    {std::nullopt, "auto"}, {false, "off"}, {true, "on"}};

template <typename T, size_t kCount>
absl::StatusOr<T> Parse(absl::string_view what, absl::string_view text,
                        const Named<T> (&names)[kCount]) {
  std::string known;
  for (const Named<T>& name : names) {
    if (text == name.text) return name.value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", name.text);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", text, "': choose one of ", known));
}

template <typename T, size_t kCount>
const char* Find(T value, const Named<T> (&names)[kCount]) {
  for (const Named<T>& name : names) {
    if (name.value == value) return name.text;
  }
  return "unknown";
}

}  // namespace

absl::StatusOr<ReplyMode> ParseReplyMode(absl::string_view text) {
  return Parse("reply mode", text, kReplyModes);
}
absl::StatusOr<NonFinitePolicy> ParseNonFinitePolicy(absl::string_view text) {
  return Parse("non-finite policy", text, kPolicies);
}
absl::StatusOr<UpdateOn> ParseUpdateOn(absl::string_view text) {
  return Parse("update-on", text, kUpdateOns);
}
absl::StatusOr<OptimizerKind> ParseOptimizerKind(absl::string_view text) {
  return Parse("optimizer", text, kOptimizers);
}
absl::StatusOr<PackingMode> ParsePackingMode(absl::string_view text) {
  return Parse("packing", text, kPackingModes);
}
absl::StatusOr<PushMomentum> ParsePushMomentum(absl::string_view text) {
  return Parse("momentum of pushes", text, kMomenta);
}
absl::StatusOr<std::optional<bool>> ParseTierOne(absl::string_view text) {
  return Parse("tier1", text, kTierOnes);
}
const char* ToString(ReplyMode mode) { return Find(mode, kReplyModes); }
const char* ToString(NonFinitePolicy policy) { return Find(policy, kPolicies); }
const char* ToString(UpdateOn update_on) { return Find(update_on, kUpdateOns); }
const char* ToString(OptimizerKind kind) { return Find(kind, kOptimizers); }
const char* ToString(PackingMode mode) { return Find(mode, kPackingModes); }
const char* ToString(PushMomentum momentum) { return Find(momentum, kMomenta); }

PackingMode ChoosePacking(PackingMode mode, double link_bytes_per_s) {
  if (mode != PackingMode::kAuto) return mode;
  const bool is_wire_the_limit =
      link_bytes_per_s > 0 && link_bytes_per_s < kCoreBytesPerS;
  return is_wire_the_limit ? PackingMode::kRadix : PackingMode::kPlain;
}

}  // namespace telegrad
