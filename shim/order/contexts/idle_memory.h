// SPDX-License-Identifier: Apache-2.0
// What all contexts of a device keep for reuse. Any thread.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// Bytes that are kept on a device and could be returned, as the driver (and the cap) count them.
uint64_t idle_memory_of(CUdevice device);

// What the clients of contexts keep there goes back (order/contexts/context_client.h); kNoDevice:
// on every device. False if that is nothing.
bool release_idle_memory_of_clients(CUdevice device);

// Returns all of it, except what the pool of `except` keeps; false if that is nothing. May wait for
// the device.
bool release_idle_memory_of(CUdevice device, const Context* except);

}  // namespace cistern::shim
