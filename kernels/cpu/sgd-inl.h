// Per-target include guard, as Highway wants it.
#if defined(TELEGRAD_KERNELS_CPU_SGD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TELEGRAD_KERNELS_CPU_SGD_INL_H_
#undef TELEGRAD_KERNELS_CPU_SGD_INL_H_
#else
#define TELEGRAD_KERNELS_CPU_SGD_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/vectors-inl.h"
#include "kernels/dense.h"

HWY_BEFORE_NAMESPACE();
namespace telegrad::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// SgdMomentumFn of kLanes elements at a time.
class SgdStep {
 public:
  explicit HWY_INLINE SgdStep(const SgdParameters& params)
      : rate_(hn::Set(DF(), params.learning_rate)),
        keep_(hn::Set(DF(), params.momentum_rate)),
        decay_(hn::Set(DF(), params.weight_decay)),
        rescale_(hn::Set(DF(), params.rescale)) {}

  HWY_INLINE void operator()(VF grad, float* weight, float* momentum) const {
    const DF df;
    const VF w = hn::LoadU(df, weight);
    const VF g = hn::Add(hn::Mul(rescale_, grad), hn::Mul(decay_, w));
    const VF m =
        hn::Sub(hn::Mul(keep_, hn::LoadU(df, momentum)), hn::Mul(rate_, g));
    hn::StoreU(m, df, momentum);
    hn::StoreU(hn::Add(w, m), df, weight);
  }

 private:
  VF rate_;
  VF keep_;
  VF decay_;
  VF rescale_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace telegrad::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
