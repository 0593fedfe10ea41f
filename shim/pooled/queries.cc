// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/memory.h"

#include <atomic>
#include <cstring>

#include "shim/ipc/exporter.h"
#include "shim/order/ask.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

bool in_a_unit(CUdeviceptr address) {
  alloc::Chunk* chunk;
  return ours(address, &chunk) && chunk->is() == alloc::Role::range;
}

constexpr uint64_t kQuarantineShare = 8;  // a quarantine may take 1/8 of the device

// The thread that answers importers calls these two as well. The first makes no driver call.
bool held_at(uint64_t address, HeldBlock* out) {
  alloc::Chunk* chunk;
  if (!ours(address, &chunk) || !alloc::cuts_blocks(chunk->is())) return false;
  if (!context_of(chunk)->pool.find(chunk, address, &out->start, &out->bytes)) return false;
  out->in_units = chunk->is() == alloc::Role::range;
  out->chunk = out->in_units ? out->start : chunk->base();
  return true;
}

// Exports the units that the pool has there now; they may be another block's already.
bool files_of_units(const HeldBlock& block, uint32_t first, IpcAnswer* answer, IpcFiles* files) {
  alloc::Chunk* chunk;
  if (!ours(block.start, &chunk)) return true;
  Context& owner = *context_of(chunk);
  const Visit visit(owner);
  CudaUnits* source = visit.open() ? owner.source.units() : nullptr;
  if (source == nullptr) return true;
  bool had = true;
  owner.pool.visit_units_of(
      chunk, block.start, [&](const alloc::Unit* units, uint32_t count, uint64_t offset) {
        answer->offset = offset;
        answer->unit_bytes = source->unit_bytes();
        answer->units = count;
        for (uint32_t i = first; had && i < count && files->count() < kMostFiles; ++i) {
          int file = -1;
          // An error may belong to earlier work.
          had = source->export_file(units[i], &file) == CUDA_SUCCESS ||
                source->export_file(units[i], &file) == CUDA_SUCCESS;
          if (had) files->add(file);
        }
      });
  return had;
}

constexpr IpcPools kPools{held_at, files_of_units};

bool quarantine_is_full(Context& owner) {
  const Device& device = device_state(owner.device);
  const uint64_t most = device.total.load() / kQuarantineShare;
  if (device.ledger.quarantined.get() > most) owner.pool.release_known();
  if (device.ledger.quarantined.get() <= most) return false;
  static constinit std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    log(config::LogLevel::kWarn,
        "no IPC handles of blocks inside chunks any more: %llu bytes that were exported and freed "
        "wait for the end of their chunks; allowed are %llu; CISTERN_ONLY_SIZES keeps sizes out of "
        "chunks",
        static_cast<unsigned long long>(device.ledger.quarantined.get()),
        static_cast<unsigned long long>(most));
  }
  return true;
}

void tell_no_handles_of_units() {
  static constinit std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  const StaticModeSeen seen = static_mode_seen();
  log(config::LogLevel::kWarn,
      "no IPC handle can be had of static memory on this device; value seen %s=%d; "
      "CISTERN_ONLY_SIZES keeps sizes out of it",
      seen.name, seen.value);
}

void tell_first_token() {
  static constinit std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  log(config::LogLevel::kInfo,
      "the program exports a block inside a chunk (IPC): processes that open it must run under "
      "Cistern, too, CISTERN_POOL=off is enough; for others CISTERN_ONLY_SIZES keeps its size out "
      "of chunks");
}

// For units the driver can only be asked whether the first one can be exported.
CUresult ask_about_units(Context& owner, alloc::Chunk* chunk, CUdeviceptr address) {
  const CudaUnits* source = owner.source.units();
  if (source == nullptr || !source->can_be_files()) {
    tell_no_handles_of_units();
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult result = CUDA_ERROR_INVALID_VALUE;  // freed meanwhile
  owner.pool.visit_units_of(chunk, address, [&](const alloc::Unit* units, uint32_t, uint64_t) {
    IpcFiles files;
    int file = -1;
    result = source->export_file(*units, &file);
    if (result == CUDA_SUCCESS) files.add(file);
  });
  return result;
}

// The driver is asked at each export, so that it refuses what it would refuse without Cistern.
CUresult export_part(Context& owner, alloc::Chunk* chunk, CUipcMemHandle* handle,
                     CUdeviceptr address) {
  HeldBlock block;
  if (!held_at(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (quarantine_is_full(owner)) return CUDA_ERROR_NOT_SUPPORTED;
  CUipcMemHandle of_chunk{}, token;
  const CUresult result = block.in_units ? ask_about_units(owner, chunk, address)
                                         : ask(driver().cuIpcGetMemHandle, &of_chunk, block.chunk);
  if (result != CUDA_SUCCESS) return result;
  if (!owner.pool.mark_exported(chunk, address)) return CUDA_ERROR_INVALID_VALUE;
  if (!serve_importers(kPools) || !export_by_token(block, owner.handle.load(), of_chunk, &token)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  tell_first_token();
  *handle = token;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult block_range(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr* base, size_t* size,
                     CUdeviceptr address) {
  uint64_t start, bytes;
  if (refusal_here() != CUDA_SUCCESS || !pool.find(chunk, address, &start, &bytes)) {
    return ask(driver().cuMemGetAddressRange_v2, base, size, kNowhere);
  }
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = bytes;
  return CUDA_SUCCESS;
}

CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes) {
  if (!policy().expandable()) return address;
  const bool ends_inside = bytes > 1 && in_a_unit(address + bytes - 1);
  return in_a_unit(address) || ends_inside ? kNowhere : address;
}

CUresult export_block(alloc::Chunk* chunk, CUipcMemHandle* handle, CUdeviceptr address) {
  Context& owner = *context_of(chunk);
  if (const CUresult result = refusal(owner); result != CUDA_SUCCESS) return result;
  alloc::ContextPool& pool = owner.pool;
  if (!pool.is_live(chunk, address)) return CUDA_ERROR_INVALID_VALUE;
  if (alloc::cuts_blocks(chunk->is())) return export_part(owner, chunk, handle, address);
  const CUresult result = ask(driver().cuIpcGetMemHandle, handle, address);
  if (result == CUDA_SUCCESS) {
    pool.mark_exported(chunk, address);
    pool.note_size_told(chunk);
  }
  return result;
}

bool own_handle(const CUipcMemHandle& handle, CUipcMemHandle* out, bool* in_units) {
  IpcToken token;
  if (exporting_process() == nullptr || !read_token(handle, &token) || !own_token(token)) {
    return false;
  }
  HeldBlock block;
  const bool held = find_exported(token, kPools, out, &block);
  if (!held) *out = handle;
  *in_units = held && block.in_units;
  return true;
}

}  // namespace cistern::shim
