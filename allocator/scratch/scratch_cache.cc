// SPDX-License-Identifier: Apache-2.0
#include "allocator/scratch/scratch_cache.h"

#include <algorithm>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// times * bytes, in a way that no rounding or overflow makes too small.
uint64_t most_for(double times, uint64_t bytes) {
  const double most = times * static_cast<double>(bytes);
  return most >= 0x1p63 ? ~uint64_t{0} : std::max(bytes, static_cast<uint64_t>(most));
}

}  // namespace

void ScratchCache::init(uint64_t limit, double times, bool only_clean, Reclaim* reclaim) {
  limit_ = limit;
  times_ = times;
  only_clean_ = only_clean;
  reclaim_ = reclaim;
}

// --- streams ---

bool ScratchCache::add_stream(uint64_t key, uint64_t handle, uint16_t context, uint16_t device,
                              Ledger* ledger) {
  LockGuard guard(mutex_);
  if (blocks_ == nullptr) {
    blocks_ = static_cast<BlockTable*>(os::map(sizeof(BlockTable)));
    if (blocks_ == nullptr) return false;
  }
  if (streams_.find(key) != nullptr) return true;  // another thread did
  ScratchStream* stream = stream_records_.take();
  if (stream == nullptr) return false;
  *stream = {.next = nullptr,
             .key = key,
             .handle = handle,
             .context = context,
             .device = device,
             .ended = false,
             .out = 0,
             .ended_at = 0,
             .ledger = ledger,
             .bytes = 0,
             .tree = {},
             .unserved = {}};
  streams_.insert(stream);
  return true;
}

// --- allocation ---

ScratchCache::Took ScratchCache::take(uint64_t key, uint64_t bytes, uint64_t* address,
                                      Ticket* wait_for) {
  *wait_for = 0;
  const uint64_t most = most_for(times_, bytes);
  LockGuard guard(mutex_);
  ScratchStream* stream = streams_.find(key);
  if (stream == nullptr) return Took::unknown_stream;
  ScratchBlock* block = stream->tree.at_least(bytes);
  Ticket newest_unclean = 0;
  // Of equal ones the first is the oldest: if that is not clean, none is.
  while (block != nullptr && block->bytes <= most && only_clean_ &&
         block->word > reclaim_->clean(stream->context)) {
    newest_unclean = std::max(newest_unclean, block->word);
    block = stream->tree.at_least(block->bytes + 1);
  }
  if (block == nullptr || block->bytes > most) {
    *wait_for = newest_unclean;
    return Took::miss;
  }
  stream->tree.remove(block);
  stream->bytes -= block->bytes;
  stream->ledger->scratch_bytes.sub(block->bytes);
  stream->ledger->scratch_hits.add();
  block->stream = nullptr;
  block->word = bytes;
  *address = block->address();
  return Took::hit;
}

void ScratchCache::add(uint64_t address, uint64_t bytes, uint64_t key, uint32_t epoch) {
  LockGuard guard(mutex_);
  ScratchStream* stream = streams_.find(key);
  if (stream == nullptr) return;
  stream->ledger->scratch_misses.add();
  forget_locked(address);
  ScratchBlock* block = block_records_.take();
  if (block == nullptr) return;  // then its free is the driver's
  block->key = address;
  blocks_->insert(block);
  block->bytes = block->word = bytes;
  block->stream = nullptr;
  block->context = stream->context;
  block->device = stream->device;
  block->unfit = epoch != epoch_.load(std::memory_order_relaxed);
}

void ScratchCache::forget(uint64_t address) {
  LockGuard guard(mutex_);
  forget_locked(address);
}

// The driver gave the address out anew: whatever it was before went by a way that is not seen here.
void ScratchCache::forget_locked(uint64_t address) {
  ScratchBlock* block = lookup(address);
  if (block == nullptr) return;
  blocks_->remove(block);
  if (ScratchStream* stream = block->stream) {
    if (block->unfit || stream->ended) {
      stream->unserved.remove(block);
    } else {
      stream->tree.remove(block);
    }
    stream->bytes -= block->bytes;
    stream->ledger->scratch_bytes.sub(block->bytes);
  }
  block_records_.give_back(block);
}

// --- free ---

void ScratchCache::cache(ScratchBlock* block, ScratchStream* stream) {
  block->stream = stream;
  stream->bytes += block->bytes;
  if (block->unfit || stream->ended) {
    stream->unserved.push(block);
  } else {
    stream->tree.insert(block);
  }
}

ScratchCache::Freed ScratchCache::free(uint64_t address, uint64_t key, ScratchBlock** out,
                                       ScratchList* over_limit) {
  LockGuard guard(mutex_);
  ScratchBlock* block = lookup(address);
  if (block == nullptr) return Freed::foreign;
  if (block->stream != nullptr) return Freed::invalid;
  ScratchStream* stream = key == 0 ? nullptr : streams_.find(key);
  if (stream == nullptr && key != 0) return Freed::unknown_stream;
  *out = block;
  // A stream of another context keeps nothing that would go with this one.
  if (stream == nullptr || stream->ended || block->unfit || stream->context != block->context) {
    blocks_->remove(block);
    return Freed::pass;
  }
  if (stream->bytes > limit_ || block->bytes > limit_ - stream->bytes) {
    collect_locked(stream, over_limit);
    blocks_->remove(block);
    return Freed::pass;
  }
  block->word = only_clean_ ? reclaim_->open() : 0;
  stream->ledger->scratch_bytes.add(block->bytes);
  cache(block, stream);
  return Freed::cached;
}

void ScratchCache::freed(ScratchBlock* block, bool done) {
  LockGuard guard(mutex_);
  if (done) {
    block_records_.give_back(block);
  } else {
    blocks_->insert(block);
  }
}

ScratchCache::Found ScratchCache::find(uint64_t address, uint64_t* bytes) {
  LockGuard guard(mutex_);
  const ScratchBlock* block = lookup(address);
  if (block == nullptr) return Found::foreign;
  if (block->stream != nullptr) return Found::not_live;
  *bytes = block->word;
  return Found::live;
}

void ScratchCache::mark_exported(uint64_t address) {
  LockGuard guard(mutex_);
  ScratchBlock* block = lookup(address);
  if (block != nullptr && block->stream == nullptr) block->unfit = true;
}

// Scratch blocks going back to the driver, and the ends of streams, pools and contexts.

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
