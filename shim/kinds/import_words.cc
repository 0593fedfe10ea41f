// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/import_words.h"

#include <atomic>

#include "shim/process/log.h"

namespace cistern::shim {
namespace {

const char* reason(IpcReply reply, bool other_network) {
  switch (reply) {
    case IpcReply::gone:
      return "it was freed; a block is opened while its owner holds it";
    case IpcReply::refused:
      return "that process is another user's; both have to be one user's";
    case IpcReply::unable:
      return "that process cannot send descriptors of its memory; allow it more open files (ulimit "
             "-n)";
    case IpcReply::version:
      return "that process runs another version of Cistern; use the same in both";
    case IpcReply::silent:
      return "that process does not answer; it has to run, and not be stopped";
    case IpcReply::failed:
      return "this process can open no more files; allow it more (ulimit -n)";
    default:
      return other_network ? "that process has another network namespace; share it (docker run "
                             "--network), or keep the size out of chunks there (CISTERN_ONLY_SIZES)"
                           : "that process has ended; a block is opened while its owner lives";
  }
}

}  // namespace

void tell_not_imported(IpcReply reply, const IpcToken& token) {
  static constinit std::atomic<uint32_t> told{0};
  const uint32_t bit = uint32_t{1} << static_cast<int>(reply);
  if ((told.fetch_or(bit) & bit) != 0) return;
  log(config::LogLevel::kWarn, "the IPC handle of a block of process %d cannot be opened: %s",
      token.process.number, reason(reply, token.process.network != network_namespace()));
}

}  // namespace cistern::shim
