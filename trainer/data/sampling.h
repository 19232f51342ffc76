#pragma once

#include "trainer/data/dataset.h"

namespace telegrad {

// Sets mean and stddev of `dataset` from its pixels.
void MeasurePixels(Dataset& dataset);

}  // namespace telegrad
