// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/imported.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// Why a block of another process could not be opened. The log gets one line for each reason, the
// program CUDA's code.
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

void tell_not_imported(IpcReply reply, const IpcToken& token) {
  static constinit std::atomic<uint32_t> told{0};
  const uint32_t bit = uint32_t{1} << static_cast<int>(reply);
  if ((told.fetch_or(bit) & bit) != 0) return;
  log(config::LogLevel::kWarn, "the IPC handle of a block of process %d cannot be opened: %s",
      token.process.number, reason(reply, token.process.network != network_namespace()));
}

// cuda.h, cuIpcOpenMemHandle: the flags "Must be specified as" this.
constexpr unsigned kOnlyFlag = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

constinit std::atomic<uint64_t> unanswered{0};

// Waits for all work of the current context. Without pools it is unknown whether a stream captures.
// Synchronising the context would invalidate a capture; a free waits as well, but does not
// invalidate it.
CUresult wait_for_work() {
  const auto allocate = driver().cuMemAlloc_v2;
  if (!active() && allocate != nullptr) {
    const LetByCaptures allowed;
    CUdeviceptr nothing = 0;
    if (allocate(&nothing, 1) == CUDA_SUCCESS) return ask(driver().cuMemFree_v2, nothing);
  }
  return ask(driver().cuCtxSynchronize);
}

// The same for a context that may use a mapping, since unmapping waits for no work. A context that
// has ended has no work.
CUresult wait_for_work_of(CUcontext context) {
  const ContextScope there(context);
  if (!there) return CUDA_SUCCESS;
  const CUresult result = wait_for_work();
  const bool over =
      result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
  return over ? CUDA_SUCCESS : result;
}

// Caller must not hold the lock. No work can reach these units any more.
void unmap_all(Mapping* list) {
  while (list != nullptr) {
    Mapping* units = std::exchange(list, list->next);
    if (may_call()) unmap_units({units->key, units->bytes});
    forget_left_over(units);
  }
}

// Unmaps units of contexts that have ended. Units that were closed during a capture in a context
// that still exists stay until another close there: only a close may wait for the context's work.
void unmap_those_of_the_gone() {
  const GatePass pass;
  if (pass) unmap_all(take_left_over(nullptr));
}

// Closes a chunk that was opened although there is a mapping of it already, or that is of no use.
// If the close fails, the error may belong to earlier work, and the chunk may be closed
// nevertheless. The close is repeated only if no mapping needs the driver's count of opens.
void close_surplus(const Mapping& opened) {
  if (driver().cuIpcCloseMemHandle(opened.key) == CUDA_SUCCESS) return;
  if (note_surplus(opened)) return;
  driver().cuIpcCloseMemHandle(opened.key);
}

// The first error may belong to earlier work, so the query is repeated once.
size_t size_at(CUdeviceptr base) {
  const auto range = driver().cuMemGetAddressRange_v2;
  size_t bytes = 0;
  if (range(nullptr, &bytes, base) == CUDA_SUCCESS ||
      range(nullptr, &bytes, base) == CUDA_SUCCESS) {
    return bytes;
  }
  return 0;
}

// The chunk that the driver opened must contain the block: an exporter may send anything.
CUresult open_chunk(OpenMemHandle* real, const IpcAnswer& answer, Mapping* wanted) {
  CUdeviceptr base = 0;
  const CUresult result = ask_with_idle_memory(real, &base, answer.handle, kOnlyFlag);
  if (result != CUDA_SUCCESS) return result;
  wanted->key = base;
  wanted->bytes = size_at(base);
  const bool holds_it =
      answer.offset <= wanted->bytes && answer.bytes <= wanted->bytes - answer.offset;
  if (holds_it) return CUDA_SUCCESS;
  close_surplus(*wanted);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult open_block(OpenMemHandle* real, CUdeviceptr* out, const IpcAnswer& answer,
                    Mapping wanted) {
  wanted.handle = answer.handle;
  constexpr int kAttempts = 16;  // other threads open and close it meanwhile
  for (int i = 0; i < kAttempts; ++i) {
    if (use_open_mapping(wanted, answer, out)) return CUDA_SUCCESS;
    if (const CUresult result = open_chunk(real, answer, &wanted); result != CUDA_SUCCESS) {
      return result;
    }
    const bool used = use_new_mapping(wanted, answer, out);
    unmap_those_of_the_gone();
    if (used) return CUDA_SUCCESS;
    close_surplus(wanted);
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The token identifies the block: exported units are not handed out again while their number is in
// use.
CUresult open_in_units(CUdeviceptr* out, const IpcToken& token, const IpcAnswer& answer,
                       IpcFiles* files, IpcPatience* patience, Mapping wanted, IpcReply* reply) {
  memcpy(&wanted.handle, &token, sizeof wanted.handle);
  wanted.unit_bytes = answer.unit_bytes;
  constexpr int kAttempts = 16;
  for (int i = 0; i < kAttempts; ++i) {
    if (use_open_mapping(wanted, answer, out)) return CUDA_SUCCESS;
    MappedUnits units;
    const CUresult result = map_units(token, answer, files, patience, &units, reply);
    if (result != CUDA_SUCCESS) return result;
    wanted.key = units.base;
    wanted.bytes = units.bytes;
    const bool used = use_new_mapping(wanted, answer, out);
    unmap_those_of_the_gone();
    if (used) return CUDA_SUCCESS;
    unmap_units(units);
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// False: no context is current. The driver's call then returns the error.
bool describe_context(Mapping* out) {
  if (driver().cuCtxGetCurrent == nullptr ||
      driver().cuCtxGetCurrent(&out->context) != CUDA_SUCCESS)
    return false;
  const auto number_of = driver().cuCtxGetId;
  if (number_of != nullptr) number_of(out->context, &out->context_number);
  return out->context != nullptr;
}

// Without pools no other part resets this state in forked children (process/settings.h).
void prepare_for_forks() {
  static constinit std::atomic<bool> prepared{false};
  if (!prepared.exchange(true)) at_fork(nullptr, nullptr, reset_imported_after_fork);
}

// The driver's error for a call with any address here. Without pools the context's state is
// unknown, so the driver is asked.
CUresult refusal_of_any_call() {
  if (active()) return refusal_here();
  size_t free, total;
  return ask(driver().cuMemGetInfo_v2, &free, &total);
}

// Waits for the work of a context, then unmaps units that were left over there. `*capturing`: there
// was no wait, because it would have invalidated a capture.
CUresult await_end_of_work(CUcontext context, bool* capturing) {
  const GatePass pass;
  *capturing = !pass;
  if (*capturing) return CUDA_SUCCESS;
  Mapping* before = take_left_over(context);
  const CUresult result = wait_for_work_of(context);
  result == CUDA_SUCCESS ? unmap_all(before) : leave_over_again(before);
  return result;
}

// `*later`: still mapped, because of a capture.
CUresult close_units(const Mapping& mapping, bool* later) {
  const CUresult waited = await_end_of_work(mapping.context, later);
  if (waited != CUDA_SUCCESS || *later) return waited;
  return unmap_units({mapping.key, mapping.bytes});
}

CUresult close_chunk_itself(Mapping* mapping) {
  const CUresult result = ask(driver().cuIpcCloseMemHandle, mapping->key);
  if (result != CUDA_SUCCESS) return result;
  for (; mapping->surplus != 0; --mapping->surplus) driver().cuIpcCloseMemHandle(mapping->key);
  return result;
}

// An earlier close returned the error of other work, but did close the chunk.
bool driver_has_nothing(const Mapping& mapping, CUresult told) {
  return !mapping.in_units() && told == CUDA_ERROR_INVALID_VALUE;
}

CUresult close_mapping(Mapping* mapping) {
  bool later = false;
  const CUresult result =
      mapping->in_units() ? close_units(*mapping, &later) : close_chunk_itself(mapping);
  const bool closed = result == CUDA_SUCCESS || driver_has_nothing(*mapping, result);
  end_closing(mapping, later ? Closed::still_mapped : closed ? Closed::closed : Closed::still_open);
  unmap_those_of_the_gone();
  return result;
}

// The error that the driver returns for a block of the same process.
CUresult refuse_own() {
  const CUresult refused = refusal_of_any_call();
  return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

bool by_token(const CUipcMemHandle& handle) {
  IpcToken token;
  return read_token(handle, &token);
}

// If the driver would refuse any handle, its error comes first.
CUresult open_imported(OpenMemHandle* real, CUdeviceptr* out, const CUipcMemHandle& handle,
                       unsigned flags) {
  const NoCancel opens;
  Mapping wanted{};
  if (real == nullptr || out == nullptr || flags != kOnlyFlag || !describe_context(&wanted)) {
    return ask(real, out, handle, flags);
  }
  CUipcMemHandle own;
  bool in_units;
  if (own_handle(handle, &own, &in_units)) {
    return in_units ? refuse_own() : ask(real, out, own, flags);
  }
  prepare_for_forks();
  IpcToken token;
  read_token(handle, &token);
  IpcAnswer answer;
  IpcFiles files;
  IpcPatience patience;
  IpcReply reply = ask_exporter(token, 0, &patience, &answer, &files);
  if (reply == IpcReply::given && answer.unit_bytes == 0) {
    return open_block(real, out, answer, wanted);
  }
  if (reply == IpcReply::given) {
    const CUresult result = open_in_units(out, token, answer, &files, &patience, wanted, &reply);
    if (reply == IpcReply::given) return result;
  }
  if (reply != IpcReply::gone) unanswered.fetch_add(1, std::memory_order_relaxed);
  tell_not_imported(reply, token);
  return ask(real, out, handle, flags);
}

CUresult close_imported(CUdeviceptr address) {
  const auto real = driver().cuIpcCloseMemHandle;
  if (blocks_imported() == 0) return ask(real, address);
  const NoCancel closes;
  uint64_t start, bytes;
  if (!find_imported(address, &start, &bytes)) return ask(real, address);
  if (const CUresult refused = refusal_of_any_call(); refused != CUDA_SUCCESS) return refused;
  Mapping* mapping = nullptr;
  CUcontext context = nullptr;
  Closing closing = begin_closing(address, /*waited=*/false, &mapping, &context);
  if (closing == Closing::others_use_it) {
    bool capturing;
    if (const CUresult waited = await_end_of_work(context, &capturing); waited != CUDA_SUCCESS) {
      return waited;
    }
    closing = begin_closing(address, /*waited=*/true, &mapping, &context);
  }
  switch (closing) {
    case Closing::last:
      return close_mapping(mapping);
    case Closing::still_open:
    case Closing::others_use_it:
      return CUDA_SUCCESS;
    case Closing::not_open:
      return ask(real, kNowhere);
    default:
      return ask(real, address);
  }
}

bool find_imported(CUdeviceptr address, uint64_t* start, uint64_t* bytes, ImportedUnits* units) {
  ImportedUnits found{};
  if (!find_open_block(address, start, bytes, &found.opener, &found.unit_bytes)) return false;
  if (units != nullptr && found.unit_bytes != 0) *units = found;
  return true;
}

CUresult imported_range(CUdeviceptr* base, size_t* size, uint64_t start, uint64_t bytes) {
  if (bytes == 0 || refusal_of_any_call() != CUDA_SUCCESS) {
    return ask(driver().cuMemGetAddressRange_v2, base, size, kNowhere);
  }
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = bytes;
  return CUDA_SUCCESS;
}

uint64_t blocks_imported() { return blocks_opened(); }

uint64_t imports_unanswered() { return unanswered.load(std::memory_order_relaxed); }

// Called with the lock of context_life.cc held.
void imports_of_context_gone(CUcontext context) { drop_mappings_of(context); }

void unmap_imports_of_gone() {
  if (blocks_imported() != 0) unmap_those_of_the_gone();
}

}  // namespace cistern::shim
