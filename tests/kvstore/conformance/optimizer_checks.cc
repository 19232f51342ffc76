#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kvstore/optimizer.h"
#include "tests/kvstore/conformance/harness.h"

// Optimizers in the store.
namespace telegrad::testing {
namespace {

constexpr int kSteps = 5;

bool SameBits(const Buffer& buffer, const std::vector<float>& expected) {
  return buffer.size() == 4 * expected.size() &&
         std::memcmp(buffer.data(), expected.data(), buffer.size()) == 0;
}

// What OptimizerState (tests/kvstore/optimizer_test.cc) makes of the whole
// tensor, while stores have chunks.
std::string Steps(const StoreKind& traits, const Wrap& wrap,
                  const StoreSetup& setup) {
  const size_t n = setup.tensors[0].num_elems;
  std::vector<float> weights(n);
  for (size_t i = 0; i < n; ++i) weights[i] = ValueOf(0, i);
  TensorOracle sums(n, kContributors, {});
  OptimizerState state;
  for (int step = 0; step < kSteps; ++step) {
    state.Step(setup.optimizer, setup.tensors[0].rates,
               sums.NextSums(true).data(), n, weights.data(), {});
  }
  weights = RoundedTo(wrap.dtype, std::move(weights));
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    std::vector<Buffer> memory;
    for (int step = 0; step < kSteps; ++step) {
      memory = party.Grads(n, step);
      const std::vector<TensorView> views = ViewsOf(memory);
      findings.ExpectOk(party.store.PushPull(0, views, views, 0).Wait(Soon()),
                        "round");
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
  StoreSetup setup = {.tensors = {{"a", 100}}};
  setup.optimizer = {.update_on = UpdateOn::kServer,
                     .sgd = {.learning_rate = 0.1f,
                             .momentum_rate = 0.9f,
                             .weight_decay = 0.01f,
                             .rescale = 0.5f}};
  std::vector<float> weights(100);
  for (size_t i = 0; i < 100; ++i) weights[i] = ValueOf(0, i);
  TensorOracle sums(100, kContributors, {});
  SgdOracle sgd(weights, setup.optimizer.sgd);
  std::vector<std::vector<float>> expected;
  for (int step = 0; step < kSteps; ++step) {
    expected.push_back(RoundedTo(wrap.dtype, sgd.Update(sums.NextSums(true))));
  }
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<Buffer> memory = party.Grads(100, step);
      const std::vector<TensorView> views = ViewsOf(memory);
      findings.ExpectOk(party.store.PushPull(0, views, views, 0).Wait(Soon()),
                        "round");
      for (const Buffer& each : memory) {
        findings.Expect(SameBits(each, expected[static_cast<size_t>(step)]),
                        absl::StrCat("other weights, step ", step));
      }
    }
  });
}

// Sums of what contributors push, up to the rounding of a sum in parts.
std::string CheckPushedMomentum(const StoreKind& traits, const Wrap& wrap) {
  constexpr float kRate = 0.5f;
  StoreSetup setup = {.tensors = {{"a", 100}}};
  setup.compression.momentum = PushMomentum::kNesterov;
  setup.compression.momentum_rate = kRate;
  TensorOracle oracle(100, kContributors, {});
  std::vector<float> momentum(100);
  std::vector<std::vector<float>> expected;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float>& pushed = expected.emplace_back(oracle.NextSums(false));
    for (size_t i = 0; i < 100; ++i) {
      momentum[i] = kRate * momentum[i] + pushed[i];
      pushed[i] += kRate * momentum[i];
    }
  }
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<Buffer> memory = party.Grads(100, step);
      const std::vector<TensorView> views = ViewsOf(memory);
      findings.ExpectOk(party.store.PushPull(0, views, views, 0).Wait(Soon()),
                        "round");
      for (const Buffer& each : memory) {
        for (size_t i = 0; i < 100; ++i) {
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
    StoreSetup setup = {
        .tensors = {
            {.name = "a", .num_elems = 100, .rates = {.lr = 0.5f, .wd = 2}}}};
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
