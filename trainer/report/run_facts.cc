#include "trainer/report/run_facts.h"

#include <sys/utsname.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/dispatch.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/limits.h"
#include "topology/system_root.h"
#include "trainer/networks/framework.h"

namespace telegrad {
namespace {

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;
#else
constexpr char kCompiler[] = "GCC " __VERSION__;
#endif

}  // namespace

std::string ProgramVersion() {
  return absl::StrCat(TELEGRAD_VERSION,
                      TELEGRAD_COMMIT[0] == '\0' ? "" : ", commit ",
                      TELEGRAD_COMMIT);
}

std::vector<EnvironmentFact> DescribeEnvironment() {
  std::vector<EnvironmentFact> facts = {
      {"telegrad", ProgramVersion()},
      {"compiler", kCompiler},
      {"processor", CpuModel(SysRoot::Live())},
      {"processors", absl::StrCat(UsableCpus())},
      {"kernels", kernels::CpuKernels().name}};
  if (const Framework* framework = LoadedFramework()) {
    facts.push_back({"libtorch", framework->version()});
    facts.push_back({"BLAS", framework->blas()});
  }
  utsname system;
  if (uname(&system) == 0) {
    facts.push_back({"system", absl::StrCat(system.sysname, " ", system.release,
                                            " ", system.machine)});
  }
  std::erase_if(facts,
                [](const EnvironmentFact& fact) { return fact.value.empty(); });
  return facts;
}

}  // namespace telegrad
