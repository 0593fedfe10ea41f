// SPDX-License-Identifier: Apache-2.0
// For neighbours_test.py: a C++ program that uses every form of operator new and delete and the
// rest of the malloc family, and says what came of it. OWN_MALLOC: it brings a malloc of its own,
// which ends the process where a block of another one comes back. OWN_OPERATORS: as a library,
// operators new and delete that count.
#include <malloc.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#ifdef OWN_OPERATORS

int taken_here, given_back_here;

void* operator new(size_t bytes) {
  ++taken_here;
  void* block = malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept {
  if (block != nullptr) ++given_back_here;
  free(block);
}

#else

#ifdef OWN_MALLOC
namespace {
constexpr uint64_t kMark = 0x636973746572ull;
struct Head {
  uint64_t mark, bytes;
};
alignas(16) char memory[64 << 20];
size_t used;
Head* head_of(void* block) {
  Head* head = static_cast<Head*>(block) - 1;
  if (head->mark != kMark) abort();
  return head;
}
}  // namespace
extern "C" {
void* malloc(size_t bytes) noexcept {
  const size_t whole = (bytes + sizeof(Head) + 15) / 16 * 16;
  if (whole < bytes || whole > sizeof memory - used) return nullptr;
  auto* head = reinterpret_cast<Head*>(memory + used);
  used += whole;
  *head = {kMark, bytes};
  return head + 1;
}
void free(void* block) noexcept {
  if (block != nullptr) head_of(block);
}
void* calloc(size_t count, size_t bytes) noexcept {
  void* block = malloc(count * bytes);
  return block == nullptr ? nullptr : memset(block, 0, count * bytes);
}
void* realloc(void* block, size_t bytes) noexcept {
  void* moved = malloc(bytes);
  if (block == nullptr || moved == nullptr) return moved;
  const size_t old = head_of(block)->bytes;
  return memcpy(moved, block, old < bytes ? old : bytes);
}
}
#endif

#ifdef COUNTED
extern int taken_here, given_back_here;
#endif

namespace {

int wrong = 0;

void* used_block(void* block) {
  if (block == nullptr) ++wrong;
  if (block != nullptr) memset(block, 7, 100);
  return block;
}

struct alignas(256) Wide {
  char bytes[512];
};

void use_operators() {
  const std::nothrow_t& quiet = std::nothrow;
  const std::align_val_t wide{256};
  operator delete(used_block(operator new(100)));
  operator delete (used_block(operator new(100)), size_t{100});
  operator delete(used_block(operator new(100, quiet)), quiet);
  operator delete[](used_block(operator new[](100)));
  operator delete[](used_block(operator new[](100)), size_t{100});
  operator delete[](used_block(operator new[](100, quiet)), quiet);
#ifndef OWN_MALLOC  // it has no aligned blocks
  operator delete(used_block(operator new(100, wide)), wide);
  operator delete (used_block(operator new(100, wide)), size_t{100}, wide);
  operator delete(used_block(operator new(100, wide, quiet)), wide, quiet);
  operator delete[](used_block(operator new[](100, wide)), wide);
  operator delete[](used_block(operator new[](100, wide)), size_t{100}, wide);
  operator delete[](used_block(operator new[](100, wide, quiet)), wide, quiet);
  auto* some = new Wide[3];
  if (reinterpret_cast<uintptr_t>(some) % 256 != 0) ++wrong;
  delete[] some;
#endif
  std::vector<std::string> words;
  for (int i = 0; i < 1000; ++i) words.push_back(std::string(static_cast<size_t>(i), 'x'));
}

// As some programs do.
void mix_them() {
  operator delete(malloc(100));
  free(operator new(100));
}

int refused = 0;
volatile size_t too_much = SIZE_MAX / 2;

template <typename Take>
void expect_throw(Take take) {
  try {
    take();
    ++wrong;
  } catch (const std::bad_alloc&) {
    ++refused;
  }
}

#ifndef OWN_MALLOC
// A call that fails leaves the pointer and the block that it points to as they were.
void keep_what_a_refusal_found() {
  void* block = memset(malloc(100), 7, 100);
  void* kept = block;
  if (posix_memalign(&block, 64, too_much) != ENOMEM || block != kept) ++wrong;
  for (int i = 0; i < 100; ++i) wrong += static_cast<char*>(kept)[i] != 7;
  free(kept);
}
#endif

void run_out() {
  expect_throw([] { return operator new(too_much); });
  expect_throw([] { return operator new[](too_much); });
  expect_throw([] { return operator new (too_much, std::align_val_t{64}); });
  if (operator new(too_much, std::nothrow) != nullptr) ++wrong;
  if (operator new[](too_much, std::nothrow) != nullptr) ++wrong;
  static int asked = 0;
  std::set_new_handler([] {
    if (++asked == 3) throw std::bad_alloc();
  });
  expect_throw([] { return operator new(too_much); });
  if (asked != 3) ++wrong;
  asked = 2;
  if (operator new(too_much, std::nothrow) != nullptr || asked != 3) ++wrong;
  std::set_new_handler(nullptr);
#ifndef OWN_MALLOC
  keep_what_a_refusal_found();
#endif
}

void use_family(const std::string& how) {
  void* block = used_block(reallocarray(used_block(malloc(100)), 10, 100));
  free(used_block(realloc(block, 5000)));
  free(used_block(calloc(10, 10)));
  free(strdup("word"));
  free(realpath("/", nullptr));
#ifndef OWN_MALLOC  // what it does not bring a program with a malloc of its own does not use
  if (malloc_usable_size(block = malloc(100)) < 100) ++wrong;
  free(block);
  free(used_block(memalign(64, 100)));
  free(used_block(aligned_alloc(64, 128)));
  free(used_block(valloc(100)));
  if (how != "beside") free(used_block(pvalloc(100)));
  if (posix_memalign(&block, 4096, 100) != 0) ++wrong;
  free(used_block(block));
#endif
}

}  // namespace

// "tame": only what no tool reports. "beside": without what some allocators lack or end at.
int main(int count, char** words) {
  const std::string how = count == 1 ? "all" : words[1];
  use_operators();
  if (how != "tame") mix_them();
  if (how == "all") run_out();
  use_family(how);
#ifdef COUNTED
  printf("%d taken, %d given back, ", taken_here, given_back_here);
#endif
  printf("%d refused, %d wrong\n", refused, wrong);
  return 0;
}

#endif
