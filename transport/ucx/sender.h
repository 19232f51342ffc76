#pragma once

#include <ucp/api/ucp.h>

#include <vector>

#include "transport/transport.h"
#include "transport/ucx/endpoints.h"
#include "transport/ucx/pool.h"
#include "transport/ucx/records.h"

namespace telegrad::ucx {

// Messages that UCX has, or that wait for their route. UCX's callback only
// appends to a list, which HandleSent works off. One thread.
class Sender {
 public:
  explicit Sender(Endpoints& endpoints) : endpoints_(endpoints) {}

  void Post(Endpoint& endpoint, Kind kind, ConstBytes header = {},
            ConstBytes payload = {}, SendDone done = nullptr);
  // The route is known.
  void SubmitUnrouted(Endpoint& endpoint);
  // The endpoint is cut.
  void CancelUnrouted(Endpoint& endpoint);
  // Its lane is: completes all that UCX may never complete.
  void Abandon(Endpoint& endpoint);

  bool has_events() const { return !sent_.empty(); }
  // Calls each `done` that is due; how many.
  size_t HandleSent();
  // Forgets each `done` that is due without calling it.
  void Forget();

 private:
  void Submit(Endpoint& endpoint, Outgoing* message);
  static void OnSent(void* request, ucs_status_t status, void* outgoing);

  Endpoints& endpoints_;
  Pool<Outgoing> outgoing_;
  // What UCX has told us; the second is being worked off.
  std::vector<Outgoing*> sent_, sent_now_;
};

}  // namespace telegrad::ucx
