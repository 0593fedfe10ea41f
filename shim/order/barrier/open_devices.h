// SPDX-License-Identifier: Apache-2.0
// Devices that reach memory of the GPU without a call of CUDA: network cards (GPUDirect RDMA),
// gdrcopy, which maps that memory for the processor, and GPUDirect storage. A program that uses one
// may look at what its work writes, as the host does with pinned memory, and no hook sees it. So
// once one is open, everything is visible (host_visible.h): frees wait.
//
// Most such programs tell of it by a call of CUDA: they set SYNC_MEMOPS, ask for P2P tokens, or
// share the range as a dmabuf. Those calls have hooks. Those that need none are found here: with
// nvidia-peermem, ibv_reg_mr() takes the address as it is, and the kernels' modules ask each other
// for the pages (nvidia_p2p_get_pages); so do gdrdrv and nvidia-fs. But each of them needs an open
// descriptor of its device. open() is not wrapped for that: it has many faces, libraries make the
// system call themselves, and descriptors come by fork and by sockets.
//
// A look at all descriptors costs some 50 microseconds. So they are looked at where a free would
// leave its order to the device (debts.h), which such a device would not keep: at the first such
// free, and then ten times a second at most. A process with very many descriptors is looked at more
// seldom: looks take a hundredth of its time at most.
//
// Any thread. Allocates and opens nothing.
#pragma once

namespace cistern::shim {

void look_for_open_devices();

}  // namespace cistern::shim
