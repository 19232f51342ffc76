#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "perf/huge_array.h"
#include "perf/kernel_cases.h"

namespace telegrad::perf {

// What kernels work on whose payloads begin with scales or have no fixed
// place per element: each share of a range is a payload of its own.
struct FamilyData {
  FamilyData(size_t n, double density);

  // 8 bytes per element from `begin` on, for whatever a kernel writes.
  uint8_t* PayloadFrom(size_t begin) const {
    return payload.as<uint8_t>() + 8 * begin;
  }

  HugeArray grad;
  float threshold;  // what gives this density
  HugeArray residual;
  HugeArray momentum;  // the gradient: settled
  HugeArray out;
  HugeArray payload;
  HugeArray scratch;  // 8 bytes per element and 4 KiB
};

struct Share {
  const FamilyData& data;
  size_t begin;
  size_t n;

  const float* grad() const { return data.grad.as<float>() + begin; }
  float* residual() const { return data.residual.as<float>() + begin; }
  float* momentum() const { return data.momentum.as<float>() + begin; }
  float* out() const { return data.out.as<float>() + begin; }
  uint8_t* payload() const { return data.PayloadFrom(begin); }
  void* scratch() const { return data.scratch.as<uint8_t>() + 8 * begin; }
};

using ShareBody = std::function<void(const Share&)>;

// A case of what `codec` uses that works share by share; `prepare` runs once
// before a share's first run, to make the payload that is decoded; `mxnet` is
// the peer's loop.
KernelCase FamilyCase(const std::string& codec, const std::string& name,
                      double bytes_per_element, Traffic traffic, ShareBody run,
                      ShareBody prepare = {}, ShareBody mxnet = {});

}  // namespace telegrad::perf
