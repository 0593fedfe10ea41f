// SPDX-License-Identifier: Apache-2.0
// Call sites: from where in the program a call came, as one number for each distinct call stack.
// Off until a setting needs it. Any thread.
//
// The frames of a site begin with the caller of the hook; Cistern's own are left out. Where the
// thread runs Python, its Python frames stand as one block before the first native frame of the
// interpreter, which ran them: what called CUDA for them comes before, what started them after.
#pragma once

#include <cstdint>

#include "allocator/record/event.h"

namespace cistern::shim {

// From now on capture_site() looks. Makes no CUDA call.
void switch_sites_on();
bool sites_on();

// By the object's constructor: the loader's lock, which this takes, may later be held by a thread
// that waits for one that allocates.
void load_unwinder();

// The site of the calling thread, from 1 on; 0 where it is not known: sites are off, no unwinder
// can be had, the call came out of the unwinder itself, or there is no room for another site. No
// lock of Cistern's may be held.
uint32_t capture_site();

// The sites known so far are 1 to site_count(), and all of them have their frames. What was told of
// a site does not change.
uint32_t site_count();

// The frames of a site, innermost first; how many were written to `out`, which has room for
// alloc::kMostFrames.
int site_frames(uint32_t site, alloc::Frame* out);

// In a forked child, whose only thread is the caller: locks may be held by threads that do not
// exist there.
void reset_sites_after_fork();

}  // namespace cistern::shim
