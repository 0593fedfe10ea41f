// SPDX-License-Identifier: Apache-2.0
#include "shim/process/ancestors.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "config/load.h"

namespace cistern::shim {
namespace {

constexpr int kMostAncestors = 64;
constexpr size_t kMostEntries = size_t{1} << 16;

// Address space of its own, since malloc may not be ready; pages are there once they are touched.
struct Room {
  char text[size_t{4} << 20];
  const char* entries[kMostEntries];
  config::Loaded loaded;
};

// A file of /proc/PID, as far as there is room, with a null byte behind it; 0 bytes where it cannot
// be read.
size_t read_file(int process, const char* file, char* out, size_t room) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", process, file);
  const int opened = open(path, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return 0;
  size_t length = 0;
  ssize_t count;
  while (length + 1 < room && (count = read(opened, out + length, room - 1 - length)) > 0) {
    length += static_cast<size_t>(count);
  }
  close(opened);
  out[length] = '\0';
  return length;
}

// "PID (NAME) STATE PARENT ...", where the name may hold anything.
int parent_of(int process, Room& room) {
  if (read_file(process, "stat", room.text, sizeof room.text) == 0) return 0;
  const char* after = strrchr(room.text, ')');
  return after == nullptr || strlen(after) < 5 ? 0 : atoi(after + 4);
}

bool is_mapped(const char* object, int process, Room& room) {
  return read_file(process, "maps", room.text, sizeof room.text) != 0 &&
         strstr(room.text, object) != nullptr;
}

void load_settings_of(int process, Room& room) {
  const size_t length = read_file(process, "environ", room.text, sizeof room.text);
  size_t count = 0;
  for (size_t at = 0; at < length && count + 1 < kMostEntries; at += strlen(room.text + at) + 1) {
    room.entries[count++] = room.text + at;
  }
  room.entries[count] = nullptr;
  config::load(room.entries, room.loaded);
}

// Whether fits() is true for a process above this one in which this object is mapped.
template <typename Fits>
bool any_ancestor(Fits fits) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&said_by_an_ancestor), &self) == 0) return false;
  void* memory = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  Room& room = *static_cast<Room*>(memory);
  bool found = false;
  int process = getppid();
  for (int i = 0; i < kMostAncestors && process > 1 && !found; ++i) {
    if (is_mapped(self.dli_fname, process, room)) {
      load_settings_of(process, room);
      found = fits(process, self.dli_fname, room);
    }
    process = parent_of(process, room);
  }
  munmap(memory, sizeof(Room));
  return found;
}

}  // namespace

bool said_by_an_ancestor(const char* line) {
  return any_ancestor([&](int process, const char* object, Room& room) {
    return room.loaded.status == config::Status::kBad &&
           strcmp(room.loaded.error.text, line) == 0 &&
           (strstr(object, "-device") == nullptr || is_mapped("/libcuda.so", process, room));
  });
}

bool an_ancestor_reports() {
  return any_ancestor([](int, const char*, const Room& room) {
    return room.loaded.status == config::Status::kOk &&
           room.loaded.policy.report.value != config::ReportFormat::kNone;
  });
}

}  // namespace cistern::shim
