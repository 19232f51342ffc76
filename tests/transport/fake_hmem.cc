#include "tests/transport/fake_hmem.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <memory>

namespace telegrad::testing {
namespace {

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};

// What the real providers know of.
std::unique_ptr<fi_info, FreeInfo> WithoutHmem(const fi_info* info) {
  std::unique_ptr<fi_info, FreeInfo> copy(fi_dupinfo(info));
  copy->caps &= ~FI_HMEM;
  copy->domain_attr->mr_mode &= ~FI_MR_HMEM;
  return copy;
}

template <typename Function>
Function* Real(const char* name) {
  static void* const library = dlopen("libfabric.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

fi_ops_fabric fabric_ops, real_fabric_ops;
fi_ops_domain domain_ops, real_domain_ops;
fi_ops_mr mr_ops, real_mr_ops;
fi_ops fid_ops, real_fid_ops;

int CloseMemory(fid* registered) {
  --GetFakeHmem().num_held;
  return real_fid_ops.close(registered);
}

int Register(fid* domain, const fi_mr_attr* attributes, uint64_t flags,
             fid_mr** registered) {
  fi_mr_attr of_host = *attributes;
  if (attributes->iface == FI_HMEM_SYSTEM) {
    return real_mr_ops.regattr(domain, &of_host, flags, registered);
  }
  FakeHmem& hmem = GetFakeHmem();
  {
    MutexLock lock(&hmem.mutex);
    hmem.of_devices.push_back(*attributes);
    hmem.of_devices.back().mr_iov = nullptr;  // gone when this returns
  }
  if (hmem.error != 0) return -hmem.error;
  of_host.iface = FI_HMEM_SYSTEM;
  of_host.device.reserved = 0;
  const int result = real_mr_ops.regattr(domain, &of_host, flags, registered);
  if (result != 0) return result;
  ++hmem.num_held;
  real_fid_ops = *(*registered)->fid.ops;
  fid_ops = real_fid_ops;
  fid_ops.close = &CloseMemory;
  (*registered)->fid.ops = &fid_ops;
  return 0;
}

int OpenEndpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint,
                 void* context) {
  return real_domain_ops.endpoint(domain, WithoutHmem(info).get(), endpoint,
                                  context);
}

int OpenDomain(fid_fabric* fabric, fi_info* info, fid_domain** domain,
               void* context) {
  const int result =
      real_fabric_ops.domain(fabric, WithoutHmem(info).get(), domain, context);
  if (result != 0) return result;
  real_domain_ops = *(*domain)->ops;
  domain_ops = real_domain_ops;
  domain_ops.endpoint = &OpenEndpoint;
  (*domain)->ops = &domain_ops;
  real_mr_ops = *(*domain)->mr;
  mr_ops = real_mr_ops;
  mr_ops.regattr = &Register;
  (*domain)->mr = &mr_ops;
  return 0;
}

}  // namespace

FakeHmem& GetFakeHmem() {
  static FakeHmem hmem;
  return hmem;
}

}  // namespace telegrad::testing

// In place of libfabric's, for this program.
extern "C" int fi_getinfo(uint32_t version, const char* node,
                          const char* service, uint64_t flags,
                          const fi_info* hints, fi_info** info) {
  using telegrad::testing::GetFakeHmem;
  using telegrad::testing::WithoutHmem;
  static auto* const real =
      telegrad::testing::Real<decltype(fi_getinfo)>("fi_getinfo");
  if (hints == nullptr || (hints->caps & FI_HMEM) == 0) {
    return real(version, node, service, flags, hints, info);
  }
  ++GetFakeHmem().num_asked;
  if (!GetFakeHmem().offers) {
    return real(version, node, service, flags, hints, info);
  }
  const int result =
      real(version, node, service, flags, WithoutHmem(hints).get(), info);
  for (fi_info* each = *info; result == 0 && each != nullptr;
       each = each->next) {
    each->caps |= FI_HMEM;
    each->domain_attr->mr_mode |= FI_MR_HMEM;
  }
  return result;
}

extern "C" int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric,
                         void* context) {
  using namespace telegrad::testing;  // NOLINT
  static auto* const real = Real<decltype(fi_fabric)>("fi_fabric");
  const int result = real(attributes, fabric, context);
  if (result != 0 || !GetFakeHmem().offers) return result;
  real_fabric_ops = *(*fabric)->ops;
  fabric_ops = real_fabric_ops;
  fabric_ops.domain = &OpenDomain;
  (*fabric)->ops = &fabric_ops;
  return 0;
}
