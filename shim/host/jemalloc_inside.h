// SPDX-License-Identifier: Apache-2.0
// The names that we use of jemalloc 5.3's inside: its archive has them, its header does not. With
// its public calls extent hooks can be set only for an arena that exists. So every arena would have
// to be made at load, which touches 22 pages for each, and mallctl's tables, which are 20 pages
// more; and what other libraries' constructors allocate before would not be the pool's. With a
// jemalloc that lacks one of these names libcistern.so does not link (scripts/host-jemalloc).
#pragma once

#include <jemalloc/jemalloc.h>

extern "C" {

// How jemalloc makes an arena: each but the first, and those the program asks for without hooks of
// its own. jemalloc's definition is a weak one here, so that this one prevails.
struct JemallocArenaConfig {
  extent_hooks_t* extent_hooks;
  bool also_for_metadata;
};
[[gnu::visibility("hidden")]] extern JemallocArenaConfig arena_config asm(
    "je_arena_config_default");
extern extent_hooks_t jemalloc_extent_hooks asm("je_ehooks_default_extent_hooks");

// The first arena is made before anything can be said of it; its hooks are kept in its base.
struct JemallocBase;
JemallocBase* base_of_first_arena() asm("je_b0get");
extent_hooks_t* set_extent_hooks(JemallocBase* base,
                                 extent_hooks_t* hooks) asm("je_base_extent_hooks_set");

// opt.cache_oblivious, which the configuration cannot say: whether a large block begins at a random
// place in its first page, and is a page longer for it.
extern bool varies_beginnings asm("je_opt_cache_oblivious");
// opt.prof, and the number of arenas that serve threads which chose none, once it was read.
extern bool profiles asm("je_opt_prof");
extern unsigned arenas_of_threads asm("je_narenas_auto");
// opt.hpa: an allocator of huge pages, which has a use of its own for JemallocExtent::excess.
extern bool huge_pages asm("je_opt_hpa");

// The beginning of what jemalloc knows of each large block.
struct JemallocExtent {
  uint64_t bits;
  void* address;
  size_t bytes_and_count;  // whole pages, and a number in the bits below
  // What a block in use has beyond its request (large_blocks.cc). jemalloc uses it with opt.hpa
  // alone; else it is null.
  size_t excess;
};

// Gives an extent that is in no cache to the hook. It does not count in "stats.mapped".
void give_extent_to_hook(void* thread, void* pages, void* hooks,
                         JemallocExtent* extent) asm("je_extent_dalloc_wrapper");

// opt.retain, once the configuration was read.
extern bool retains asm("je_opt_retain");

}  // extern "C"
