// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/imported.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/ties.h"
#include "shim/pooled/out_of_memory.h"

namespace cistern::shim {
namespace {

struct Block {
  Block* next;
  uint64_t key;  // its address
  uint64_t bytes;
  uint64_t times;  // opens less closes
  Mapping* mapping;
};

constinit alloc::Mutex table_mutex;
constinit alloc::KeyedTable<Mapping, 8> mappings{};
constinit alloc::KeyedTable<Block, 10> blocks{};
constinit alloc::Arena<Mapping, size_t{64} << 10> mapping_arena{};
constinit alloc::Arena<Block, size_t{64} << 10> block_arena{};
constinit Mapping* left_over = nullptr;  // units still mapped, with no open block
constinit std::atomic<uint64_t> imported{0};

bool same(const Mapping& a, const Mapping& b) {
  return a.context == b.context && a.context_number == b.context_number &&
         memcmp(&a.handle, &b.handle, sizeof a.handle) == 0;
}

// Caller holds the lock for the functions down to add_user().
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

// For a mapping whose context has ended, or for units that cannot be unmapped yet. The driver
// unmaps a chunk with its context, but not units.
void drop_mapping(Mapping* mapping) {
  if (!mapping->in_units()) return forget_mapping(mapping);
  take_out(mapping);
  mapping->next = left_over;
  left_over = mapping;
}

// Drops mappings whose end no hook saw: the driver has reused their addresses, or the handle of
// their context. The same chunk may lie at the same address in two contexts.
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

}  // namespace

bool use_open_mapping(const Mapping& wanted, const IpcAnswer& answer, CUdeviceptr* out) {
  const alloc::LockGuard guard(table_mutex);
  Mapping* mapping = open_mapping(wanted);
  return mapping != nullptr && add_user(mapping, answer.offset, answer.bytes, out);
}

bool use_new_mapping(const Mapping& opened, const IpcAnswer& answer, CUdeviceptr* out) {
  const alloc::LockGuard guard(table_mutex);
  Mapping* mapping = open_mapping(opened);
  if (mapping != nullptr) return false;
  drop_what_is_over(opened);
  mapping = mapping_arena.take();
  if (mapping == nullptr) return false;
  *mapping = opened;
  mappings.insert(mapping);
  if (add_user(mapping, answer.offset, answer.bytes, out)) return true;
  forget_mapping(mapping);
  return false;
}

bool note_surplus(const Mapping& opened) {
  const alloc::LockGuard guard(table_mutex);
  Mapping* mapping = open_mapping(opened);
  if (mapping == nullptr || mapping->key != opened.key) return false;
  ++mapping->surplus;
  return true;
}

Closing begin_closing(CUdeviceptr address, bool waited, Mapping** mapping, CUcontext* context) {
  const alloc::LockGuard guard(table_mutex);
  Block* block = blocks.find(address, [](const Block& b) { return !b.mapping->closing; });
  if (block == nullptr) {
    return mapping_around(address) != nullptr ? Closing::not_open : Closing::foreign;
  }
  *mapping = block->mapping;
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

void end_closing(Mapping* mapping, Closed how) {
  const alloc::LockGuard guard(table_mutex);
  mapping->closing = false;
  if (how == Closed::closed) {
    forget_mapping(mapping);
  } else if (how == Closed::still_mapped || mapping->gone) {
    drop_mapping(mapping);
  }
}

Mapping* take_left_over(CUcontext idle) {
  const alloc::LockGuard guard(table_mutex);
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
  const alloc::LockGuard guard(table_mutex);
  while (list != nullptr) {
    Mapping* units = std::exchange(list, list->next);
    units->next = std::exchange(left_over, units);
  }
}

void forget_left_over(Mapping* units) { mapping_arena.give_back(units); }

bool find_open_block(CUdeviceptr address, uint64_t* start, uint64_t* bytes, CUcontext* opener,
                     uint64_t* unit_bytes) {
  *bytes = *unit_bytes = 0;
  if (imported.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  const alloc::LockGuard guard(table_mutex);
  if (mapping_around(address) == nullptr) return false;
  const Block* block = blocks.search(
      [=](const Block& b) { return !b.mapping->closing && address - b.key < b.bytes; });
  if (block == nullptr) return true;
  *start = block->key;
  *bytes = block->bytes;
  *opener = block->mapping->context;
  *unit_bytes = block->mapping->unit_bytes;
  return true;
}

uint64_t blocks_opened() { return imported.load(std::memory_order_relaxed); }

void drop_mappings_of(CUcontext context) {
  if (blocks_opened() == 0) return;
  const alloc::LockGuard guard(table_mutex);
  const auto mark = [=](Mapping* m) { m->gone |= m->context == context; };
  mappings.for_each(mark);
  for (Mapping* units = left_over; units != nullptr; units = units->next) mark(units);
  const auto of_it = [](const Mapping& m) { return m.gone && !m.closing; };
  while (Mapping* gone = mappings.search(of_it)) drop_mapping(gone);
}

void reset_imported_after_fork() {
  table_mutex.reset();
  mapping_arena.reset_after_fork();
  left_over = nullptr;
  block_arena.reset_after_fork();
}

// --- memory in units ---

namespace {

bool has_all_calls(const Driver& d) {
  return d.cuMemAddressReserve != nullptr && d.cuMemAddressFree != nullptr &&
         d.cuMemImportFromShareableHandle != nullptr && d.cuMemRelease != nullptr &&
         d.cuMemMap != nullptr && d.cuMemUnmap != nullptr && d.cuMemSetAccess != nullptr;
}

// For calls that give something back: repeats a failed call, since the error may belong to earlier
// work.
template <typename Call>
CUresult for_sure(Call call) {
  const CUresult result = call();
  return result == CUDA_SUCCESS ? result : call();
}

// A mapping keeps its memory without a handle.
CUresult map_file(int file, CUdeviceptr address, uint64_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* as_pointer = reinterpret_cast<void*>(static_cast<intptr_t>(file));  // as cuda.h wants it
  CUresult result = ask_with_idle_memory(driver().cuMemImportFromShareableHandle, &handle,
                                         as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = ask_with_idle_memory(driver().cuMemMap, address, bytes, size_t{0}, handle, 0ULL);
  const LetByCaptures allowed;
  for_sure([=] { return driver().cuMemRelease(handle); });
  return result;
}

// The peers with access were determined for the current device, but the memory may be on another.
// The driver refuses a list with a device that cannot have access. Then only the current device
// gets access.
CUresult give_access(const MappedUnits& units) {
  CUmemAccessDesc list[64];
  CUdevice own = 0;
  size_t count = 0;
  for (uint64_t left = devices_of_current(&own); left != 0; left &= left - 1) {
    list[count].location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = std::countr_zero(left)};
    list[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  const auto give = [&](const CUmemAccessDesc* first, size_t devices) {
    return ask_with_idle_memory(driver().cuMemSetAccess, units.base, size_t{units.bytes}, first,
                                devices);
  };
  const CUresult result = give(list, count);
  if (result == CUDA_SUCCESS || count < 2) return result;
  list[0].location.id = own;
  return give(list, 1);
}

// Maps the units of all answers; `*mapped`: the bytes that were mapped.
CUresult map_all(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                 IpcPatience* patience, const MappedUnits& out, uint64_t* mapped, IpcReply* reply) {
  const uint64_t unit = first.unit_bytes;
  while (*mapped < out.bytes) {
    if (files->count() == 0) {
      IpcAnswer next;
      *reply = ask_exporter(token, static_cast<uint32_t>(*mapped / unit), patience, &next, files);
      if (*reply != IpcReply::given) return CUDA_ERROR_INVALID_VALUE;
      // All answers about one block agree in these.
      if (next.unit_bytes != unit || next.offset != first.offset) return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < files->count(); ++i, *mapped += unit) {
      const CUresult result = map_file(files->number(i), out.base + *mapped, unit);
      if (result != CUDA_SUCCESS) return result;
    }
    files->close_all();
  }
  return give_access(out);
}

void free_addresses(const MappedUnits& units) {
  for_sure([&] { return driver().cuMemAddressFree(units.base, units.bytes); });
}

}  // namespace

CUresult map_units(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                   IpcPatience* patience, MappedUnits* out, IpcReply* reply) {
  if (!has_all_calls(driver())) return CUDA_ERROR_NOT_SUPPORTED;
  // The product cannot overflow: it is the end of the block, rounded up to units (ipc/client.cc).
  out->bytes = first.units * first.unit_bytes;
  CUresult result =
      ask_with_idle_memory(driver().cuMemAddressReserve, &out->base, size_t{out->bytes},
                           size_t{first.unit_bytes}, CUdeviceptr{0}, 0ULL);
  if (result != CUDA_SUCCESS) return result;
  uint64_t mapped = 0;
  result = map_all(token, first, files, patience, *out, &mapped, reply);
  files->close_all();
  if (result == CUDA_SUCCESS) return result;
  const LetByCaptures allowed;
  // A mapping may exist although its call returned the error of earlier work.
  for (uint64_t at = 0; at < out->bytes && at <= mapped; at += first.unit_bytes) {
    for_sure([&] { return driver().cuMemUnmap(out->base + at, first.unit_bytes); });
  }
  free_addresses(*out);
  return result;
}

CUresult unmap_units(const MappedUnits& units) {
  const LetByCaptures allowed;
  const auto unmap = [&] { return ask(driver().cuMemUnmap, units.base, size_t{units.bytes}); };
  CUresult result = unmap();
  // The first error may belong to earlier work, and the call may have unmapped the units.
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) {
    result = unmap();
    if (result == CUDA_ERROR_INVALID_VALUE) result = CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) free_addresses(units);
  return result;
}

}  // namespace cistern::shim
