// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/unknown.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "allocator/base/os.h"
#include "config/known.h"
#include "shim/entry/driver.h"
#include "shim/entry/loader.h"
#include "shim/process/settings.h"

extern "C" {
// The jump target of each trampoline (trampolines_*.S). Before the first call that is the
// trampoline's own second half, which calls cistern_first_call(). After it, the driver's function.
[[gnu::visibility("hidden")]] constinit std::atomic<void*>
    cistern_trampoline_targets[cistern::shim::kTrampolines] = {};
[[gnu::visibility("hidden")]] void cistern_trampolines();
}

namespace cistern::shim {
namespace {

constexpr size_t kBytes = 32, kSecondHalf = 16;  // of one trampoline, as in trampolines_*.S

struct Guarded {
  std::atomic<void*> real;  // nullptr: not in use yet
  char name[64];            // the first name under which it was looked up
  Unknown called_as;
};

constexpr const char* kCodecEntries[] = {"cuvidCreateDecoder", "NvEncodeAPICreateInstance"};
constexpr const char* kOtherEntries[] = {"optixQueryFunctionTable", "cuGetExportTable"};

// Not strcmp: a sanitizer's runtime asks dlsym before its own strcmp works.
template <size_t n>
bool is_one_of(const char* name, const char* const (&names)[n]) {
  const auto same = [=](const char* each) {
    const char* at = name;
    for (; *at == *each && *at != '\0'; ++at) ++each;
    return *at == *each;
  };
  return std::any_of(std::begin(names), std::end(names), same);
}
bool begins_codec(const char* name) { return is_one_of(name, kCodecEntries); }

constinit Guarded functions[kTrampolines] = {};
constinit std::atomic<uint32_t> taken{0}, taken_out_of_sight{0}, called{0}, linked{0};
constinit std::atomic<BeforeUnknown> before{nullptr};

void* trampoline(uint32_t i) { return reinterpret_cast<char*>(&cistern_trampolines) + i * kBytes; }

void* find(const void* real) {
  for (uint32_t i = 0, end = taken.load(std::memory_order_acquire); i < end; ++i) {
    if (functions[i].real.load(std::memory_order_acquire) == real) return trampoline(i);
  }
  return nullptr;
}

// Makes a trampoline; nullptr if all are taken. If two threads make one for the same function at
// the same time, both trampolines work.
void* make(void* real, const char* name, Unknown called_as) {
  uint32_t i = taken.load();
  do {
    if (i == kTrampolines) return nullptr;
  } while (!taken.compare_exchange_weak(i, i + 1));
  std::snprintf(functions[i].name, sizeof functions[i].name, "%s", name);
  functions[i].called_as = called_as;
  cistern_trampoline_targets[i].store(static_cast<char*>(trampoline(i)) + kSecondHalf);
  functions[i].real.store(real, std::memory_order_release);
  return trampoline(i);
}

void assume(Unknown how, const char* name) { before.load(std::memory_order_acquire)(how, name); }

// The driver may answer a look-up of a passing function with the address of code that has no name.
// Such code needs no trampoline.
bool is_to_be_guarded(const void* real, const char* name) {
  if (!config::is_driver_name(name) || !active()) return false;
  if (before.load(std::memory_order_acquire) == nullptr || !is_unknown(real)) return false;
  return !passes(name) || is_named(real);
}

// --- links ---

bool leads_to_unknown(const char* name) {
  return config::is_driver_name(name) && !is_known(name) && driver_defines(name);
}

// The objects that were already checked, by their dynamic sections. Objects beyond kMost are
// checked again each time. Accessed only with the loader's lock, like the counts of objects loaded
// and unloaded.
class Looked {
 public:
  bool changed(const dl_phdr_info& info) {
    if (info.dlpi_subs != unloaded_) count_ = 0;  // another object may have its address by now
    const bool changes = info.dlpi_adds != loaded_ || info.dlpi_subs != unloaded_;
    loaded_ = info.dlpi_adds;
    unloaded_ = info.dlpi_subs;
    return changes;
  }
  bool add(const void* dynamic) {
    if (std::find(objects_, objects_ + count_, dynamic) != objects_ + count_) return false;
    if (count_ < kMost) objects_[count_++] = dynamic;
    return true;
  }

 private:
  static constexpr size_t kMost = 1024;
  unsigned long long loaded_ = 0, unloaded_ = 0;
  const void* objects_[kMost] = {};
  size_t count_ = 0;
};
constinit Looked looked;

// One thread checks at a time, and none during a fork. If the process forks while another thread
// holds the loader's lock, the child cannot open any library. The program may fork inside a call
// that holds the same lock, so the fork waits one second at most. Sanitizers do not know the
// loader's lock; this flag also shows them that the checks follow each other.
constinit std::atomic<bool> looking{false};
// Written only in fork handlers, which run in one thread at a time.
constinit bool held_for_fork = false;

void end_look() { looking.store(false, std::memory_order_release); }

void hold_looks() {
  constexpr uint64_t kMostNs = 1'000'000'000;
  held_for_fork = alloc::os::wait_until(
      [] { return !looking.exchange(true, std::memory_order_acquire); }, kMostNs);
}

void begin_look() {
  static constinit std::atomic<bool> handlers{false};
  if (!handlers.exchange(true)) {
    at_fork(
        hold_looks,
        [] {
          if (held_for_fork) end_look();
        },
        end_look);
  }
  alloc::os::wait_while([] { return looking.exchange(true, std::memory_order_acquire); });
}

struct Links {
  bool first = true;
  char name[64] = "";  // of the first unknown function that was found
};

int look_at(dl_phdr_info* info, size_t, void* data) {
  Links& links = *static_cast<Links*>(data);
  if (links.first && !looked.changed(*info)) return 1;
  links.first = false;
  const link_map object = object_at(*info);
  if (object.l_ld == nullptr || !looked.add(object.l_ld)) return 0;
  if (const char* name = first_link(&object, leads_to_unknown)) {
    linked.fetch_add(1);
    std::snprintf(links.name, sizeof links.name, "%s", name);
  }
  return 0;
}

// --- links to decoder and encoder ---

constexpr const char* kCodecs[] = {"libnvcuvid.so", "libnvidia-encode.so"};

bool is_codec(const dl_phdr_info& info) {
  const auto named = [&](const char* name) { return std::strstr(info.dlpi_name, name) != nullptr; };
  return std::any_of(std::begin(kCodecs), std::end(kCodecs), named);
}

// True at most ten times a second.
bool codec_look_is_due() {
  constexpr uint64_t kBetweenNs = 100'000'000;
  static constinit std::atomic<uint64_t> due_ns{0};
  const uint64_t now = alloc::os::now_ns();
  uint64_t due = due_ns.load(std::memory_order_relaxed);
  return now >= due && due_ns.compare_exchange_strong(due, now + kBetweenNs);
}

// Whether a codec is loaded, and anything was loaded since the last call. Most processes have no
// codec, so no object's symbols are checked for links to one.
bool any_new_codec() {
  struct Search {
    unsigned long long loaded;
    bool codec;
  } search{0, false};
  static constinit unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* seen = static_cast<Search*>(data);
        seen->loaded = info->dlpi_adds;
        seen->codec |= is_codec(*info);
        return loaded == seen->loaded ? 1 : 0;
      },
      &search);
  const bool any_new = search.loaded != loaded;
  loaded = search.loaded;
  return any_new && search.codec;
}

int look_at_codec_user(dl_phdr_info* info, size_t, void* data) {
  const link_map object = object_at(*info);
  if (object.l_ld == nullptr || is_codec(*info)) return 0;
  const char* name = first_link(&object, begins_codec);
  if (name == nullptr) return 0;
  Links& links = *static_cast<Links*>(data);
  std::snprintf(links.name, sizeof links.name, "%s", name);
  return 1;
}

}  // namespace

void tell_before_unknown(BeforeUnknown told) { before.store(told, std::memory_order_release); }

void* guarded(void* real, const char* name) {
  if (!is_to_be_guarded(real, name)) return real;
  if (void* known = find(real)) return known;
  if (void* made = make(real, name, Unknown::called)) return made;
  assume(Unknown::bare, name);
  return real;
}

bool hands_over_out_of_sight(const char* name) {
  return begins_codec(name) || is_one_of(name, kOtherEntries);
}

void* guarded_out_of_sight(void* real, const char* name) {
  if (!active() || before.load(std::memory_order_acquire) == nullptr) return real;
  if (void* known = find(real)) return known;
  if (void* made = make(real, name, Unknown::out_of_sight)) {
    taken_out_of_sight.fetch_add(1);
    return made;
  }
  assume(Unknown::out_of_sight, name);
  return real;
}

void handed_out_bare(const void* real, const char* name) {
  if (is_to_be_guarded(real, name)) assume(Unknown::bare, name);
}

// The driver is looked up first: that opens a library, which look_at() must not do. If the driver
// has no unknown function, no link leads to one.
void look_for_unknown_links() {
  if (before.load(std::memory_order_acquire) == nullptr) return;
  Links links, codecs;
  const bool any_unknown = unknown_functions() != 0, codecs_are_due = codec_look_is_due();
  if (!any_unknown && !codecs_are_due) return;
  begin_look();
  if (any_unknown) dl_iterate_phdr(look_at, &links);
  if (codecs_are_due && any_new_codec()) dl_iterate_phdr(look_at_codec_user, &codecs);
  end_look();
  if (links.name[0] != '\0') assume(Unknown::linked, links.name);
  if (codecs.name[0] != '\0') assume(Unknown::linked_out_of_sight, codecs.name);
}

UnknownCounts unknown_counts() {
  return {taken.load() - taken_out_of_sight.load(), called.load(), linked.load()};
}

}  // namespace cistern::shim

// Called by the second half of trampoline `i`; returns the function to jump to. Another thread may
// begin the same call while this one is in here. Both then assume the effects before their call.
extern "C" [[gnu::visibility("hidden")]] void* cistern_first_call(uint32_t i) {
  using namespace cistern::shim;
  const int error = errno;
  void* real = functions[i].real.load(std::memory_order_acquire);
  const Unknown how = functions[i].called_as;
  if (active()) assume(how, functions[i].name);
  const bool first = cistern_trampoline_targets[i].exchange(real) != real;
  if (first && how == Unknown::called) called.fetch_add(1);
  errno = error;
  return real;
}
