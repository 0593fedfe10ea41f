// SPDX-License-Identifier: Apache-2.0
#include "exec/shared_event.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "memory/ipc.h"

namespace simcuda {

struct SharedEvent::Page {
  std::atomic<uint64_t> recorded, reached;
  std::atomic<int32_t> recorder;  // the process of the last record
};

namespace {

constexpr uint64_t kMagic = 0x53494d4345564e54;  // "SIMCEVNT"
constexpr size_t kPageBytes = 4096;

struct Token {
  uint64_t magic;
  int32_t process;
  int32_t file;
};
static_assert(sizeof(Token) <= sizeof(CUipcEventHandle));

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::map(int file, bool keep_file) {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED || !keep_file) close(file);
  if (page == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedEvent>(
      new SharedEvent(keep_file ? file : -1, static_cast<Page*>(page)));
}

std::shared_ptr<SharedEvent> SharedEvent::make() {
  const int file = memfd_create("simcuda-event", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (ftruncate(file, kPageBytes) != 0) {
    close(file);
    return nullptr;
  }
  return map(file, /*keep_file=*/true);
}

CUresult SharedEvent::open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* out) {
  Token token;
  std::memcpy(&token, &handle, sizeof token);
  if (token.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  if (token.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const int file = open_file_of(token.process, token.file);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  *out = map(file, /*keep_file=*/false);
  return *out == nullptr ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}

SharedEvent::~SharedEvent() {
  munmap(page_, kPageBytes);
  if (file_ >= 0) close(file_);
}

bool SharedEvent::get_handle(CUipcEventHandle* out) const {
  if (file_ < 0) return false;
  const Token token{kMagic, getpid(), file_};
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &token, sizeof token);
  return true;
}

uint64_t SharedEvent::begin_record() {
  page_->recorder.store(getpid());
  return page_->recorded.fetch_add(1) + 1;
}

void SharedEvent::reach(uint64_t record) {
  uint64_t before = page_->reached.load();
  while (before < record && !page_->reached.compare_exchange_weak(before, record)) {
  }
}

uint64_t SharedEvent::last_record() const { return page_->recorded.load(); }

bool SharedEvent::has_reached(uint64_t record) const { return page_->reached.load() >= record; }

void SharedEvent::await(uint64_t record) const {
  const auto recorder_lives = [this] {
    return kill(page_->recorder.load(), 0) == 0 || errno != ESRCH;
  };
  while (!has_reached(record) && recorder_lives()) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace simcuda
