// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/imported.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "allocator/base/arena.h"
#include "allocator/base/keyed_table.h"
#include "allocator/base/mutex.h"
#include "shim/ipc/client.h"
#include "shim/kinds/import_words.h"
#include "shim/kinds/imported_units.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/let_by_captures.h"
#include "shim/order/streams/events.h"
#include "shim/pooled/exported.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/pooled/queries.h"
#include "shim/pooled/refusal.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

// A chunk of another process, as a context has it open, and all flags with which it was opened; or
// a block in units, of which the handle is its token and there are no flags.
// `closing`: a thread asks the driver to close it, and takes the record away then, and nobody else
// does. Whoever wants the chunk meanwhile opens it anew, and may get the same addresses before the
// record is away. `gone`: its context went.
struct Mapping {
  Mapping* next;
  uint64_t key;  // where it begins
  uint64_t bytes;
  CUcontext context;
  unsigned long long context_number;
  unsigned flags;
  CUipcMemHandle handle;
  uint64_t users;    // open blocks, each as often as it is open
  uint64_t surplus;  // that the driver counts beside these, as it would not close them
  bool closing, gone, in_units;
};

struct Block {
  Block* next;
  uint64_t key;  // its address
  uint64_t bytes;
  uint64_t times;  // that it was opened, less those that it was closed
  Mapping* mapping;
};

constinit alloc::Mutex mutex;
constinit alloc::KeyedTable<Mapping, 8> mappings{};
constinit alloc::KeyedTable<Block, 10> blocks{};
constinit alloc::Arena<Mapping, size_t{64} << 10> mapping_arena{};
constinit alloc::Arena<Block, size_t{64} << 10> block_arena{};
constinit Mapping* left_over = nullptr;  // units that nobody has open, and that are mapped
constinit std::atomic<uint64_t> imported{0}, unanswered{0};

bool same(const Mapping& a, const Mapping& b) {
  return a.context == b.context && a.context_number == b.context_number &&
         memcmp(&a.handle, &b.handle, sizeof a.handle) == 0;
}

// The functions down to drop_mapping() with the lock.
Mapping* open_mapping(const Mapping& wanted) {
  return mappings.search([&](const Mapping& m) { return !m.closing && same(m, wanted); });
}

Mapping* mapping_around(uint64_t address) {
  return mappings.search([=](const Mapping& m) { return address - m.key < m.bytes; });
}

void take_out(Mapping* mapping) {
  Block* gone = blocks.remove_all([=](const Block& b) { return b.mapping == mapping; });
  while (gone != nullptr) {
    Block* next = gone->next;
    block_arena.give_back(gone);
    gone = next;
  }
  mappings.remove(mapping);
}

void forget_mapping(Mapping* mapping) {
  take_out(mapping);
  mapping_arena.give_back(mapping);
}

// Of a context that is over; the driver has taken a chunk away with it, but no units. Or of units
// that cannot be unmapped yet.
void drop_mapping(Mapping* mapping) {
  if (!mapping->in_units) return forget_mapping(mapping);
  take_out(mapping);
  mapping->next = left_over;
  left_over = mapping;
}

// Units left over of contexts that are gone, and of `idle`, which is waited for before they are
// unmapped.
Mapping* take_left_over(CUcontext idle) {
  const alloc::LockGuard guard(mutex);
  Mapping* taken = nullptr;
  for (Mapping** at = &left_over; *at != nullptr;) {
    Mapping* units = *at;
    if (!units->gone && units->context != idle) {
      at = &units->next;
    } else {
      *at = units->next;
      units->next = std::exchange(taken, units);
    }
  }
  return taken;
}

void leave_over_again(Mapping* list) {
  const alloc::LockGuard guard(mutex);
  while (list != nullptr) {
    Mapping* units = std::exchange(list, list->next);
    units->next = std::exchange(left_over, units);
  }
}

// Waits for all work of the current context. Without pools nobody knows whether a stream captures:
// a capture would be invalid after a wait for its context, but not after a free, which waits, too.
CUresult wait_for_work() {
  const auto allocate = driver().cuMemAlloc_v2;
  if (!active() && allocate != nullptr) {
    const LetByCaptures allowed;
    CUdeviceptr nothing = 0;
    if (allocate(&nothing, 1) == CUDA_SUCCESS) return ask(driver().cuMemFree_v2, nothing);
  }
  return ask(driver().cuCtxSynchronize);
}

// The same for a context that may use a mapping, since unmapping waits for no work. One that is
// over has none.
CUresult wait_for_work_of(CUcontext context) {
  const ContextScope there(context);
  if (!there) return CUDA_SUCCESS;
  const CUresult result = wait_for_work();
  const bool over =
      result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
  return over ? CUDA_SUCCESS : result;
}

// Without the lock. No work reaches them any more.
void unmap_all(Mapping* list) {
  while (list != nullptr) {
    Mapping* units = std::exchange(list, list->next);
    if (may_call()) unmap_units({units->key, units->bytes});
    mapping_arena.give_back(units);
  }
}

// Those of a context that goes on, which were closed during a capture, stay until something there
// is closed: only that may wait for its work.
void unmap_those_of_the_gone() {
  const GatePass pass;
  if (pass) unmap_all(take_left_over(nullptr));
}

// What ended without being seen: the driver gave addresses anew, or the handle of a context. The
// same chunk may be at the same place for two contexts.
void drop_what_is_over(const Mapping& opened) {
  const auto over = [&](const Mapping& m) {
    if (m.closing) return false;
    if (m.context == opened.context && m.context_number != opened.context_number) return true;
    const bool meet = m.key < opened.key + opened.bytes && opened.key < m.key + m.bytes;
    return meet && memcmp(&m.handle, &opened.handle, sizeof m.handle) != 0;
  };
  while (Mapping* stale = mappings.search(over)) {
    stale->gone = true;
    drop_mapping(stale);
  }
}

bool add_user(Mapping* mapping, uint64_t offset, uint64_t bytes, CUdeviceptr* out) {
  const uint64_t address = mapping->key + offset;
  Block* block = blocks.find(address, [=](const Block& b) { return b.mapping == mapping; });
  if (block == nullptr) {
    block = block_arena.take();
    if (block == nullptr) return false;
    *block = {nullptr, address, bytes, 0, mapping};
    blocks.insert(block);
  }
  ++block->times;
  ++mapping->users;
  imported.fetch_add(1, std::memory_order_relaxed);
  *out = address;
  return true;
}

// Of a chunk that is open already. False: it is not.
bool use_open_mapping(const Mapping& wanted, const IpcAnswer& answer, CUdeviceptr* out) {
  const alloc::LockGuard guard(mutex);
  Mapping* mapping = open_mapping(wanted);
  return mapping != nullptr && (wanted.flags & ~mapping->flags) == 0 &&
         add_user(mapping, answer.offset, answer.bytes, out);
}

// Of a chunk that the driver has just opened. False: it was open already, to another thread or with
// other flags, which the driver has obeyed by now; or there is no memory. Then the driver, which
// counts, is to close it once.
bool use_new_mapping(const Mapping& opened, const IpcAnswer& answer, CUdeviceptr* out) {
  const alloc::LockGuard guard(mutex);
  Mapping* mapping = open_mapping(opened);
  if (mapping != nullptr) {
    mapping->flags |= opened.flags;
    return false;
  }
  drop_what_is_over(opened);
  mapping = mapping_arena.take();
  if (mapping == nullptr) return false;
  *mapping = opened;
  mappings.insert(mapping);
  if (add_user(mapping, answer.offset, answer.bytes, out)) return true;
  forget_mapping(mapping);
  return false;
}

// What was opened beside a mapping that is there, or in vain, is closed. If the driver would not,
// it is asked once more, but not before nobody needs what it counts: the first error may belong to
// earlier work, and the call have done its own.
void close_surplus(const Mapping& opened) {
  if (driver().cuIpcCloseMemHandle(opened.key) == CUDA_SUCCESS) return;
  {
    const alloc::LockGuard guard(mutex);
    Mapping* mapping = open_mapping(opened);
    if (mapping != nullptr && mapping->key == opened.key) {
      ++mapping->surplus;
      return;
    }
  }
  driver().cuIpcCloseMemHandle(opened.key);
}

// An error may belong to earlier work, so the driver is asked once more.
size_t size_at(CUdeviceptr base) {
  const auto range = driver().cuMemGetAddressRange_v2;
  size_t bytes = 0;
  if (range(nullptr, &bytes, base) == CUDA_SUCCESS ||
      range(nullptr, &bytes, base) == CUDA_SUCCESS) {
    return bytes;
  }
  return 0;
}

// The size of what the driver opened has to hold the block: an exporter may say anything.
CUresult open_chunk(OpenMemHandle* real, const IpcAnswer& answer, Mapping* wanted) {
  CUdeviceptr base = 0;
  const CUresult result = ask_with_idle_memory(real, &base, answer.handle, wanted->flags);
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

// The token is the block's name: what was exported in units is handed out no more before its number
// is nobody's.
CUresult open_in_units(CUdeviceptr* out, const IpcToken& token, const IpcAnswer& answer,
                       IpcFiles* files, IpcPatience* patience, Mapping wanted, IpcReply* reply) {
  memcpy(&wanted.handle, &token, sizeof wanted.handle);
  wanted.in_units = true;
  wanted.flags = 0;
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

// False: the driver has none, and says so.
bool describe_context(Mapping* out) {
  if (driver().cuCtxGetCurrent == nullptr ||
      driver().cuCtxGetCurrent(&out->context) != CUDA_SUCCESS)
    return false;
  const auto number_of = driver().cuCtxGetId;
  if (number_of != nullptr) number_of(out->context, &out->context_number);
  return out->context != nullptr;
}

void reset_after_fork() {
  mutex.reset();
  mapping_arena.reset_after_fork();
  left_over = nullptr;
  block_arena.reset_after_fork();
}

// Without pools nobody else sees to forked children (process/life.h).
void prepare_for_forks() {
  static constinit std::atomic<bool> prepared{false};
  if (!prepared.exchange(true)) pthread_atfork(nullptr, nullptr, reset_after_fork);
}

enum class Closing : uint8_t { foreign, not_open, still_open, others_use_it, last };

// Where a block is closed for good whose chunk others use, its context is to be waited for before
// (`waited`): the driver does that at the end of a block of its own.
Closing begin_closing(CUdeviceptr address, bool waited, Block** last, CUcontext* context) {
  const alloc::LockGuard guard(mutex);
  Block* block = blocks.find(address, [](const Block& b) { return !b.mapping->closing; });
  if (block == nullptr) {
    return mapping_around(address) != nullptr ? Closing::not_open : Closing::foreign;
  }
  *last = block;
  *context = block->mapping->context;
  if (block->mapping->users == 1) {
    block->mapping->closing = true;
    return Closing::last;
  }
  if (block->times == 1 && !waited) return Closing::others_use_it;
  --block->mapping->users;
  if (--block->times == 0) {
    blocks.remove(block);
    block_arena.give_back(block);
  }
  return Closing::still_open;
}

// What the driver would refuse here whatever the address is. Without pools nothing is known of the
// context.
CUresult refusal_of_any_call() {
  if (active()) return refusal_here();
  size_t free, total;
  return ask(driver().cuMemGetInfo_v2, &free, &total);
}

// Waits for the work of a context; what was left over there before is unmapped then. `*capturing`:
// there was no wait, which would have made a capture invalid.
CUresult await_end_of_work(CUcontext context, bool* capturing) {
  const GatePass pass;
  *capturing = !pass;
  if (*capturing) return CUDA_SUCCESS;
  Mapping* before = take_left_over(context);
  const CUresult result = wait_for_work_of(context);
  result == CUDA_SUCCESS ? unmap_all(before) : leave_over_again(before);
  return result;
}

// `*later`: it is mapped still, because of a capture.
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

// A close before told of earlier work, and had done its own.
bool driver_has_nothing(const Mapping& mapping, CUresult told) {
  return !mapping.in_units && told == CUDA_ERROR_INVALID_VALUE;
}

CUresult close_chunk(Block* block) {
  Mapping* mapping = block->mapping;
  bool later = false;
  const CUresult result =
      mapping->in_units ? close_units(*mapping, &later) : close_chunk_itself(mapping);
  {
    const alloc::LockGuard guard(mutex);
    mapping->closing = false;
    if (later || (mapping->gone && result != CUDA_SUCCESS)) {
      drop_mapping(mapping);
    } else if (result == CUDA_SUCCESS || driver_has_nothing(*mapping, result)) {
      forget_mapping(mapping);
    }
  }
  unmap_those_of_the_gone();
  return result;
}

// As the driver refuses a block of the process itself.
CUresult refuse_own() {
  const CUresult refused = refusal_of_any_call();
  return refused != CUDA_SUCCESS ? refused : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

bool by_token(const CUipcMemHandle& handle) {
  IpcToken token;
  return read_token(handle, &token);
}

// What the driver refuses whatever the handle is, it refuses first.
CUresult open_imported(OpenMemHandle* real, CUdeviceptr* out, const CUipcMemHandle& handle,
                       unsigned flags) {
  const NoCancel opens;
  Mapping wanted{};
  wanted.flags = flags;
  const bool known_flags = (flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) == 0;
  if (real == nullptr || out == nullptr || !known_flags || !describe_context(&wanted)) {
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
  Block* block;
  CUcontext context = nullptr;
  Closing closing = begin_closing(address, /*waited=*/false, &block, &context);
  if (closing == Closing::others_use_it) {
    bool capturing;
    if (const CUresult waited = await_end_of_work(context, &capturing); waited != CUDA_SUCCESS) {
      return waited;
    }
    closing = begin_closing(address, /*waited=*/true, &block, &context);
  }
  switch (closing) {
    case Closing::last:
      return close_chunk(block);
    case Closing::still_open:
    case Closing::others_use_it:
      return CUDA_SUCCESS;
    case Closing::not_open:
      return ask(real, kNowhere);
    default:
      return ask(real, address);
  }
}

bool find_imported(CUdeviceptr address, uint64_t* start, uint64_t* bytes, CUcontext* opener) {
  *bytes = 0;
  if (imported.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  const alloc::LockGuard guard(mutex);
  if (mapping_around(address) == nullptr) return false;
  const Block* block = blocks.search(
      [=](const Block& b) { return !b.mapping->closing && address - b.key < b.bytes; });
  if (block == nullptr) return true;
  *start = block->key;
  *bytes = block->bytes;
  if (opener != nullptr && block->mapping->in_units) *opener = block->mapping->context;
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

uint64_t blocks_imported() { return imported.load(std::memory_order_relaxed); }

uint64_t imports_unanswered() { return unanswered.load(std::memory_order_relaxed); }

// With the lock of contexts, and so without a call of the driver.
void imports_of_context_gone(CUcontext context) {
  if (blocks_imported() == 0) return;
  const alloc::LockGuard guard(mutex);
  const auto mark = [=](Mapping* m) { m->gone |= m->context == context; };
  mappings.for_each(mark);
  for (Mapping* units = left_over; units != nullptr; units = units->next) mark(units);
  const auto of_it = [](const Mapping& m) { return m.gone && !m.closing; };
  while (Mapping* gone = mappings.search(of_it)) drop_mapping(gone);
}

void unmap_imports_of_gone() {
  if (blocks_imported() != 0) unmap_those_of_the_gone();
}

}  // namespace cistern::shim
