#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/kvstore/conformance/harness.h"

// What every store must do. TensorOracle (tests/kvstore/oracle.h) knows the
// answers, from the rules in words.
namespace telegrad::testing {
namespace {

constexpr int kSteps = 5;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool SameBits(const Buffer& buffer, const std::vector<float>& expected) {
  return buffer.size() == 4 * expected.size() &&
         std::memcmp(buffer.data(), expected.data(), buffer.size()) == 0;
}

CompressionConfig TwoBit(ReplyMode reply, bool is_auto) {
  CompressionConfig config;
  config.type = "2bit";
  config.reply = reply;
  if (!is_auto) {
    config.threshold = {ThresholdSpec::Kind::kAbsolute, 1.0f / 128};
  }
  return config;
}

StoreSetup Tensors(CompressionConfig compression = {}) {
  return {.tensors = {{"one", 1}, {"some", 33}, {"more", 100}},
          .compression = std::move(compression)};
}

// Rounds of all keys; `order` says which key is started when. In halves some
// pushes have no pull: there are two before one.
std::string Rounds(const StoreKind& traits, const Wrap& wrap,
                   const StoreSetup& setup, bool is_reversed, bool in_halves) {
  std::vector<std::vector<std::vector<float>>> expected;  // by key, step
  for (const TensorSpec& tensor : setup.tensors) {
    TensorOracle oracle(tensor.num_elems, kContributors, setup.compression);
    auto& steps = expected.emplace_back();
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float>& sums = steps.emplace_back(oracle.NextSums(false));
      for (float& sum : sums) sum *= setup.optimizer.result_scale;
    }
  }
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    const size_t num_keys = setup.tensors.size();
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<Buffer>> memory(num_keys);
      std::vector<Ticket> tickets(num_keys);
      for (size_t n = 0; n < num_keys; ++n) {
        const size_t k = is_reversed ? num_keys - 1 - n : n;
        const auto key = static_cast<Key>(k);
        memory[k] = party.Grads(setup.tensors[k].num_elems, step);
        const std::vector<TensorView> views = ViewsOf(memory[k]);
        const int priority = static_cast<int>(is_reversed ? k : 10 - k);
        tickets[k] = in_halves
                         ? party.store.Push(key, views, priority)
                         : party.store.PushPull(key, views, views, priority);
      }
      for (size_t k = 0; k < num_keys; ++k) {
        findings.ExpectOk(tickets[k].Wait(Soon()), "round");
        if (in_halves && step % 2 == 0 && step + 1 < kSteps) continue;
        if (in_halves) {
          const std::vector<TensorView> views = ViewsOf(memory[k]);
          const Ticket pull = party.store.Pull(static_cast<Key>(k), views, 0);
          findings.ExpectOk(pull.Wait(Soon()), "pull");
        }
        // At once: a ticket is not done before its memory is.
        for (const Buffer& out : memory[k]) {
          findings.Expect(SameBits(out, expected[k][static_cast<size_t>(step)]),
                          absl::StrCat("other bits, key ", k, " step ", step));
        }
      }
    }
  });
}

std::string CheckCodecs(const StoreKind& traits, const Wrap& wrap) {
  std::string found;
  for (const ReplyMode reply :
       {ReplyMode::kSum, ReplyMode::kReencode, ReplyMode::kDense}) {
    for (const CompressionConfig& compression :
         {TwoBit(reply, false), TwoBit(reply, true),
          CompressionConfig{.type = "1bit", .reply = reply}}) {
      const StoreSetup setup = Tensors(compression);
      for (const bool in_halves : {false, true}) {
        absl::StrAppend(&found, Rounds(traits, wrap, setup, false, in_halves));
      }
    }
  }
  return found;
}

std::string Values(const StoreKind& traits, const Wrap& wrap,
                   const StoreSetup& setup) {
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    for (size_t k = 0; k < setup.tensors.size(); ++k) {
      const size_t n = setup.tensors[k].num_elems;
      const std::vector<Buffer> out = party.Make(n);
      const std::vector<TensorView> views = ViewsOf(out);
      findings.ExpectOk(
          party.store.Pull(static_cast<Key>(k), views, 0).Wait(Soon()), "pull");
      for (const Buffer& each : out) {
        for (size_t i = 0; i < n; ++i) {
          findings.Expect(each.as<float>()[i] == ValueOf(k, i), "other values");
        }
      }
    }
  });
}

// The last worker gives a value after a round; all have it, and it counts.
std::string Broadcasts(const StoreKind& traits, const Wrap& wrap,
                       const StoreSetup& setup) {
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    const int root = store.group().num_workers() - 1;
    for (const float turn : {1.0f, 2.0f}) {
      std::vector<Buffer> values = party.Make(100, 7);
      if (store.group().rank() == root) {
        std::fill_n(values[0].as<float>(), 100, 40.0f + turn);
      }
      const std::vector<TensorView> views = ViewsOf(values);
      findings.ExpectOk(store.Broadcast(0, root, views, 0).Wait(Soon()),
                        "broadcast");
      std::vector<Buffer> pulled = party.Make(100);
      findings.ExpectOk(store.Pull(0, ViewsOf(pulled), 0).Wait(Soon()), "pull");
      findings.ExpectOk(store.group().Gather("pulled", "").status(), "gather");
      for (size_t i = 0; i < values.size(); ++i) {
        findings.Expect(values[i].as<float>()[99] == 40.0f + turn,
                        "a view is not the root's");
        findings.Expect(pulled[i].as<float>()[99] == 40.0f + turn,
                        "the key's value is not the root's");
      }
      const std::vector<Buffer> grads = party.Make(100, 0.5f);
      findings.ExpectOk(store.Push(0, ViewsOf(grads), 0).Wait(Soon()), "push");
      findings.ExpectOk(store.group().Gather("pushed", "").status(), "gather");
    }
    const std::vector<Buffer> values = party.Make(100);
    const auto invalid = absl::StatusCode::kInvalidArgument;
    findings.ExpectError(
        store.Broadcast(0, root + 1, ViewsOf(values), 0).Wait(Soon()), invalid,
        "broadcast by worker/");
  });
}

std::string CheckValues(const StoreKind& traits, const Wrap& wrap) {
  return Values(traits, wrap, Tensors());
}

std::string CheckBroadcast(const StoreKind& traits, const Wrap& wrap) {
  return Broadcasts(traits, wrap, {.tensors = {{"a", 100}}});
}

constexpr OptimizerConfig kMeans = {.result_scale = 1.0f / kContributors};

std::string CheckCodecMeans(const StoreKind& traits, const Wrap& wrap) {
  std::string found;
  for (const ReplyMode reply :
       {ReplyMode::kSum, ReplyMode::kReencode, ReplyMode::kDense}) {
    StoreSetup setup = Tensors(TwoBit(reply, true));
    setup.optimizer = kMeans;
    for (const bool in_halves : {false, true}) {
      absl::StrAppend(&found, Rounds(traits, wrap, setup, false, in_halves));
    }
  }
  return found;
}

// Of rounds alone: what was given or broadcast stays as it is.
std::string CheckMeans(const StoreKind& traits, const Wrap& wrap) {
  StoreSetup setup = Tensors();
  setup.optimizer = kMeans;
  const std::string found =
      Rounds(traits, wrap, setup, false, false) + Values(traits, wrap, setup);
  setup.tensors = {{"a", 100}};
  return absl::StrCat(found, Broadcasts(traits, wrap, setup));
}

std::string CheckOrder(const StoreKind& traits, const Wrap& wrap) {
  return Rounds(traits, wrap, Tensors(TwoBit(ReplyMode::kSum, true)), true,
                false);
}

std::string CheckLateKeys(const StoreKind& traits, const Wrap& wrap) {
  return RunParties(traits, Tensors(), wrap, [&](Party party, Findings& found) {
    KVStore& store = party.store;
    const auto round = [&](Key key, size_t n, int step) {
      const std::vector<Buffer> memory = party.Grads(n, step);
      const std::vector<TensorView> views = ViewsOf(memory);
      found.ExpectOk(store.PushPull(key, views, views, 0).Wait(Soon()), "push");
      found.Expect(
          memory[0].as<float>()[0] == GradOf(0, step, 0) + GradOf(1, step, 0),
          "another sum");
    };
    round(1, 33, 0);
    const std::vector<TensorSpec> late = {{"late", 70}, {"later", 5}};
    const auto keys = store.Init(party.Put(late), {});
    found.ExpectOk(keys.status(), "Init");
    if (!keys.ok()) return;
    found.Expect(*keys == std::vector<Key>{3, 4}, "keys are not in order");
    round(3, 70, 0);
    round(1, 33, 1);
    round(4, 5, 0);
    const std::vector<Buffer> out = party.Make(70);
    const auto invalid = absl::StatusCode::kInvalidArgument;
    found.ExpectError(store.Init(late, {}).status(), invalid, "late");
    const std::vector<TensorSpec> twice = {{"x", 1}, {"x", 1}};
    found.ExpectError(store.Init(twice, {}).status(), invalid, "twice");
    round(3, 70, 1);  // as if nothing had happened
  });
}

std::string CheckCodecSwitch(const StoreKind& traits, const Wrap& wrap) {
  CompressionConfig compression = TwoBit(ReplyMode::kSum, false);
  compression.starts_dense = true;
  StoreSetup setup = {.tensors = {{"a", 100}}, .compression = compression};
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    findings.Expect(store.codecs().Report().size() == 1, "one report a tensor");
    findings.ExpectError(store.codecs().SetCodec(0, 7),
                         absl::StatusCode::kInvalidArgument, "codec 7");
    for (int step = 0; step < 6; ++step) {
      if (step == 1) {
        findings.ExpectOk(store.codecs().SetCodec(0, 0), "SetCodec");
      }
      const std::vector<Buffer> memory = party.Grads(100, step);
      const std::vector<TensorView> views = ViewsOf(memory);
      findings.ExpectOk(store.PushPull(0, views, views, 0).Wait(Soon()),
                        "push");
      // Dense sums are on the gradients' grid, codes on the thresholds'.
      const float sum = GradOf(0, step, 3) + GradOf(1, step, 3);
      if (step < 2) {
        findings.Expect(memory[0].as<float>()[3] == sum, "not dense");
      }
      if (step >= 3) {
        const float units = memory[0].as<float>()[3] * 128;
        findings.Expect(units == std::round(units), "not coded");
      }
    }
    findings.Expect(!store.codecs().Report()[0].is_dense, "reported dense");
  });
}

std::string CheckNonFinite(const StoreKind& traits, const Wrap& wrap) {
  std::string found;
  for (const NonFinitePolicy policy :
       {NonFinitePolicy::kError, NonFinitePolicy::kSkip, NonFinitePolicy::kZero,
        NonFinitePolicy::kPropagate}) {
    for (const char* type : {"none", "2bit"}) {
      StoreSetup setup = {.tensors = {{"a", 70}}};
      setup.compression = TwoBit(ReplyMode::kSum, false);
      setup.compression.type = type;
      setup.compression.nonfinite = policy;
      const bool is_dense = std::strcmp(type, "none") == 0;
      absl::StrAppend(
          &found,
          RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
            std::vector<Buffer> memory = party.Make(70, 1.0f);
            const bool is_bad = party.is_last();
            if (is_bad) memory.back().as<float>()[40] = kNan;
            const std::vector<TensorView> views = ViewsOf(memory);
            const absl::Status status =
                party.store.PushPull(0, views, views, 0).Wait(Soon());
            // Who skips asks before it pushes.
            if (policy <= NonFinitePolicy::kSkip) {
              findings.Expect(ExitCodeOf(status) == ExitCode::kNumericFault,
                              "no numeric fault: " + status.ToString());
              return;
            }
            findings.ExpectOk(status, "round");
            const float got = memory[0].as<float>()[40];
            const auto parts =
                static_cast<float>(party.devices * party.processes);
            const float one = is_dense ? parts : 1.0f / 128;
            const bool is_nan =
                policy == NonFinitePolicy::kPropagate && is_dense;
            findings.Expect(is_nan ? std::isnan(got) : got == one,
                            absl::StrCat("element of NaN became ", got));
            if (policy == NonFinitePolicy::kZero && is_bad) {
              findings.Expect(party.store.stats().num_nonfinite == 1,
                              "not counted");
            }
          }));
    }
  }
  return found;
}

std::string CheckMisuse(const StoreKind& traits, const Wrap& wrap) {
  StoreSetup setup = {.tensors = {{"a", 33}}, .has_values = false};
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    KVStore& store = party.store;
    const auto invalid = absl::StatusCode::kInvalidArgument;
    const auto too_soon = absl::StatusCode::kFailedPrecondition;
    std::vector<Buffer> memory = party.Make(33, 1);
    std::vector<TensorView> views = ViewsOf(memory);
    std::vector<TensorView> less = ViewsOf(party.Make(32));
    findings.ExpectError(store.Push(9, views, 0).Wait(Soon()), invalid,
                         "key 9");
    findings.ExpectError(store.Push(0, less, 0).Wait(Soon()), invalid, "128");
    findings.ExpectError(store.PushPull(0, views, less, 0).Wait(Soon()),
                         invalid, "128");
    findings.ExpectError(store.Push(0, TensorViews(), 0).Wait(Soon()), invalid,
                         "0 views");
    std::vector<TensorView> halves = views;
    halves[0].dtype = Dtype::kFloat16;
    findings.ExpectError(store.Push(0, halves, 0).Wait(Soon()), invalid,
                         "float16");
    if (!traits.is_async) {  // which has initial weights
      findings.ExpectError(store.Pull(0, views, 0).Wait(Soon()), too_soon,
                           "no value");
    }
    findings.ExpectError(store.SetCompression({}), too_soon, "Init");
    OptimizerConfig other;
    other.kind = OptimizerKind::kAdam;
    findings.ExpectError(store.SetOptimizer(other), too_soon, "only rates");
    findings.ExpectError(store.Init({}, {}).status(), invalid, "0 tensors");
    const std::vector<TensorSpec> bad = {{"a\"b", 1}};
    findings.ExpectError(store.Init(bad, {}).status(), invalid, "a\"b");
    findings.ExpectOk(store.PushPull(0, views, views, 0).Wait(Soon()), "round");
    store.Close();
    findings.ExpectError(store.Push(0, views, 0).Wait(Soon()), too_soon,
                         "closed");
  });
}

std::string CheckQueue(const StoreKind& traits, const Wrap& wrap) {
  const StoreSetup setup = Tensors();
  return RunParties(traits, setup, wrap, [&](Party party, Findings& findings) {
    CompletionQueue queue;
    std::vector<std::vector<Buffer>> memory;
    std::vector<Ticket> tickets;
    for (size_t k = 0; k < setup.tensors.size(); ++k) {
      memory.push_back(party.Grads(setup.tensors[k].num_elems, 0));
      const std::vector<TensorView> views = ViewsOf(memory.back());
      tickets.push_back(
          party.store.PushPull(static_cast<Key>(k), views, views, 0));
      tickets.back().NotifyTo(queue, 100 + k);
    }
    std::vector<bool> seen(tickets.size());
    for (size_t n = 0; n < tickets.size(); ++n) {
      const auto tag = queue.Next(Soon());
      if (!tag.has_value() || *tag < 100 || *tag >= 100 + tickets.size() ||
          seen[*tag - 100]) {
        return findings.Add("a ticket is not in the queue once");
      }
      seen[*tag - 100] = true;
      findings.Expect(tickets[*tag - 100].is_done(), "in the queue too early");
    }
    tickets[0].NotifyTo(queue, 7);  // is done already
    findings.Expect(queue.Next(Soon()) == uint64_t{7}, "a late listener waits");
    findings.Expect(!queue.Next(Clock::now()).has_value(), "one too many");
  });
}

}  // namespace

std::string CheckSums(const StoreKind& traits, const Wrap& wrap) {
  std::string found = Rounds(traits, wrap, Tensors(), false, false);
  absl::StrAppend(&found, Rounds(traits, wrap, Tensors(), false, true));
  return found;
}

std::vector<NamedCheck> AllChecks() {
  constexpr bool kNeedsSums = true;
  constexpr bool kNeedsCodecs = true;
  constexpr bool kNeedsRows = true;
  return {{"Sums", CheckSums, kNeedsSums},
          {"Codecs", CheckCodecs, kNeedsSums, kNeedsCodecs},
          {"Means", CheckMeans, kNeedsSums},
          {"CodecMeans", CheckCodecMeans, kNeedsSums, kNeedsCodecs},
          {"Halves", CheckHalves, kNeedsSums},
          {"Order", CheckOrder, kNeedsSums, kNeedsCodecs},
          {"Priorities", CheckPriorities},
          {"Values", CheckValues},
          {"Broadcast", CheckBroadcast},
          {"LateKeys", CheckLateKeys, kNeedsSums},
          {"Optimizer", CheckOptimizer, kNeedsSums, kNeedsCodecs},
          {"Optimizers", CheckOptimizers, kNeedsSums, kNeedsCodecs},
          {"PushedMomentum", CheckPushedMomentum, kNeedsSums, kNeedsCodecs},
          {"CodecSwitch", CheckCodecSwitch, kNeedsSums, kNeedsCodecs},
          {"NonFinite", CheckNonFinite, kNeedsSums, kNeedsCodecs},
          {"Rows", CheckRows, false, false, kNeedsRows},
          {"RowMisuse", CheckRowMisuse, false, false, kNeedsRows},
          {"DenseRows", CheckDenseRows, kNeedsSums},
          {"Misuse", CheckMisuse},
          {"Empty", CheckEmpty},
          {"Queue", CheckQueue},
          {"Cancel", CheckCancel},
          {"Timeout", CheckTimeout}};
}

}  // namespace telegrad::testing
