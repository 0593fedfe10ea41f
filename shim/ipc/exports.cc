// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/exports.h"

#include <algorithm>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"

namespace cistern::shim {
namespace {

struct Exported {
  Exported* next;
  uint64_t key;  // the address of the chunk, or of the block in units
  uint64_t number;
  CUcontext context;
  CUipcMemHandle handle;
};

constinit alloc::Mutex mutex;
constinit alloc::KeyedTable<Exported, 8> chunks{};
constinit alloc::Arena<Exported, size_t{64} << 10> arena{};
constinit uint64_t last_number = 0;
constinit IpcProcess names[kMostNames]{};
constinit std::atomic<uint32_t> name_count{0};
constinit std::atomic<uint64_t> made{0}, answered{0};

bool add_name() {
  const uint32_t count = name_count.load(std::memory_order_relaxed);
  if (count == kMostNames || !describe_ipc_process(&names[count])) return false;
  name_count.store(count + 1, std::memory_order_release);
  return true;
}

bool of_this_process(const IpcToken& token) {
  const uint32_t count = name_count.load(std::memory_order_acquire);
  return std::any_of(names, names + count,
                     [&](const IpcProcess& each) { return same_process(token.process, each); });
}

Exported* add(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle) {
  Exported* chunk = arena.take();
  if (chunk == nullptr) return nullptr;
  *chunk = {nullptr, block.chunk, ++last_number, context, handle};
  chunks.insert(chunk);
  return chunk;
}

void give_back(Exported* list) {
  while (list != nullptr) {
    Exported* next = list->next;
    arena.give_back(list);
    list = next;
  }
}

// Whether the memory that begins at an address was exported under this number, and still exists.
bool handle_under(uint64_t chunk, uint64_t number, CUipcMemHandle* out) {
  const alloc::LockGuard guard(mutex);
  const Exported* exported = chunks.find(chunk);
  if (exported == nullptr || exported->number != number) return false;
  *out = exported->handle;
  return true;
}

}  // namespace

bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token) {
  const alloc::LockGuard guard(mutex);
  const IpcProcess* process = exporting_process();
  if (process == nullptr) return false;
  Exported* chunk = chunks.find(block.chunk);
  if (chunk == nullptr) chunk = add(block, context, handle);
  if (chunk == nullptr) return false;
  *token = make_token(*process, block.start, block.bytes, chunk->number);
  made.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void end_exports_at(uint64_t chunk) {
  if (made.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  const alloc::LockGuard guard(mutex);
  Exported* exported = chunks.find(chunk);
  if (exported == nullptr) return;
  chunks.remove(exported);
  arena.give_back(exported);
}

void end_exports_in(uint64_t address, uint64_t bytes) {
  if (made.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  const alloc::LockGuard guard(mutex);
  give_back(chunks.remove_all([=](const Exported& e) { return e.key - address < bytes; }));
}

void end_exports_of(CUcontext context) {
  const alloc::LockGuard guard(mutex);
  give_back(chunks.remove_all([=](const Exported& e) { return e.context == context; }));
}

// The number is checked after the block was found. A chunk that was released meanwhile has lost its
// number. A block in a chunk that still has the number is the exported one, since exported blocks
// are not handed out again.
bool find_exported(const IpcToken& token, const IpcPools& pools, CUipcMemHandle* handle,
                   HeldBlock* block) {
  return of_this_process(token) && pools.find(token.address, block) &&
         block->start == token.address && block->bytes == token.bytes &&
         handle_under(block->chunk, token.chunk, handle);
}

// By the time that their descriptors exist, the units may be another block's. Then the number that
// was looked for is gone.
IpcAnswer answer_for(const IpcToken& token, uint32_t first, const IpcPools& pools,
                     IpcFiles* files) {
  IpcAnswer answer{};
  answer.status = IpcStatus::gone;
  CUipcMemHandle handle;
  HeldBlock block;
  if (!find_exported(token, pools, &handle, &block)) return answer;
  if (block.in_units) {
    const bool had = pools.units(block, first, &answer, files);
    const bool held = answer.unit_bytes != 0 && handle_under(block.chunk, token.chunk, &handle);
    if (!had || !held) {
      files->close_all();
      answer = {};
      answer.status = had ? IpcStatus::gone : IpcStatus::unable;
      return answer;
    }
  } else {
    answer.handle = handle;
    answer.offset = block.start - block.chunk;
  }
  answer.status = IpcStatus::given;
  answer.bytes = block.bytes;
  if (first == 0) answered.fetch_add(1, std::memory_order_relaxed);
  return answer;
}

const IpcProcess* exporting_process() {
  const uint32_t count = name_count.load(std::memory_order_acquire);
  return count == 0 ? nullptr : &names[count - 1];
}

const IpcProcess* begin_exporting() {
  const alloc::LockGuard guard(mutex);
  return exporting_process() != nullptr || add_name() ? exporting_process() : nullptr;
}

bool take_another_name() {
  const alloc::LockGuard guard(mutex);
  return add_name();
}

bool own_token(const IpcToken& token) { return of_this_process(token); }

uint64_t tokens_made() { return made.load(std::memory_order_relaxed); }

uint64_t tokens_answered() { return answered.load(std::memory_order_relaxed); }

void reset_exports_after_fork() {
  mutex.reset();
  arena.reset_after_fork();
  chunks = {};  // they are the parent's
  name_count.store(0);
}

}  // namespace cistern::shim
