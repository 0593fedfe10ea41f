// SPDX-License-Identifier: Apache-2.0
// Sixty call stacks, deep and with long names: more text than a report may have at once.
#include <cuda.h>

#include <cstdio>

namespace a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_1::
    a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_2::
        a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_3 {

volatile int frames = 0;

[[gnu::noinline]] CUresult descend(int levels, CUdeviceptr* out) {
  const CUresult result = levels == 0 ? cuMemAlloc(out, 4096) : descend(levels - 1, out);
  frames = frames + 1;
  return result;
}

}  // namespace
   // a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_1::a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_2::a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_3

int main() {
  namespace far =
      a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_1::
          a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_2::
              a_name_that_is_as_long_as_those_of_templates_in_large_frameworks_often_are_when_they_are_written_out_3;
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  int failed = cuInit(0) + cuDevicePrimaryCtxRetain(&context, 0) + cuCtxSetCurrent(context);
  for (int levels = 1; levels <= 60; ++levels) failed += far::descend(levels, &block);
  std::printf("failed %d\n", failed);
}
