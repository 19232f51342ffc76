#include "absl/status/status.h"
#include "kvstore/job/launch/placement.h"

#if TELEGRAD_WITH_PMIX
#include "kvstore/job/launch/pmix_exchange.h"
#endif

namespace telegrad {

absl::StatusOr<std::string> ExchangeOverPmix(int rank, const std::string& mine,
                                             int timeout_s) {
#if TELEGRAD_WITH_PMIX
  return PmixExchange(rank, mine, timeout_s);
#else
  (void)rank, (void)mine, (void)timeout_s;
  return absl::UnimplementedError(
      "PMIx is not in this build; it comes with libpmix-dev");
#endif
}

}  // namespace telegrad
