// SPDX-License-Identifier: Apache-2.0
// The life of the process: load, the first cuInit, fork, exit. The first successful cuInit says
// what has to be said; a child forked after that hands everything to the driver; at an orderly exit
// the parts are told (part.h). No CUDA call is made at load or at exit.
#pragma once

namespace cistern::shim {

// cuInit succeeded in this process; any thread. The first time: messages, fork handlers, and an end
// to pooling where the driver is not `complete`, i.e. lacks functions that the pools need.
void cuda_started(bool complete);

}  // namespace cistern::shim
