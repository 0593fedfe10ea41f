// SPDX-License-Identifier: Apache-2.0
// The importer's questions to the process that made a token. They wait at most kIpcWaitMs, whatever
// the other side does, and notice at once if its process has ended. They are no cancellation
// points. Any thread; no lock may be held.
#pragma once

#include "shim/ipc/protocol.h"

namespace cistern::shim {

inline constexpr int kIpcWaitMs = 5000;

// What the questions of one opening may wait together: for a large block there are many. Of each
// wait the first kPromptNs cost nothing of it.
struct IpcPatience {
  static constexpr uint64_t kPromptNs = 10'000'000;
  uint64_t left_ns = uint64_t{kIpcWaitMs} * 1'000'000;
};

enum class IpcReply : uint8_t {
  given,
  gone,     // the block was freed
  refused,  // the exporter is another user's, or may be
  unable,   // the exporter cannot have descriptors of the units
  come,     // to a line, and ask there: of ask_exporter() no reply
  version,  // another version of Cistern
  nobody,   // no such process, or in another network namespace
  silent,   // nothing came in time, as from a process that is stopped
  failed,   // this process can open no socket, or not as many descriptors as came
};

// `first`: of the units that the block lies in, the first whose descriptor is wanted. `files` has
// descriptors only where the reply is `given`.
IpcReply ask_exporter(const IpcToken& token, uint32_t first, IpcPatience* patience, IpcAnswer* out,
                      IpcFiles* files);

// What is sent to the exporter's name, then on the line, and the proof that each answer has.
struct Question {
  IpcRequest request, on_line;
  uint64_t proof;
};
Question question_about(const IpcToken& token, uint32_t first, uint64_t number);

// What a message means that came from the exporter, with so many descriptors; false: it is no
// answer to this question.
bool read_answer(const void* message, size_t size, const Question& question, uint32_t files,
                 IpcAnswer* out, IpcReply* reply);

}  // namespace cistern::shim
