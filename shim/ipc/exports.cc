// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/exports.h"

#include <cstring>

#include "allocator/base/arena.h"
#include "allocator/base/keyed_table.h"
#include "allocator/base/mutex.h"

namespace cistern::shim {
namespace {

struct Exported {
  Exported* next;
  uint64_t key;  // the chunk's address
  uint64_t number;
  CUcontext context;
  CUipcMemHandle handle;
};

constinit alloc::Mutex mutex;
constinit alloc::KeyedTable<Exported, 8> chunks{};
constinit alloc::Arena<Exported, size_t{64} << 10> arena{};
constinit uint64_t last_number = 0;
constinit IpcProcess process{};
constinit std::atomic<bool> described{false};
constinit std::atomic<uint64_t> made{0}, answered{0};

bool describe() {
  if (described.load(std::memory_order_relaxed)) return true;
  if (!describe_ipc_process(&process)) return false;
  described.store(true, std::memory_order_release);
  return true;
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

}  // namespace

bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token) {
  const alloc::LockGuard guard(mutex);
  if (!describe()) return false;
  Exported* chunk = chunks.find(block.chunk);
  if (chunk == nullptr) chunk = add(block, context, handle);
  if (chunk == nullptr) return false;
  *token = make_token(process, block.start, block.bytes, chunk->number);
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

void end_exports_of(CUcontext context) {
  const alloc::LockGuard guard(mutex);
  give_back(chunks.remove_all([=](const Exported& e) { return e.context == context; }));
}

// The number is looked at after the block was found: a chunk that went meanwhile took its number
// along, and a block that is held in a chunk with the number is the one that was exported, since
// what was exported is handed out no more.
IpcAnswer answer_for(const IpcToken& token, bool (*held)(uint64_t address, HeldBlock* out)) {
  IpcAnswer answer{};
  answer.status = IpcStatus::gone;
  HeldBlock block;
  if (!described.load(std::memory_order_acquire) ||
      memcmp(token.process.key, process.key, sizeof process.key) != 0 ||
      !held(token.address, &block) || block.start != token.address || block.bytes != token.bytes) {
    return answer;
  }
  const alloc::LockGuard guard(mutex);
  const Exported* chunk = chunks.find(block.chunk);
  if (chunk == nullptr || chunk->number != token.chunk) return answer;
  answer.status = IpcStatus::given;
  answer.handle = chunk->handle;
  answer.offset = block.start - block.chunk;
  answer.bytes = block.bytes;
  answered.fetch_add(1, std::memory_order_relaxed);
  return answer;
}

const IpcProcess* exporting_process() {
  return described.load(std::memory_order_acquire) ? &process : nullptr;
}

uint64_t tokens_made() { return made.load(std::memory_order_relaxed); }

uint64_t tokens_answered() { return answered.load(std::memory_order_relaxed); }

void reset_exports_after_fork() {
  mutex.reset();
  arena.reset_after_fork();
  chunks = {};  // the parent's
  described.store(false);
}

}  // namespace cistern::shim
