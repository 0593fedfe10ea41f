// SPDX-License-Identifier: Apache-2.0
#include "memory/physical_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace simcuda {
namespace {

constexpr const char* kName = "simcuda-physical";
constexpr uint64_t kHeadBytes = 4096;                   // a page of the host's
constexpr uint64_t kStretchMagic = 0x53494d5048595331;  // "SIMPHYS1"

struct Head {
  uint64_t magic;
  uint64_t bytes;
};

using FileId = std::pair<dev_t, ino_t>;

std::optional<FileId> id_of(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return std::nullopt;
  return FileId{status.st_dev, status.st_ino};
}

// A new opening, with a position of its own.
int open_again(int descriptor) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  return open(link, O_RDWR | O_CLOEXEC);
}

bool is_ours_by_name(int descriptor) {
  char link[64], name[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, name, sizeof name);
  const std::string_view begin = "/memfd:simcuda-physical ";
  return length > 0 && std::string_view(name, static_cast<size_t>(length)).starts_with(begin);
}

}  // namespace

class PhysicalFile {
 public:
  PhysicalFile(int descriptor, FileId id) : descriptor_(descriptor), id_(id) {}
  ~PhysicalFile() {
    if (still_there()) close(descriptor_);
  }
  PhysicalFile(const PhysicalFile&) = delete;
  PhysicalFile& operator=(const PhysicalFile&) = delete;

  // A program may close descriptors that it did not open, and get the number for a file of its own.
  bool still_there() const { return id_of(descriptor_) == id_; }
  int descriptor() const { return descriptor_; }
  const FileId& id() const { return id_; }

  // Where the next stretch begins; no two are ever in one place.
  std::optional<uint64_t> extend(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const uint64_t offset = end_ + kHeadBytes;
    if (!still_there() || ftruncate(descriptor_, static_cast<off_t>(offset + bytes)) != 0) {
      return std::nullopt;
    }
    end_ = offset + bytes;
    return offset;
  }

 private:
  const int descriptor_;
  const FileId id_;
  std::mutex mutex_;
  uint64_t end_ = 0;
};

namespace {

struct Files {
  std::mutex mutex;
  std::weak_ptr<PhysicalFile> own;
  std::map<FileId, std::weak_ptr<PhysicalFile>> imported;
};

Files& files() {
  static Files& all = *new Files;
  return all;
}

std::shared_ptr<PhysicalFile> own_file() {
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  if (auto known = all.own.lock()) return known;
  const int descriptor = memfd_create(kName, MFD_CLOEXEC);
  const auto id = id_of(descriptor);
  if (!id) return nullptr;
  auto made = std::make_shared<PhysicalFile>(descriptor, *id);
  all.own = made;
  return made;
}

// One opening serves everything that is imported from one process.
std::shared_ptr<PhysicalFile> file_behind(int descriptor) {
  const auto id = id_of(descriptor);
  if (!id) return nullptr;
  Files& all = files();
  const std::lock_guard lock(all.mutex);
  if (auto own = all.own.lock(); own != nullptr && own->id() == *id) return own;
  std::erase_if(all.imported, [](const auto& entry) { return entry.second.expired(); });
  auto& known = all.imported[*id];
  if (auto file = known.lock()) return file;
  const int opened = open_again(descriptor);
  if (opened < 0) return nullptr;
  auto made = std::make_shared<PhysicalFile>(opened, *id);
  known = made;
  return made;
}

}  // namespace

std::optional<Stretch> take_stretch(size_t bytes) {
  auto file = own_file();
  const auto offset = file == nullptr ? std::nullopt : file->extend(bytes);
  if (!offset) return std::nullopt;
  return Stretch{std::move(file), *offset, bytes};
}

void give_back_stretch(const Stretch& stretch) {
  if (!stretch.file->still_there()) return;
  fallocate(stretch.file->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(stretch.offset), static_cast<off_t>(stretch.bytes));
}

bool map_stretch(const Stretch& stretch, size_t bytes, uint64_t address) {
  return stretch.file->still_there() &&
         mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
              stretch.file->descriptor(), static_cast<off_t>(stretch.offset)) != MAP_FAILED;
}

int export_stretch(const Stretch& stretch) {
  if (!stretch.file->still_there()) return -1;
  const int opened = open_again(stretch.file->descriptor());
  if (opened < 0) return -1;
  const Head head{kStretchMagic, stretch.bytes};
  const auto at = static_cast<off_t>(stretch.offset - kHeadBytes);
  if (pwrite(opened, &head, sizeof head, at) == sizeof head && lseek(opened, at, SEEK_SET) == at) {
    return opened;
  }
  close(opened);
  return -1;
}

std::optional<Stretch> import_stretch(int descriptor) {
  if (!is_ours_by_name(descriptor)) return std::nullopt;
  Head head;
  const off_t at = lseek(descriptor, 0, SEEK_CUR);
  const bool known = at >= 0 && pread(descriptor, &head, sizeof head, at) == sizeof head &&
                     head.magic == kStretchMagic && head.bytes != 0;
  if (!known) return std::nullopt;
  auto file = file_behind(descriptor);
  if (file == nullptr) return std::nullopt;
  return Stretch{std::move(file), static_cast<uint64_t>(at) + kHeadBytes, head.bytes};
}

}  // namespace simcuda
