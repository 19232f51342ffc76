#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kvstore/optimizer.h"
#include "tests/kvstore/conformance/harness.h"

// Optimizers in the store.
namespace telegrad::testing {
namespace {

constexpr int kSteps = 5;
constexpr size_t kSteppedElems = 100;

bool SameBits(const Buffer& buffer, const std::vector<float>& expected) {
  return buffer.size() == 4 * expected.size() &&
         std::memcmp(buffer.data(), expected.data(), buffer.size()) == 0;
}

// A round of tensor 0 with a step's gradients; what came back in their place.
std::vector<Buffer> RoundOf(const Party& party, Findings& findings, int step) {
  std::vector<Buffer> memory = party.Grads(kSteppedElems, step);
  const std::vector<TensorView> views = ViewsOf(memory);
  findings.ExpectOk(party.store.PushPull(0, views, views, 0).Wait(Soon()),
                    "round");
  return memory;
}

// What OptimizerState (tests/kvstore/optimizer_test.cc) makes of the whole
// tensor, while stores have chunks.
std::string Steps(const StoreKind& traits, const Wrap& wrap,
                  const StoreSetup& setup) {
  std::vector<float> weights(kSteppedElems);
  for (size_t i = 0; i < kSteppedElems; ++i) weights[i] = ValueOf(0, i);
  TensorOracle sums(kSteppedElems, kContributors, {});
  OptimizerState state;
  for (int step = 0; step < kSteps; ++step) {
    state.Step(setup.optimizer, setup.tensors[0].rates,
               sums.NextSums(true).data(), kSteppedElems, weights.data(), {});
  }
  weights = RoundedTo(wrap.dtype, std::move(weights));
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    std::vector<Buffer> memory;
    for (int step = 0; step < kSteps; ++step) {
      memory = RoundOf(party, findings, step);
    }
    for (const Buffer& each : memory) {
      findings.Expect(
          SameBits(each, weights),
          absl::StrCat("other weights, ", ToString(setup.optimizer.kind)));
    }
  });
}

}  // namespace

std::string CheckOptimizer(const StoreKind& traits, const Wrap& wrap) {
  StoreSetup setup = {.tensors = {{"a", kSteppedElems}}};
  setup.optimizer = {.update_on = UpdateOn::kServer,
                     .sgd = {.learning_rate = 0.1f,
                             .momentum_rate = 0.9f,
                             .weight_decay = 0.01f,
                             .rescale = 0.5f}};
  std::vector<float> weights(kSteppedElems);
  for (size_t i = 0; i < kSteppedElems; ++i) weights[i] = ValueOf(0, i);
  TensorOracle sums(kSteppedElems, kContributors, {});
  SgdOracle sgd(weights, setup.optimizer.sgd);
  std::vector<std::vector<float>> expected;
  for (int step = 0; step < kSteps; ++step) {
    expected.push_back(RoundedTo(wrap.dtype, sgd.Update(sums.NextSums(true))));
  }
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    for (int step = 0; step < kSteps; ++step) {
      for (const Buffer& each : RoundOf(party, findings, step)) {
        findings.Expect(SameBits(each, expected[static_cast<size_t>(step)]),
                        absl::StrCat("other weights, step ", step));
      }
    }
  });
}

// Sums of what contributors push, up to the rounding of a sum in parts.
std::string CheckPushedMomentum(const StoreKind& traits, const Wrap& wrap) {
  constexpr float kRate = 0.5f;
  StoreSetup setup = {.tensors = {{"a", kSteppedElems}}};
  setup.compression.momentum = PushMomentum::kNesterov;
  setup.compression.momentum_rate = kRate;
  TensorOracle oracle(kSteppedElems, kContributors, {});
  std::vector<float> momentum(kSteppedElems);
  std::vector<std::vector<float>> expected;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float>& pushed = expected.emplace_back(oracle.NextSums(false));
    for (size_t i = 0; i < kSteppedElems; ++i) {
      momentum[i] = kRate * momentum[i] + pushed[i];
      pushed[i] += kRate * momentum[i];
    }
  }
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    for (int step = 0; step < kSteps; ++step) {
      for (const Buffer& each : RoundOf(party, findings, step)) {
        for (size_t i = 0; i < kSteppedElems; ++i) {
          const float want = expected[static_cast<size_t>(step)][i];
          const float most = wrap.dtype == Dtype::kFloat32 ? 1e-4f : 2e-2f;
          findings.Expect(std::abs(each.as<float>()[i] - want) < most,
                          absl::StrCat("other sums, step ", step));
        }
      }
    }
  });
}

std::string CheckOptimizers(const StoreKind& traits, const Wrap& wrap) {
  std::string found;
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kNag, OptimizerKind::kAdam,
        OptimizerKind::kAdamW, OptimizerKind::kAdagrad,
        OptimizerKind::kRmsProp}) {
    StoreSetup setup = {.tensors = {{.name = "a",
                                     .num_elems = kSteppedElems,
                                     .rates = {.lr = 0.5f, .wd = 2}}}};
    setup.optimizer = {.update_on = UpdateOn::kServer,
                       .kind = kind,
                       .sgd = {.learning_rate = 0.1f,
                               .momentum_rate = 0.9f,
                               .weight_decay = 0.01f,
                               .rescale = 0.5f}};
    absl::StrAppend(&found, Steps(traits, wrap, setup));
  }
  return found;
}

}  // namespace telegrad::testing
