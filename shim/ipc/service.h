// SPDX-License-Identifier: Apache-2.0
// The thread that answers importers of this process's tokens, and its lines. It starts with the
// first token and stays. It holds no lock while it waits. Its only driver calls are for descriptors
// of units, and none begins once the process ends. So neither the program's work nor its end waits
// for it (process/background.h). It answers one datagram after the other, in microseconds apart
// from such calls, and waits for no peer: a peer that floods its queue only delays others. Messages
// of processes without a token do not reach the queue (protocol.h). Peers of another user are
// refused before their message is read. If the program closed the socket, the thread opens it again
// within a second, under another name if a stranger has taken its name. A forked child has no such
// thread or socket and none of the descriptors: the tokens stay the parent's.
//
// The thread's socket receives requests; the answer only tells importers to come to a line, where
// they get what they request. A line is a socket of the exporter, connected to the socket from
// which an importer asked. The connection is to that socket, not to its address. A process that
// takes the address after the importer's end gets nothing. A process that had it before the line
// was connected does not know the word (the token's secret). So a block's handle and descriptors
// reach only a process that has the token.
#pragma once

#include <poll.h>

#include "shim/ipc/exports.h"
#include "shim/ipc/protocol.h"

namespace cistern::shim {

// Starts the thread unless it runs. False if there can be none, or if this process's user is one
// that nobody can tell from others (protocol.h). Any thread.
bool serve_importers(const IpcPools& pools);

// The answers to one message of a user, whatever it holds; `size` is its whole size. Without magic
// where it deserves none. To what comes to the socket: at best `come`.
IpcAnswer answer_request(const void* message, size_t size, uid_t user);
// To what comes on a line.
IpcAnswer answer_message(const void* message, size_t size, uid_t user, const IpcPools& pools,
                         IpcFiles* files);

// The process ends: the driver is called no more. Waits for calls that are under way, but no longer
// than 100 ms.
void stop_service();

void reset_service_after_fork();

// As many importers are heard at a time; others wait in the queue. An importer that says no more
// has its line for kLineNs, and where others wait for kFairNs: one that means it asks at once, and
// if it was too slow, anew.
inline constexpr size_t kMostLines = 16;
inline constexpr uint64_t kLineNs = 1'000'000'000;
inline constexpr uint64_t kFairNs = 20'000'000;

// Used by the service's thread; close_all() is for the child after a fork, too.
class IpcLines {
 public:
  // Room for one more, also in place of one; what is too old is closed.
  bool has_room(uint64_t now_ns);
  // For how long has_room() says and does the same if no importer says anything.
  uint64_t unchanged_for(uint64_t now_ns) const;
  bool empty() const { return count_ == 0; }
  // Invites who asked with that number to a line. Without room, or anybody there: does nothing. Who
  // asks again has the first one.
  void invite(const IpcProcess& own, uint64_t number, const IpcSender& to, const IpcAnswer& come,
              uint64_t now_ns);

  // What is to be polled, kMostLines at most, in the order of the lines.
  size_t put_polled(pollfd* out) const;
  // The line of that place, and its end: the last one comes to its place.
  const OwnSocket& at(size_t i) const { return lines_[i].socket; }
  void close_at(size_t i);
  void close_all();

 private:
  struct Line {
    OwnSocket socket;
    uint64_t number;
    uint64_t since_ns;
  };

  size_t oldest() const;
  // Whether each place is taken, and the oldest line is one that others need not wait for any more.
  bool one_may_go(uint64_t now_ns) const;

  Line lines_[kMostLines]{};
  size_t count_ = 0;
};

}  // namespace cistern::shim
