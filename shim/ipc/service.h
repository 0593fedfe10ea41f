// SPDX-License-Identifier: Apache-2.0
// The thread that answers importers of this process's tokens. It starts with the first token and
// stays. It holds no lock while it waits. Its only driver calls are for descriptors of units, and
// none begins once the process ends. So neither the program's work nor its end waits for it
// (process/background.h). It answers one datagram after the other, in microseconds apart from such
// calls, and waits for no peer: a peer that floods its queue only delays others. Its socket
// receives requests; the answer only tells importers to come to a line (line.h), where they get
// what they request. Messages of processes without a token do not reach the queue (protocol.h).
// Peers of another user are refused before their message is read. If the program closed the socket,
// the thread opens it again within a second, under another name if a stranger has taken its name. A
// forked child has no such thread or socket and none of the descriptors: the tokens stay the
// parent's.
#pragma once

#include "shim/ipc/exports.h"

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

}  // namespace cistern::shim
