// SPDX-License-Identifier: Apache-2.0
// Scratch blocks going back to the driver, and the ends of streams, pools and contexts.
#include "allocator/base/os.h"
#include "allocator/scratch/scratch_cache.h"

namespace cistern::alloc {

// --- streams ---

void ScratchCache::remove(ScratchStream* stream) {
  streams_.remove(stream);
  stream_records_.give_back(stream);
}

void ScratchCache::recycle_if_over(ScratchStream* stream) {
  if (stream->ended && stream->out == 0 && stream->unserved.empty()) remove(stream);
}

void ScratchCache::stop_serving(ScratchStream* stream) {
  while (ScratchBlock* block = stream->tree.any()) {
    stream->tree.remove(block);
    stream->unserved.push(block);
  }
}

void ScratchCache::end(ScratchStream* stream) {
  stream->ended = true;
  stream->ended_at = reclaim_->open();
  stop_serving(stream);
}

// Others who are releasing blocks may take the lock.
void ScratchCache::pause() {
  mutex_.unlock();
  os::sleep_ns(1000);
  mutex_.lock();
}

void ScratchCache::end_stream(uint64_t key) {
  LockGuard guard(mutex_);
  ScratchStream* stream;
  while ((stream = streams_.find(key)) != nullptr && stream->out != 0) pause();
  if (stream == nullptr) return;
  end(stream);
  recycle_if_over(stream);
}

// --- releasing ---

void ScratchCache::collect_locked(ScratchStream* stream, ScratchList* out) {
  stop_serving(stream);
  while (ScratchBlock* block = stream->unserved.pop()) {
    blocks_->remove(block);
    stream->bytes -= block->bytes;
    ++stream->out;
    out->push(block);
  }
}

template <typename Match>
ScratchList ScratchCache::collect_where(Match match) {
  ScratchList list;
  LockGuard guard(mutex_);
  streams_.for_each([&](ScratchStream* stream) {
    if (!closing(stream) && match(*stream)) collect_locked(stream, &list);
  });
  return list;
}

ScratchList ScratchCache::collect_stream(uint64_t key) {
  ScratchList list;
  LockGuard guard(mutex_);
  ScratchStream* stream = streams_.find(key);
  if (stream != nullptr && !stream->ended && !closing(stream)) collect_locked(stream, &list);
  return list;
}

ScratchList ScratchCache::collect_context(uint16_t context) {
  return collect_where([=](const ScratchStream& s) { return s.context == context && !s.ended; });
}

ScratchList ScratchCache::collect_device(uint16_t device) {
  return collect_where([=](const ScratchStream& s) { return s.device == device && !s.ended; });
}

ScratchList ScratchCache::collect_ended(uint16_t context, uint16_t device, Ticket ticket) {
  return collect_where([=](const ScratchStream& s) {
    const bool meant = s.context == context || (s.context == kNoContext && s.device == device);
    return meant && s.ended && s.ended_at <= ticket;
  });
}

void ScratchCache::released(ScratchBlock* block, Released outcome) {
  LockGuard guard(mutex_);
  ScratchStream* stream = block->stream;
  --stream->out;
  if (outcome == Released::done) {
    stream->ledger->scratch_bytes.sub(block->bytes);
    stream->ledger->scratch_released.add();
    block_records_.give_back(block);
    recycle_if_over(stream);
    return;
  }
  if (outcome == Released::stream_gone && !stream->ended) end(stream);
  blocks_->insert(block);
  cache(block, stream);
}

void ScratchCache::stop_serving_device(uint16_t device) {
  LockGuard guard(mutex_);
  epoch_.fetch_add(1, std::memory_order_release);
  if (blocks_ == nullptr) return;
  streams_.for_each([&](ScratchStream* stream) {
    if (stream->device == device) stop_serving(stream);
  });
  blocks_->for_each([=](ScratchBlock* block) {
    if (block->device == device) block->unfit = true;
  });
}

// --- contexts ---

void ScratchCache::close(uint16_t context) {
  LockGuard guard(mutex_);
  ++closing_[context];
  for (bool used = true; used;) {
    used = false;
    streams_.for_each(
        [&](ScratchStream* stream) { used |= stream->context == context && stream->out != 0; });
    if (used) pause();
  }
}

void ScratchCache::reopen(uint16_t context) {
  LockGuard guard(mutex_);
  --closing_[context];
}

void ScratchCache::forget_context(uint16_t context) {
  LockGuard guard(mutex_);
  if (blocks_ == nullptr) return;
  blocks_->for_each([&](ScratchBlock* block) {
    if (block->context != context || block->stream != nullptr) return;
    blocks_->remove(block);
    block_records_.give_back(block);
  });
  ScratchStream* gone =
      streams_.remove_all([=](const ScratchStream& s) { return s.context == context; });
  while (gone != nullptr) {
    ScratchStream* stream = gone;
    gone = stream->next;
    end(stream);
    // The next context may have this one's number, and with it the key of its default stream.
    stream->key = 0;
    stream->context = kNoContext;
    streams_.insert(stream);
    recycle_if_over(stream);
  }
}

}  // namespace cistern::alloc
