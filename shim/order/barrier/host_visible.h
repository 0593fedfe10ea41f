// SPDX-License-Identifier: Apache-2.0
// Work of the device that the host can see without asking the driver: it uses memory of the host,
// calls a function of the host, waits for one, or shares what it writes with others. A free waits
// for such work, since the program may look at it right behind the free. All other work can only be
// looked at by a call, which Cistern sees (debts.h).
//
// A kernel or a copy may be such work once host memory is within reach:
//
//   * memory that is pinned, registered, managed, imported, or mapped for a graphics interface
//   * memory or an event that is shared with another process or another device
//   * any memory, where the device reaches pageable memory
//     (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)
//
// One flag for the process, set before the call that brings the first of these, and never cleared.
// Any thread.
#pragma once

#include <atomic>

namespace cistern::shim {

extern constinit std::atomic<bool> host_within_reach;

// Host memory comes within reach. Work that is not finished may write what is shared from now on.
void host_comes_within_reach();

}  // namespace cistern::shim
