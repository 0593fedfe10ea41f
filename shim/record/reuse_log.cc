// SPDX-License-Identifier: Apache-2.0
#include "shim/record/record.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "allocator/base/records.h"
#include "allocator/record/freed_map.h"
#include "shim/process/log.h"

namespace cistern::shim {
namespace {

struct OwnChunk {
  OwnChunk* next;
  uint64_t key;  // its address
  uint64_t bytes;
  uint64_t context;
};

struct Reuse {
  alloc::Mutex mutex;
  alloc::FreedMap freed;
  alloc::KeyedTable<OwnChunk, 12> chunks;
  alloc::Arena<OwnChunk, size_t{64} << 10> chunk_arena;
  uint64_t requests, reused;
  uint64_t asked, saved;  // bytes
  uint64_t held, most_held;
};

constinit Reuse reuse{};

// One line of the log. Names are looked up after the lock was released: that may call the program.
struct Line {
  uint64_t number;     // 0: no memory of another block
  uint64_t saved;      // bytes of the request that another block had before
  uint64_t requested;  // for the block that had most of them
  uint32_t site, range;
  uint64_t most;
};

struct Origin {
  char text[400];
};

// The range, if there is one, and the call site.
void describe(uint32_t range, uint32_t site, Origin* out) {
  size_t length = 0;
  if (range != 0) {
    describe_range(range, out->text, sizeof out->text / 2 - 2);
    length = std::strlen(out->text);
    length +=
        static_cast<size_t>(std::snprintf(out->text + length, sizeof out->text - length, ", "));
  }
  describe_site(site, out->text + length, sizeof out->text - length);
}

void print(const Line& line, const alloc::Event& event) {
  Origin by, before;
  char text[1000];
  describe(event.range, event.site, &by);
  describe(line.range, line.site, &before);
  std::snprintf(text, sizeof text,
                "cistern: reuse %" PRIu64 ": %" PRIu64 " bytes for %s; of a block of %" PRIu64
                " bytes of %s; %" PRIu64 " saved",
                line.number, event.bytes, by.text, line.requested, before.text, line.saved);
  log_line(text);
}

// Caller holds the lock, and has taken the chunk out of the table.
void forget(OwnChunk* chunk) {
  reuse.freed.cut(chunk->key, chunk->bytes, [](const alloc::FreedBlock&, uint64_t) {});
  reuse.held -= chunk->bytes;
  reuse.chunk_arena.give_back(chunk);
}

// A pool obtained a chunk from the driver, or is about to return it.
void log_obtained(uint64_t address, uint64_t bytes, uint64_t context) {
  const alloc::LockGuard guard(reuse.mutex);
  reuse.held += bytes;
  if (reuse.held > reuse.most_held) reuse.most_held = reuse.held;
  OwnChunk* chunk = reuse.chunk_arena.take();
  if (chunk == nullptr) return;
  *chunk = {nullptr, address, bytes, context};
  reuse.chunks.insert(chunk);
}

void log_released(uint64_t address) {
  const alloc::LockGuard guard(reuse.mutex);
  OwnChunk* chunk = reuse.chunks.find(address);
  if (chunk == nullptr) return;
  reuse.chunks.remove(chunk);
  forget(chunk);
}

}  // namespace

void log_context_ended(uint64_t context) {
  const alloc::LockGuard guard(reuse.mutex);
  OwnChunk* gone =
      reuse.chunks.remove_all([=](const OwnChunk& chunk) { return chunk.context == context; });
  while (gone != nullptr) {
    OwnChunk* next = gone->next;
    forget(gone);
    gone = next;
  }
}

void log_allocated(const alloc::Event& event) {
  Line line{};
  {
    const alloc::LockGuard guard(reuse.mutex);
    ++reuse.requests;
    reuse.asked += event.bytes;
    reuse.freed.cut(event.address, event.bytes,
                    [&](const alloc::FreedBlock& block, uint64_t bytes) {
                      line.saved += bytes;
                      if (bytes <= line.most) return;
                      line.most = bytes;
                      line.requested = block.requested;
                      line.site = block.site;
                      line.range = block.range;
                    });
    reuse.saved += line.saved;
    if (line.saved != 0) line.number = ++reuse.reused;
  }
  if (line.number != 0) print(line, event);
}

void log_freed(const alloc::Event& event) {
  const alloc::LockGuard guard(reuse.mutex);
  reuse.freed.add(event.address, event.bytes, event.site, event.range);
}

void log_not_freed(const alloc::Event& event) {
  const alloc::LockGuard guard(reuse.mutex);
  reuse.freed.cut(event.address, event.bytes, [](const alloc::FreedBlock&, uint64_t) {});
}

void log_reuse_summary(uint64_t lost_bytes) {
  char text[400];
  {
    const alloc::LockGuardAtExit guard(reuse.mutex);
    if (!guard) return;
    const double rate = reuse.requests == 0 ? 0
                                            : 100 * static_cast<double>(reuse.reused) /
                                                  static_cast<double>(reuse.requests);
    std::snprintf(text, sizeof text,
                  "cistern: reuse: %" PRIu64 " of %" PRIu64
                  " requests (%.1f %%) got another's memory; %" PRIu64 " bytes requested, %" PRIu64
                  " held at most, %" PRIu64 " saved, %" PRIu64 " lost to rounding",
                  reuse.reused, reuse.requests, rate, reuse.asked, reuse.most_held, reuse.saved,
                  lost_bytes);
  }
  log_line(text);
}

void record_obtained(const ChunkPlace& place, uint64_t address, uint64_t bytes) {
  if (watching(kWatchReuse))
    log_obtained(address, bytes, reinterpret_cast<uint64_t>(place.context));
  if (!watching(kWatchRecord)) return;
  record({.type = alloc::EventType::obtained,
          .memory = place.memory,
          .address = address,
          .bytes = bytes,
          .context = reinterpret_cast<uint64_t>(place.context),
          .device = static_cast<uint32_t>(place.device)});
}

ChunkRelease::ChunkRelease(alloc::Memory memory, uint64_t address)
    : memory_(memory), address_(address) {
  if (!watching()) [[likely]]
    return;
  if (watching(kWatchRecord)) asked_ns_ = record_clock();
  if (watching(kWatchReuse)) log_released(address);
}

int ChunkRelease::ended(int code) const {
  if (asked_ns_ != 0 && code == alloc::kSuccess) {
    record({.type = alloc::EventType::released,
            .memory = memory_,
            .time_ns = asked_ns_,
            .address = address_});
  }
  return code;
}

}  // namespace cistern::shim
