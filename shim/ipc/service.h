// SPDX-License-Identifier: Apache-2.0
// The thread that answers importers of this process's tokens. It starts with the first token and
// stays; it holds no lock while it waits, and makes no driver call but for descriptors of units,
// none of which begins once the process ends, so that neither the program's work nor its end waits
// for it (process/own_thread.h). It answers one datagram after the other, in microseconds but for
// such calls, and waits for no peer, so a peer can flood its queue, which delays others, and no
// more. Its socket hears requests, and tells importers at best to come to a line (line.h), where
// they are given what they ask for. What comes from where no token is does not even reach the queue
// (protocol.h). Peers of another user are refused before what they sent is looked at. Where the
// program closed the socket the thread opens it again when it looks next, within a second; if a
// stranger has its name by then, under another one. A forked child has no such thread, no such
// socket and none of the descriptors: the parent's tokens stay the parent's.
#pragma once

#include "shim/ipc/exports.h"

namespace cistern::shim {

// Starts the thread unless it runs. False if there can be none, or if this process's user is one
// that nobody can tell from others (user.h). Any thread.
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
