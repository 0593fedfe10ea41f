// SPDX-License-Identifier: Apache-2.0
// Why a block of another process could not be opened, in one line of the log for each reason. The
// program gets CUDA's code. Any thread.
#pragma once

#include "shim/ipc/client.h"

namespace cistern::shim {

void tell_not_imported(IpcReply reply, const IpcToken& token);

}  // namespace cistern::shim
