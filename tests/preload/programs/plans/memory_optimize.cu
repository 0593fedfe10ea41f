// SPDX-License-Identifier: Apache-2.0
// The variables of a small network share memory as memory_optimize would have them: x's is m's.
//
//     z = sum(x, y); m = matmul(y, z); fc = matmul(m, w)     and their gradients, backward
//
// Each variable is allocated in an NVTX range of its name, and freed behind its last use. Prints a
// sum of each result; all are exact in floats.

#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <vector>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr int kSide = 512, kClasses = 64;

struct Variable {
  const char* name;
  int rows, columns;
  float* data = nullptr;

  size_t count() const { return size_t(rows) * size_t(columns); }
};

Variable make(const char* name, int rows, int columns) {
  Variable variable{name, rows, columns};
  nvtxRangePushA(name);
  CHECK(cudaMalloc(&variable.data, variable.count() * sizeof(float)));
  nvtxRangePop();
  return variable;
}

Variable feed(const char* name, int rows, int columns, unsigned seed) {
  Variable variable = make(name, rows, columns);
  Random random(seed);
  std::vector<float> values(variable.count());
  for (float& value : values) value = float(random.below(3)) - 1;
  CHECK(cudaMemcpy(variable.data, values.data(), values.size() * sizeof(float),
                   cudaMemcpyHostToDevice));
  return variable;
}

Variable sum(const char* name, const Variable& a, const Variable& b) {
  Variable out = make(name, a.rows, a.columns);
  const int count = int(out.count());
  add_vectors<<<(count + 255) / 256, 256>>>(a.data, b.data, out.data, count);
  return out;
}

struct Transposed {
  bool a = false, b = false;
};

Variable matmul(const char* name, const Variable& a, const Variable& b,
                Transposed transposed = {}) {
  Variable out = make(name, transposed.a ? a.columns : a.rows, transposed.b ? b.rows : b.columns);
  const int blocks = (int(out.count()) + 255) / 256;
  multiply_matrices<<<blocks, 256>>>(a.data, b.data, out.data, out.rows,
                                     transposed.a ? a.rows : a.columns, out.columns, transposed.a,
                                     transposed.b);
  return out;
}

void drop(const Variable& variable) { CHECK(cudaFree(variable.data)); }

void fetch(const Variable& variable) {
  std::vector<float> values(variable.count());
  CHECK(cudaMemcpy(values.data(), variable.data, values.size() * sizeof(float),
                   cudaMemcpyDeviceToHost));
  double total = 0;
  for (const float value : values) total += value;
  std::printf("sum of %-7s %.0f\n", variable.name, total);
  drop(variable);
}

}  // namespace

int main() {
  const Variable w = feed("w", kSide, kClasses, 1);
  const Variable x = feed("x", kSide, kSide, 2), y = feed("y", kSide, kSide, 3);
  const Variable z = sum("z", x, y);
  drop(x);
  const Variable m = matmul("m", y, z);
  const Variable fc = matmul("fc", m, w);
  drop(m);
  fetch(fc);
  nvtxRangePushA("backward");
  const Variable fc_grad = feed("fc@GRAD", kSide, kClasses, 4);
  const Variable m_grad = matmul("m@GRAD", fc_grad, w, {.b = true});
  drop(fc_grad);
  const Variable y_grad = matmul("y@GRAD", m_grad, z, {.b = true});
  drop(z);
  const Variable z_grad = matmul("z@GRAD", y, m_grad, {.a = true});
  drop(y);
  drop(m_grad);
  fetch(y_grad);
  fetch(z_grad);
  nvtxRangePop();
  drop(w);
  return 0;
}
