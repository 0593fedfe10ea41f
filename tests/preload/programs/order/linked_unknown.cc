// SPDX-License-Identifier: Apache-2.0
// A program that is linked with a driver function of which no table knows gets no memory early.
// The argument is the size of the block that the function reads.

#include <cstdlib>

#include "../driver_codes.h"
#include "../watch_time.h"
#include "simcuda/unknown.h"
#include "unseen_work.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  end_if_it_hangs();
  CUcontext other = use_device(1), owner = use_device(0);
  unseen::copies(owner, other, cuUnknownCopyAsync, std::strtoull(argv[1], nullptr, 10));
  return 0;
}
