// SPDX-License-Identifier: Apache-2.0
// Memory of another process that lies in units (ipc/protocol.h): its exporter sends descriptors of
// them, which are mapped side by side in addresses of this process by virtual memory management. To
// the driver this is mapped memory, which outlives contexts. Any thread; no lock may be held while
// units are mapped.
#pragma once

#include "shim/ipc/client.h"

namespace cistern::shim {

struct MappedUnits {
  CUdeviceptr base;
  uint64_t bytes;
};

// What is mapped of a token, or why not: nothing is, then. `reply` is the exporter's last, of which
// `first` is the answer with the `files` that came along; further ones are asked for, with
// the same `patience`.
CUresult map_units(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                   IpcPatience* patience, MappedUnits* out, IpcReply* reply);

// An error means that it is mapped as before.
CUresult unmap_units(const MappedUnits& units);

}  // namespace cistern::shim
