// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share about jemalloc: names inside of it, and large blocks, which
// large_blocks.cc serves in its place.
#pragma once

#include <jemalloc/jemalloc.h>

#include <cstddef>
#include <cstdint>

// --- Internal names of jemalloc 5.3 that Cistern uses: its archive has them, its header does not.
// jemalloc's public calls can set extent hooks only for an arena that exists. So every arena would
// have to be made at load, which touches 22 pages for each arena and 20 pages for mallctl's tables.
// Besides, memory that other libraries' constructors allocate before would not be the pool's. With
// a jemalloc that lacks one of these names libcistern.so does not link (scripts/host-jemalloc).

extern "C" {

// The configuration of every arena except the first one and those that the program makes with hooks
// of its own. The build makes jemalloc's definition weak, so this one replaces it.
struct JemallocArenaConfig {
  extent_hooks_t* extent_hooks;
  bool also_for_metadata;
};
[[gnu::visibility("hidden")]] extern JemallocArenaConfig arena_config asm(
    "je_arena_config_default");
extern extent_hooks_t jemalloc_extent_hooks asm("je_ehooks_default_extent_hooks");

// The first arena exists before it can be configured. Its hooks are set in its base.
struct JemallocBase;
JemallocBase* base_of_first_arena() asm("je_b0get");
extent_hooks_t* set_extent_hooks(JemallocBase* base,
                                 extent_hooks_t* hooks) asm("je_base_extent_hooks_set");

// opt.cache_oblivious, which no configuration string can set: whether a large block begins at a
// random offset in its first page, and so needs a page more.
extern bool varies_beginnings asm("je_opt_cache_oblivious");
// opt.prof, and the number of arenas for threads that chose none. Valid once jemalloc has read its
// configuration.
extern bool profiles asm("je_opt_prof");
extern unsigned arenas_of_threads asm("je_narenas_auto");
// opt.hpa: jemalloc's allocator of huge pages, which uses JemallocExtent::excess itself.
extern bool huge_pages asm("je_opt_hpa");

// The first members of jemalloc's record of a large block.
struct JemallocExtent {
  uint64_t bits;
  void* address;
  size_t bytes_and_count;  // whole pages, and a number in the bits below
  // Bytes of a block in use beyond its request (large_blocks.cc). jemalloc itself uses this member
  // only with opt.hpa; else it leaves 0 here.
  size_t excess;
};

// Gives an extent that is in no cache back to the extent hook. "stats.mapped" does not count it.
void give_extent_to_hook(void* thread, void* pages, void* hooks,
                         JemallocExtent* extent) asm("je_extent_dalloc_wrapper");

// opt.retain. Valid once jemalloc has read its configuration.
extern bool retains asm("je_opt_retain");

}  // extern "C"

namespace cistern::shim {

// --- Large blocks, if no setting of host memory is set: the program then must not use more memory
// than with the C library.
//
//   below 8 MiB    the last freed 32 MiB are kept for requests of the same size class, or of one
//                  that is more than half as large. Without that, jemalloc would merge and split
//                  their pages each time. If a kept block serves a smaller request, its rest still
//                  counts as kept. Kept memory counts as idle in the pool, so that both together
//                  stay within the pool's bound
//   from 8 MiB on  each block is a mapping of its own (HostPolicy::own_bytes). It is unmapped when
//                  the block is freed; its pages move when the block grows. If there is no memory
//                  for the whole size class, only the requested bytes are mapped
//                  (HostPool::take_backed)

inline constexpr size_t kOwnMappingBytes = size_t{8} << 20;

// Switches this on. To be called during jemalloc's first call.
void serve_large_blocks();

// What a call of malloc's family passes to the extent hook on the same thread. One word, because
// the object has few bytes of thread-local storage: the address of memory held for the hook
// (jemalloc.cc), or, with the lowest bit set, the requested bytes rounded up to pages.
extern constinit thread_local uintptr_t left_for_hook;

// The requested bytes of the extent that the hook is asked for; 0 if they are not known.
inline size_t asked_of_extent() {
  return (left_for_hook & 1) != 0 ? static_cast<size_t>(left_for_hook - 1) : 0;
}

// The usable bytes of a block whose size is `bytes` according to jemalloc.
size_t usable_of(const void* block, size_t bytes);

// Whether the usable bytes are fewer than jemalloc says.
bool backed_in_part(const void* block);

// realloc() of a block of 8 MiB or more to a larger size. Null with `*done`: there is no memory.
// Null without it: jemalloc must do the work.
void* grow_large_block(void* block, size_t bytes, bool* done);

// Returns kept blocks to the pool; `for_good`: and keeps none from now on.
void give_back_kept_blocks(bool for_good);

// Around a fork: take and release the lock of kept blocks; in the child, reset it.
void lock_kept_blocks();
void unlock_kept_blocks();
void reset_kept_blocks_lock();

}  // namespace cistern::shim
