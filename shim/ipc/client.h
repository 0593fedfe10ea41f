// SPDX-License-Identifier: Apache-2.0
// The importer's requests to the exporter, the process that made a token. They wait at most
// kIpcWaitMs, whatever the exporter does, and return at once if it has ended. They are no
// cancellation points. Any thread; the caller may hold no lock.
#pragma once

#include "shim/ipc/protocol.h"

namespace cistern::shim {

inline constexpr int kIpcWaitMs = 5000;

// How long all requests for one block may wait together; a large block needs many. The first
// kPromptNs of each wait do not count.
struct IpcPatience {
  static constexpr uint64_t kPromptNs = 10'000'000;
  uint64_t left_ns = uint64_t{kIpcWaitMs} * 1'000'000;
};

enum class IpcReply : uint8_t {
  given,
  gone,     // the block was freed
  refused,  // the exporter belongs to another user, or may do so
  unable,   // the exporter cannot get descriptors of the units
  come,     // repeat the request on a line (protocol.h); ask_exporter() never returns it
  version,  // the exporter has another version of Cistern
  nobody,   // no such process, or it is in another network namespace
  silent,   // no answer came in time, for example because the process is stopped
  failed,   // this process cannot open a socket, or not all the descriptors that came
};

// Asks the exporter for the block. `first`: the first of the block's units whose descriptor is
// wanted. `files` gets descriptors only if the reply is `given`.
IpcReply ask_exporter(const IpcToken& token, uint32_t first, IpcPatience* patience, IpcAnswer* out,
                      IpcFiles* files);

// The request to the exporter's name, the one on the line, and the proof that a true answer shows.
struct Question {
  IpcRequest request, on_line;
  uint64_t proof;
};
Question question_about(const IpcToken& token, uint32_t first, uint64_t number);

// Reads a message that came with `files` descriptors. False: it is no answer to this question.
bool read_answer(const void* message, size_t size, const Question& question, uint32_t files,
                 IpcAnswer* out, IpcReply* reply);

}  // namespace cistern::shim
