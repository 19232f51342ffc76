#pragma once

#include "kernels/batch.h"
#include "kernels/sparse_list.h"

// Steps of sparse encoders, each a few launches for all arrays of a batch whose
// scratch is clear where tiles tell each other of themselves.
namespace telegrad::kernels::cuda {

// SampleThresholdFn and TakeLargestFn, within TopKScratch.
EncodeManyFn SampleThresholdMany;
EncodeManyFn TakeLargestMany;

// WriteSparseListFn, within ThresholdScratch (signs) or TopKScratch (values).
EncodeManyFn WriteSignsMany;
EncodeManyFn WriteValuesMany;

}  // namespace telegrad::kernels::cuda
