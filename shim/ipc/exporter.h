// SPDX-License-Identifier: Apache-2.0
// The exporter, the process that made a token: the chunks with exported blocks, and the thread that
// answers importers.
//
// *Exports*: for each chunk with exported blocks the driver's handle, from the first export until
// the chunk goes back to the driver or ends with its context. A block in units is exported by
// itself, until its first unit is unmapped. Each export gets a number that is unique in this
// process, so that a token never finds a later block at the same address. Only the pool knows which
// blocks of a chunk the program still holds (HeldBlock). Any thread; one lock, under which no call
// is made.
//
// *The service*: the thread that answers importers of this process's tokens, and its lines. It
// starts with the first token and stays. It holds no lock while it waits. Its only driver calls are
// for descriptors of units, and none begins once the process ends. So neither the program's work
// nor its end waits for it (process/background.h). It answers one datagram after the other. Except
// for such driver calls an answer takes microseconds. It waits for no peer: a peer that floods its
// queue only delays others. Messages of processes without a token do not reach the queue
// (protocol.h). Peers of another user are refused before their message is read. If the program
// closed the socket, the thread opens it again within a second, under another name if a stranger
// has taken its name. A forked child has no such thread or socket and none of the descriptors: the
// tokens stay the parent's.
//
// The thread's socket receives requests; the answer only tells importers to come to a line, where
// they get what they request. A line is a socket of the exporter, connected to the socket from
// which an importer asked. The connection is to that socket, not to its address. A process that
// takes the address after the importer's end gets nothing. A process that had it before the line
// was connected does not know the word (the token's secret). So a block's handle and descriptors
// reach only a process that has the token.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>

#include "shim/ipc/protocol.h"

namespace cistern::shim {

// --- exports ---

// A block that the program holds, and the start of its chunk; for a block in units `chunk` is the
// block's own start.
struct HeldBlock {
  uint64_t start, bytes, chunk;
  bool in_units;
};

// What the pools do for importers. The service may call these.
struct IpcPools {
  // Finds the block that the program holds around an address; false if there is none.
  bool (*find)(uint64_t address, HeldBlock* out);
  // Writes descriptors of the block's units, from unit `first` on, to `files`, and the number and
  // size of all its units to `answer`. False if there can be no descriptors. Writes nothing if the
  // program holds no block there any more. It may hold another one by now, so check the export's
  // number afterwards.
  bool (*units)(const HeldBlock& block, uint32_t first, IpcAnswer* answer, IpcFiles* files);
};

// Makes a token for a block. `handle` is the driver's handle of the chunk at `block.chunk`; it is
// ignored for a block in units. False if the system is out of memory, or before begin_exporting().
bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token);

// The chunk that begins here is about to go back to the driver: its tokens become invalid.
void end_exports_at(uint64_t chunk);
// Units were unmapped from these addresses: tokens of blocks that begin there become invalid. To be
// called before other units are mapped there.
void end_exports_in(uint64_t address, uint64_t bytes);
void end_exports_of(CUcontext context);

// The answer to an importer that has this token (with its secret), and in `files` the descriptors
// to send with it.
IpcAnswer answer_for(const IpcToken& token, uint32_t first, const IpcPools& pools, IpcFiles* files);

// Whether this process made the token and the program still holds its block. Sets *block, and
// *handle to the driver's handle of its chunk; a block in units has none.
bool find_exported(const IpcToken& token, const IpcPools& pools, CUipcMemHandle* handle,
                   HeldBlock* block);

// This process as its next token names it; nullptr before begin_exporting().
const IpcProcess* exporting_process();
// The same, after drawing a name and a secret if there are none; nullptr if the system has no
// random numbers.
const IpcProcess* begin_exporting();
// To be called if another process has taken the socket's name: tokens from now on carry a new name.
// This process still recognises its older tokens, but nobody answers importers of them. False after
// kMostNames names.
bool take_another_name();
inline constexpr uint32_t kMostNames = 64;
// Whether this process made the token.
bool own_token(const IpcToken& token);
// How many tokens were made, and how many times an importer got the block of one.
uint64_t tokens_made();
uint64_t tokens_answered();

void reset_exports_after_fork();

// --- the thread that answers importers ---

// Starts the thread unless it runs. False if it cannot start, or if this process has the overflow
// id, by which no peer can be recognised (is_own_user(), protocol.h). Any thread.
bool serve_importers(const IpcPools& pools);

// The answer to one message that came to the thread's socket: at best `come`. The message may hold
// anything; `size` is its whole size. An answer without magic is not sent.
IpcAnswer answer_request(const void* message, size_t size, uid_t user);
// The answer to one message that came on a line, and in `files` the descriptors to send with it.
IpcAnswer answer_message(const void* message, size_t size, uid_t user, const IpcPools& pools,
                         IpcFiles* files);

// To be called when the process ends: the thread begins no further driver call. Waits for calls
// that are under way, but at most 100 ms.
void stop_service();

void reset_service_after_fork();

// At most kMostLines importers have a line at a time; others wait in the queue. A line is closed
// after kLineNs, or after kFairNs if all lines are taken. A real importer sends its request on the
// line at once. If it was too slow, it begins again.
inline constexpr size_t kMostLines = 16;
inline constexpr uint64_t kLineNs = 1'000'000'000;
inline constexpr uint64_t kFairNs = 20'000'000;

// Used only by the service, and in a child that is being forked by close_in_child().
class IpcLines {
 public:
  // Closes lines older than kLineNs. Whether there is room for another line, be it in place of one
  // older than kFairNs.
  bool has_room(uint64_t now_ns);
  // For how many ns has_room() returns the same and closes nothing, unless a line is opened or
  // closed meanwhile.
  uint64_t unchanged_for(uint64_t now_ns) const;
  bool empty() const { return count_ == 0; }
  // Opens a line to the importer that sent the request with this number, and sends `come` on it.
  // Does nothing if there is no room, if the importer is gone, or if it already has a line.
  void invite(const IpcProcess& own, uint64_t number, const IpcSender& to, const IpcAnswer& come,
              uint64_t now_ns);

  // Writes what poll() needs for each line, in their order; returns how many (kMostLines at most).
  size_t put_polled(pollfd* out) const;
  // The line at a place. close_at() closes it, and moves the last line to that place.
  const OwnSocket& at(size_t i) const { return lines_[i].socket; }
  void close_at(size_t i);
  void close_all();
  void close_in_child();

 private:
  struct Line {
    OwnSocket socket;
    uint64_t number;
    uint64_t since_ns;
  };

  size_t oldest() const;
  // Whether all lines are taken, and the oldest one is older than kFairNs.
  bool one_may_go(uint64_t now_ns) const;

  Line lines_[kMostLines]{};
  size_t count_ = 0;
};

}  // namespace cistern::shim
