// SPDX-License-Identifier: Apache-2.0
// Devices that reach memory of the GPU without a call of CUDA: network cards (GPUDirect RDMA),
// gdrcopy, which maps that memory for the processor, and GPUDirect storage. A program that uses one
// may look at what its work writes, as the host does with pinned memory, and no hook sees it. So
// once one is open, everything is visible (host_visible.h): frees wait.
//
// Most such programs announce it by a CUDA call: they set SYNC_MEMOPS, ask for P2P tokens, or share
// the range as a dmabuf. Those calls have hooks. Programs that need no call are found here: with
// nvidia-peermem, ibv_reg_mr() takes the address as it is, and the kernels' modules ask each other
// for the pages (nvidia_p2p_get_pages); so do gdrdrv and nvidia-fs. But each of them needs an open
// descriptor of its device. Wrapping open() is not enough: it has many variants, libraries make the
// system call themselves, and descriptors come by fork and by sockets.
//
// A look at all descriptors costs some 50 microseconds. So a look happens only when a free would
// leave its order to the device (debts.h), which such a device would not keep: at the first such
// free, then at most ten times a second. With very many descriptors looks are rarer: they take at
// most a hundredth of the process's time.
//
// Any thread. Allocates and opens nothing.
#pragma once

namespace cistern::shim {

void look_for_open_devices();

}  // namespace cistern::shim
