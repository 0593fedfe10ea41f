// SPDX-License-Identifier: Apache-2.0
// Internal names of jemalloc 5.3 that Cistern uses: its archive has them, its header does not.
// jemalloc's public calls can set extent hooks only for an arena that exists. So every arena would
// have to be made at load, which touches 22 pages for each arena and 20 pages for mallctl's tables.
// Besides, memory that other libraries' constructors allocate before would not be the pool's. With
// a jemalloc that lacks one of these names libcistern.so does not link (scripts/host-jemalloc).
#pragma once

#include <jemalloc/jemalloc.h>

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
