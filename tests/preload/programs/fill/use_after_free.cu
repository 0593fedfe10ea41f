// SPDX-License-Identifier: Apache-2.0
// A freed block read or written to, planted faults: the fill shows one, holding back undoes both.
// A program with two faults, of which one is chosen: it goes on using a buffer that it has freed.
// config/RECIPES.md shows how each is found.
//   reads   adds up what the step before wrote when that is freed already, and the memory is a new
//           buffer's. Nothing is written to that yet, so the sum is right all the same.
//   writes  clears a buffer that it has freed already, and with it the new one at that place

#include <cstring>

#include "../check.h"
#include "../kernels.cuh"

namespace {

constexpr int kSteps = 16;
constexpr size_t kWords = 65536;

uint32_t* new_words() {
  uint32_t* words;
  CHECK(cudaMalloc(&words, kWords * sizeof *words));
  return words;
}

void fill(uint32_t* words, int step) {
  fill_words<<<4, 128>>>(words, kWords, static_cast<uint32_t>(step));
  CHECK(cudaGetLastError());
}

void end_step(uint32_t* words) {
  CHECK(cudaFree(words));
  CHECK(cudaDeviceSynchronize());
}

class Sums {
 public:
  Sums() { CHECK(cudaMalloc(&total_, sizeof *total_)); }

  // Adds up words that are to hold what fill() wrote in `step`.
  void expect(const uint32_t* words, int step) {
    CHECK(cudaMemset(total_, 0, sizeof *total_));
    sum_words<<<4, 128>>>(words, kWords, total_);
    CHECK(cudaGetLastError());
    unsigned long long sum;
    CHECK(cudaMemcpy(&sum, total_, sizeof sum, cudaMemcpyDeviceToHost));
    if (sum == kWords * (kWords - 1) / 2 + kWords * static_cast<size_t>(step)) return;
    if (wrong_++ == 0) first_ = sum;
  }

  int tell() const {
    std::printf("wrong sums: %d of %d", wrong_, kSteps);
    if (wrong_ > 0) std::printf(", the first 0x%llx", first_);
    std::printf("\n");
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  unsigned long long* total_;
  unsigned long long first_ = 0;
  int wrong_ = 0;
};

int reads() {
  Sums sums;
  uint32_t* before = new_words();
  fill(before, 0);
  end_step(before);
  for (int step = 1; step <= kSteps; ++step) {
    uint32_t* words = new_words();
    sums.expect(before, step - 1);  // the fault: it is freed
    fill(words, step);
    end_step(words);
    before = words;
  }
  return sums.tell();
}

int writes() {
  Sums sums;
  for (int step = 1; step <= kSteps; ++step) {
    uint32_t* scratch = new_words();
    fill(scratch, 0);
    end_step(scratch);
    uint32_t* words = new_words();
    fill(words, step);
    CHECK(cudaMemset(scratch, 0, kWords * sizeof *scratch));  // the fault: it is freed
    sums.expect(words, step);
    end_step(words);
  }
  return sums.tell();
}

}  // namespace

int main(int argc, char** argv) {
  return argc > 1 && std::strcmp(argv[1], "writes") == 0 ? writes() : reads();
}
