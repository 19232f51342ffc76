#pragma once

#include "base/clock.h"
#include "transport/endpoint_table.h"
#include "transport/tcp/connection.h"

// Whether the network still brings answers. A cut path says nothing, neither do
// peers that are busy or stopped, but whose kernels answer.
namespace telegrad::tcp {

// Asks for answers where nothing is under way, for which none is due.
void KeepAlive(int socket);
// Fails connections whose peers' kernels do not answer. One thread.
class SilenceWatch {
 public:
  void Look(TimePoint now, EndpointTable<Connection>& connections);
  TimePoint next_look() const { return next_look_; }

 private:
  TimePoint next_look_;
};

}  // namespace telegrad::tcp
