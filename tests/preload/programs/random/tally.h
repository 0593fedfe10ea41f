// SPDX-License-Identifier: Apache-2.0
// What a run of the random program came to: how often each call gave each answer, what was read
// back. Sums only, so that it is the same however the threads took turns.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

namespace random_work {

class Tally {
 public:
  // Counts an answer; true for success.
  bool note(const char* call, CUresult code) {
    ++answers_[{call, code}];
    return code == CUDA_SUCCESS;
  }
  // For calls whose number depends on how the threads take turns: success goes without saying.
  bool need(const char* call, CUresult code) { return code == CUDA_SUCCESS || note(call, code); }
  void operation(const char* name) { ++operations_[name]; }
  // What was read back; `wrong` of it was not what had been written.
  void read(uint64_t wrong, uint64_t sum) {
    wrong_ += wrong;
    sum_ += sum;
  }
  // A statement about the run that has to hold.
  void hold(const char* statement, bool holds) { ++statements_[{statement, holds}]; }

  void add(const Tally& other) {
    for (const auto& [key, count] : other.answers_) answers_[key] += count;
    for (const auto& [key, count] : other.operations_) operations_[key] += count;
    for (const auto& [key, count] : other.statements_) statements_[key] += count;
    read(other.wrong_, other.sum_);
  }

  // Of a thread whose end nobody can foresee: what went wrong alone.
  void add_failures(const Tally& other) {
    for (const auto& [key, count] : other.answers_) {
      if (key.second != CUDA_SUCCESS) answers_[key] += count;
    }
    for (const auto& [key, count] : other.statements_) {
      if (!key.second) statements_[key] += count;
    }
    read(other.wrong_, 0);
  }

  void print() const {
    uint64_t total = 0;
    for (const auto& [name, count] : operations_) {
      std::printf("operation %s: %llu\n", name.c_str(), as_printed(count));
      total += count;
    }
    for (const auto& [key, count] : answers_) {
      std::printf("%s: %d, %llu times\n", key.first.c_str(), key.second, as_printed(count));
    }
    for (const auto& [key, count] : statements_) {
      std::printf("%s: %s, %llu times\n", key.first.c_str(), key.second ? "yes" : "NO",
                  as_printed(count));
    }
    std::printf("operations %llu\n", as_printed(total));
    std::printf("checksum %llu\n", as_printed(sum_));
    std::printf("wrong words %llu\n", as_printed(wrong_));
  }

 private:
  static unsigned long long as_printed(uint64_t count) { return count; }

  std::map<std::pair<std::string, CUresult>, uint64_t> answers_;
  std::map<std::pair<std::string, bool>, uint64_t> statements_;
  std::map<std::string, uint64_t> operations_;
  uint64_t wrong_ = 0, sum_ = 0;
};

}  // namespace random_work
