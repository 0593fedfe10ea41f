// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/chunk_supply.h"

#include "allocator/base/os.h"

namespace cistern::alloc {

void ChunkSupply::init(SharedChunks* shared, MemorySource* source, const DeviceParts& device,
                       uint32_t owner) {
  shared_ = shared;
  source_ = source;
  ledger_ = device.ledger;
  cap_ = device.cap;
  index = device.index != nullptr ? device.index : &shared->index;
  owner_ = owner;
  closed_.store(false);
  cache.init(owner, device.party(owner), device.garbage, device.reuse);
  obtained_in_.reset();
  filler.init(source, device.ledger, device.fill);
}

Chunk* ChunkSupply::obtain(uint64_t bytes, Role role, int* code) {
  const InHand until_known(*this);
  const CountedIn obtaining(shared_->threads_obtaining);
  *code = kContextGone;
  if (closed_.load()) return nullptr;
  *code = kOutOfMemory;
  if (!cap_->charge(bytes)) return nullptr;  // no call to the source: not `refused`
  Chunk* chunk = shared_->chunks.take();
  if (chunk == nullptr) {
    cap_->refund(bytes);
    return nullptr;
  }
  uint64_t address;
  const uint64_t start = os::now_ns();
  *code = source_->obtain(bytes, &address);
  note_obtain(os::now_ns() - start);
  if (*code == kSuccess) {
    chunk->set_range(address, bytes);
    chunk->exported.store(false, std::memory_order_relaxed);
    chunk->cut = false;
    chunk->move_to({owner_, role, 0});
    chunk->set_requested(bytes);
    chunk->born = shared_->reclaim.epoch();
    if (index->insert(chunk)) {
      ledger_->obtained.add();
      ledger_->note_size_taken(bytes);
      ledger_->chunks.add();
      cache.reserved.add(bytes);
      cache.note_use();
      ledger_->reserved.add(bytes);
      ledger_->reserved_peak.raise_to(ledger_->reserved.get());
      if (role != Role::released) cache.count_obtained(bytes);
      return chunk;
    }
    source_->release_for_program(address, /*ordered=*/nullptr);
    *code = kOutOfMemory;
  }
  ledger_->refused.add();
  cap_->refund(bytes);
  shared_->chunks.give_back(chunk);
  return nullptr;
}

int ChunkSupply::obtain_direct(Request& request) {
  int code;
  const Chunk* chunk = obtain(request.bytes, Role::direct, &code);
  if (chunk == nullptr) return code;
  request.address = chunk->base();
  request.whole = true;
  return code;
}

int ChunkSupply::release_for_program(Chunk* chunk, uint64_t requested, const OrderedFree* ordered) {
  const int code = source_->release_for_program(chunk->base(), ordered);
  if (code == kSuccess) {
    ledger_->released.add();
    forget(chunk);
    cache.count_released(requested);
  } else {
    chunk->set_requested(requested);
    chunk->become(Role::direct);
  }
  cache.put_down();
  return code;
}

bool ChunkSupply::release(ChunkList* chunks) {
  bool any = false;
  while (Chunk* chunk = chunks->pop()) {
    const int code = source_->release(chunk->base());
    if (code == kNotNow) {
      cache.put_back(chunk, shared_->reclaim);
      continue;
    }
    (code == kSuccess ? ledger_->released : ledger_->lost).add();
    forget(chunk);
    any = true;
  }
  return any;
}

bool ChunkSupply::release_clean(ChunkList* chunks, Order order) {
  ChunkList kept;
  bool any = false;
  bool able = order == Order::none_owed || source_->pays_what_it_owes(order == Order::waits);
  while (Chunk* chunk = chunks->pop()) {
    able = able && source_->can_release_clean() &&
           source_->release_clean(chunk->base(), chunk->size()) == kSuccess;
    if (able) {
      any = true;
      ledger_->released.add();
      forget(chunk);
    } else {
      kept.push(chunk);
    }
  }
  cache.add_idle(&kept);
  return any;
}

void ChunkSupply::forget(Chunk* chunk) {
  index->remove(chunk);
  const uint64_t bytes = chunk->size();
  ledger_->chunks.sub(1);
  cache.reserved.sub(bytes);
  ledger_->reserved.sub(bytes);
  cap_->refund(bytes);
  shared_->chunks.give_back(chunk);
}

}  // namespace cistern::alloc
