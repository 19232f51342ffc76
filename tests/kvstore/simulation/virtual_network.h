#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"

namespace telegrad::testing {

// TCP between the members of a VirtualWorld. Each end of a connection is a
// Unix socket whose other end is here; bytes are taken from one and given to
// the other when the world's time has come. Threads of the world only.
class VirtualNetwork {
 public:
  static VirtualNetwork& The();

  // Bytes take from `least` to `most`.
  void SetLatency(Duration least, Duration most);
  // Nothing passes between the two, either way, until the time has passed.
  void Cut(int member, int other, int64_t until_ns);
  // Of the next bytes between the two, either way, a bit is another one.
  void Tamper(int member, int other) {
    tampered_.insert(std::minmax(member, other));
  }
  // `is_silent`: nobody hears of it, as where a machine has lost its power.
  void Kill(int member, int64_t now_ns, bool is_silent);

  // For VirtualWorld.
  void Move(int64_t now_ns);
  int64_t NextDue(int64_t now_ns) const;

  // For virtual_calls.cc: as the C library's, of sockets that are ours.
  bool Has(int fd) const { return sockets_.contains(fd); }
  int Socket(int type, int member);
  int Bind(int fd, const sockaddr* address);
  int Listen(int fd);
  int Accept(int fd, int flags, int member);
  int Connect(int fd, const sockaddr* address);
  int Name(int fd, sockaddr* address, socklen_t* length) const;
  int Info(int fd, void* info, socklen_t size, int64_t now_ns) const;
  void Close(int fd);
  // Something was sent over it, or has ended there.
  void Touch(int fd);

 private:
  struct Connection;
  struct Socket_ {
    int member = -1;
    int port = 0;
    bool listens = false;
    Connection* connection = nullptr;
    int end = 0;                      // which one of the connection
    std::deque<Connection*> arrived;  // of a listener: not accepted yet
  };
  // What goes from end `from` to the other one.
  struct Bytes {
    int64_t due_ns = 0;
    std::string text;  // empty: the end
    size_t num_given = 0;
  };
  struct Connection {
    uint64_t number = 0;
    int ends[2] = {-1, -1};  // ours, of who has connected and who listens
    int members[2] = {-1, -1};
    std::deque<Bytes> way[2];  // from end 0, from end 1
    int64_t last_due_ns[2] = {0, 0};
    bool has_ended[2] = {false, false};  // nothing comes from there any more
    bool was_shut[2] = {false, false};   // nothing is given to there any more
    bool is_held[2] = {true, true};      // a member has that end

    bool is_idle() const { return way[0].empty() && way[1].empty(); }
    bool is_over() const {
      return is_idle() && !is_held[0] && !is_held[1] && has_ended[0] &&
             has_ended[1];
    }
  };

  explicit VirtualNetwork(uint64_t seed) : random_(seed, 1) {}
  int64_t CutUntil(const Connection& connection, int64_t now_ns) const;
  int64_t CutSince(const Connection& connection, int64_t now_ns) const;
  void Take(Connection& connection, int from, int64_t now_ns);
  void Put(Connection& connection, int from, std::string text, int64_t now_ns);
  void Give(Connection& connection, int from, int64_t now_ns);
  void Shut(Connection& connection, int end);
  void EndIfOver(Connection& connection);

  struct Cut_ {
    int64_t since_ns = 0;
    int64_t until_ns = 0;
  };
  Random random_;
  int64_t least_ns_ = 20'000;
  int64_t most_ns_ = 200'000;
  uint64_t next_number_ = 0;
  int next_port_ = 20000;
  std::map<int, Socket_> sockets_;  // by descriptor
  std::map<int, int> listeners_;    // by port
  std::list<Connection> connections_;
  // By number: what was touched since the last Move, and what has bytes on
  // their way.
  std::map<uint64_t, Connection*> touched_;
  std::map<uint64_t, Connection*> busy_;
  std::map<std::pair<int, int>, Cut_> cuts_;  // lower member first
  std::set<std::pair<int, int>> tampered_;    // as well
};

}  // namespace telegrad::testing
