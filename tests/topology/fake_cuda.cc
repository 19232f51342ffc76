#include "tests/topology/fake_cuda.h"

#include <cstring>

FakeCuda& TheFakeCuda() {
  static FakeCuda fake;
  return fake;
}

// Names, types and values of CUDA's driver API.
extern "C" {

int cuInit(unsigned) {
  ++TheFakeCuda().num_starts;
  return TheFakeCuda().init_error;
}

int cuDeviceGetByPCIBusId(int* device, const char* bus_id) {
  constexpr int kInvalidDevice = 101;
  for (int i = 0; i < 2; ++i) {
    const char* known = i == 0 ? "0000:01:00.0" : "0000:02:00.0";
    if (std::strcmp(bus_id, known) != 0) continue;
    *device = i;
    return 0;
  }
  return kInvalidDevice;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kInvalidValue = 1;
  constexpr int kDmabuf = 124;
  if (attribute != kDmabuf) return kInvalidValue;
  *value = TheFakeCuda().dmabuf[device];
  return 0;
}

}  // extern "C"
