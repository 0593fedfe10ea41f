// SPDX-License-Identifier: Apache-2.0
// Allocation and free in every iteration: the driver's calls are gone, results stay.
// The plainest CUDA program there is, with the habit that makes pools worth while: it allocates and
// frees its three buffers in every iteration.

#include <vector>

#include "../check.h"
#include "../kernels.cuh"

int main() {
  constexpr int kIterations = 200;
  double checksum = 0;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    const int count = 1000 + 37 * iteration;
    const size_t bytes = count * sizeof(float);
    std::vector<float> a(count), b(count), sum(count);
    for (int i = 0; i < count; ++i) {
      a[i] = static_cast<float>(i % 97);
      b[i] = static_cast<float>(iteration);
    }
    float *device_a, *device_b, *device_sum;
    CHECK(cudaMalloc(&device_a, bytes));
    CHECK(cudaMalloc(&device_b, bytes));
    CHECK(cudaMalloc(&device_sum, bytes));
    CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));
    add_vectors<<<(count + 255) / 256, 256>>>(device_a, device_b, device_sum, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sum.data(), device_sum, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_sum));
    for (const float value : sum) checksum += value;
  }
  std::printf("checksum %.0f\n", checksum);
  return 0;
}
