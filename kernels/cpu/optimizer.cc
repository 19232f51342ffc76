#include "kernels/optimizer.h"

#include <limits>

#include "kernels/cpu/targets.h"
#include "kernels/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void FillOptimizer(KernelTable&) {}

#else

constexpr size_t kStepBlock = 4 * kLanes;

void Nesterov(const float* HWY_RESTRICT grad, size_t n, SgdParameters params,
              float* HWY_RESTRICT weight, float* HWY_RESTRICT momentum,
              Stream stream) {
  const DF df;
  const VF rate = hn::Set(df, params.learning_rate);
  const VF keep = hn::Set(df, params.momentum_rate);
  const VF decay = hn::Set(df, params.weight_decay);
  const VF rescale = hn::Set(df, params.rescale);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kStepBlock <= n; i += kStepBlock) {
    PrefetchRead<4 * kStepBlock>(grad + i, ahead);
    PrefetchWrite<4 * kStepBlock>(weight + i, ahead);
    PrefetchWrite<4 * kStepBlock>(momentum + i, ahead);
    for (size_t j = i; j < i + kStepBlock; j += kLanes) {
      const VF w = hn::LoadU(df, weight + j);
      const VF g =
          hn::Add(hn::Mul(rescale, hn::LoadU(df, grad + j)), hn::Mul(decay, w));
      const VF d = hn::Mul(rate, g);
      const VF m = hn::Sub(hn::Mul(keep, hn::LoadU(df, momentum + j)), d);
      hn::StoreU(m, df, momentum + j);
      hn::StoreU(hn::Add(w, hn::Sub(hn::Mul(keep, m), d)), df, weight + j);
    }
  }
  reference::Optimizer().nesterov(grad + i, n - i, params, weight + i,
                                  momentum + i, stream);
}

void Adam(const float* HWY_RESTRICT grad, size_t n, AdamStep step,
          float* HWY_RESTRICT weight, float* HWY_RESTRICT mean,
          float* HWY_RESTRICT square, Stream stream) {
  const DF df;
  const VF rescale = hn::Set(df, step.rescale);
  const VF decay = hn::Set(df, step.weight_decay);
  const VF keep = hn::Set(df, step.keep);
  const VF beta1 = hn::Set(df, step.beta1);
  const VF rest1 = hn::Set(df, step.rest1);
  const VF beta2 = hn::Set(df, step.beta2);
  const VF rest2 = hn::Set(df, step.rest2);
  const VF step_size = hn::Set(df, step.step_size);
  const VF root = hn::Set(df, step.root);
  const VF epsilon = hn::Set(df, step.epsilon);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kStepBlock <= n; i += kStepBlock) {
    PrefetchRead<4 * kStepBlock>(grad + i, ahead);
    PrefetchWrite<4 * kStepBlock>(weight + i, ahead);
    PrefetchWrite<4 * kStepBlock>(mean + i, ahead);
    PrefetchWrite<4 * kStepBlock>(square + i, ahead);
    for (size_t j = i; j < i + kStepBlock; j += kLanes) {
      const VF w = hn::Mul(keep, hn::LoadU(df, weight + j));
      const VF g =
          hn::Add(hn::Mul(rescale, hn::LoadU(df, grad + j)), hn::Mul(decay, w));
      const VF m =
          hn::Add(hn::Mul(beta1, hn::LoadU(df, mean + j)), hn::Mul(rest1, g));
      const VF v = hn::Add(hn::Mul(beta2, hn::LoadU(df, square + j)),
                           hn::Mul(rest2, hn::Mul(g, g)));
      const VF below = hn::Add(hn::Div(hn::Sqrt(v), root), epsilon);
      hn::StoreU(m, df, mean + j);
      hn::StoreU(v, df, square + j);
      hn::StoreU(hn::Sub(w, hn::Mul(step_size, hn::Div(m, below))), df,
                 weight + j);
    }
  }
  reference::Optimizer().adam(grad + i, n - i, step, weight + i, mean + i,
                              square + i, stream);
}

void Square(const float* HWY_RESTRICT grad, size_t n, SquareStep step,
            float* HWY_RESTRICT weight, float* HWY_RESTRICT square,
            Stream stream) {
  const DF df;
  const VF rescale = hn::Set(df, step.rescale);
  const VF decay = hn::Set(df, step.weight_decay);
  const VF rate = hn::Set(df, step.learning_rate);
  const VF keep = hn::Set(df, step.keep);
  const VF rest = hn::Set(df, step.rest);
  const VF epsilon = hn::Set(df, step.epsilon);
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kStepBlock <= n; i += kStepBlock) {
    PrefetchRead<4 * kStepBlock>(grad + i, ahead);
    PrefetchWrite<4 * kStepBlock>(weight + i, ahead);
    PrefetchWrite<4 * kStepBlock>(square + i, ahead);
    for (size_t j = i; j < i + kStepBlock; j += kLanes) {
      const VF w = hn::LoadU(df, weight + j);
      const VF g =
          hn::Add(hn::Mul(rescale, hn::LoadU(df, grad + j)), hn::Mul(decay, w));
      const VF v = hn::Add(hn::Mul(keep, hn::LoadU(df, square + j)),
                           hn::Mul(rest, hn::Mul(g, g)));
      const VF moved = hn::Div(g, hn::Add(hn::Sqrt(v), epsilon));
      hn::StoreU(v, df, square + j);
      hn::StoreU(hn::Sub(w, hn::Mul(rate, moved)), df, weight + j);
    }
  }
  reference::Optimizer().square(grad + i, n - i, step, weight + i, square + i,
                                stream);
}

void PushMomentum(const float* grad, size_t n, float rate, bool leads,
                  float* HWY_RESTRICT momentum, float* out, Stream stream) {
  const DF df;
  const VF keep = hn::Set(df, rate);
  const VF most = hn::Set(df, std::numeric_limits<float>::max());
  const size_t ahead = PrefetchBytes();
  size_t i = 0;
  for (; i + kStepBlock <= n; i += kStepBlock) {
    PrefetchRead<4 * kStepBlock>(grad + i, ahead);
    PrefetchWrite<4 * kStepBlock>(momentum + i, ahead);
    for (size_t j = i; j < i + kStepBlock; j += kLanes) {
      const VF g = hn::LoadU(df, grad + j);
      const VF kept = hn::Mul(keep, hn::LoadU(df, momentum + j));
      const VF m = hn::Add(kept, g);
      const VF p = leads ? hn::Add(g, hn::Mul(keep, m)) : m;
      const auto is_finite = hn::Le(hn::Abs(p), most);
      hn::StoreU(p, df, out + j);
      hn::StoreU(hn::IfThenElse(is_finite, m, kept), df, momentum + j);
    }
  }
  reference::Optimizer().push_momentum(grad + i, n - i, rate, leads,
                                       momentum + i, out + i, stream);
}

void FillOptimizer(KernelTable& table) {
  table.optimizer = {Nesterov, Adam, Square, PushMomentum};
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace telegrad::kernels::cpu {

HWY_EXPORT(FillOptimizer);

void FillOptimizer(int64_t target, KernelTable& table) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  HWY_DISPATCH_TABLE(FillOptimizer)[chosen.GetIndex()](table);
}

}  // namespace telegrad::kernels::cpu
#endif  // HWY_ONCE
