// A process to be killed or stopped by transport_failure_test: connects, says
// "hello", takes whatever comes; "flood" sends without end as well. A word more
// on the command line, "resend": with that option.
#include <cstdio>
#include <string>

#include "tests/transport/transport_node.h"

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  telegrad::TransportOptions options;
  options.name = argv[1];
  options.tls = argv[2];
  options.connections = std::stoul(argv[4]);
  options.resend = argc > 6;
  telegrad::testing::Node node(options);
  if (!node.status.ok()) return 1;
  node.keep_payloads = false;
  const auto server = node.context->Connect(argv[3]);
  if (!server.ok() || !node.Send(*server, "hello").ok()) return 1;
  const bool is_flood = std::string(argv[5]) == "flood";
  const auto payload = std::make_shared<const std::string>(1 << 20, 'f');
  const auto is_over = [&] {
    while (is_flood && node.sends_due[*server] < 16 &&
           node.Send(*server, "flood", payload).ok()) {
    }
    return node.closed.count(*server) > 0;
  };
  return telegrad::testing::Drive({&node}, is_over) ? 0 : 1;
}
