// SPDX-License-Identifier: Apache-2.0
// The NVTX tool in this object: how NVTX comes to report here, and the NVTX functions that Cistern
// implements.
//
// NVTX is headers only: each library that uses it has an instance. At its first call an instance
// loads the tool that NVTX_INJECTION64_PATH names, looks up InitializeInjectionNvtx2 in it, and
// calls that function to fill in its function tables.
//
// If the variable names no tool, Cistern sets it to this object. If it names one, it stays as it
// is, so that children without Cistern find that tool. Then the look-up in that tool returns a
// function of ours. It calls the tool's own function, and then puts our functions before those that
// the tool has filled in. If the tool refuses, the tables are ours alone.
//
// If another tool also wants a function, the tool's is called after ours, and its result is
// returned. Then the program has the tool's handles and numbers, and names are found by them here.
// Each instance gets what the first one got. If its tool gave an instance other functions, that
// instance is left to the tool alone. Any thread.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include "allocator/base/threads.h"
#include "allocator/record/names.h"
#include "shim/entry/driver.h"
#include "shim/entry/loader.h"
#include "shim/nvtx/ranges.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"

// NVTX as a tool sees it: types only, nothing of its implementation.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#undef NVTX_NO_IMPL

// NOLINTNEXTLINE(readability-identifier-naming): NVTX looks it up by this name
extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t table);

namespace cistern::shim {
namespace {

// Identifies a function: its place in NVTX's table of that module.
struct Callback {
  NvtxCallbackModule module;
  uint32_t id;
  NvtxFunctionPointer ours;
};
constexpr unsigned kCallbacks = 17;

// --- names of ranges, from what programs give NVTX: "domain/message", or "message" in the default
// domain, as a number of names(). A missing message counts as empty. A domain is the number of its
// name; 0: the default.

// Builds a name, and cuts it off at the greatest length.
class Text {
 public:
  void add(std::string_view text) {
    text = text.substr(0, sizeof text_ - used_);
    std::memcpy(text_ + used_, text.data(), text.size());
    used_ += text.size();
  }

  // Adds whole characters only.
  void add(const wchar_t* text) {
    for (; *text != 0; ++text) {
      char bytes[4];
      const std::string_view one = utf8(static_cast<uint32_t>(*text), bytes);
      if (used_ + one.size() > sizeof text_) return;
      add(one);
    }
  }

  uint32_t number() const { return names().number({text_, used_}); }

 private:
  static std::string_view utf8(uint32_t c, char (&out)[4]) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    if (surrogate || c > 0x10FFFF) return "?";
    if (c < 0x80) {
      out[0] = static_cast<char>(c);
      return {out, 1};
    }
    const unsigned bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (unsigned i = bytes - 1; i > 0; --i, c >>= 6) out[i] = static_cast<char>(0x80 | (c & 0x3F));
    out[0] = static_cast<char>((0xF00u >> bytes & 0xF0u) | c);
    return {out, bytes};
  }

  char text_[alloc::Names::kLongest];
  size_t used_ = 0;
};

void add_domain(uint32_t domain, Text& text) {
  if (domain == 0) return;
  text.add(names().text(domain));
  text.add("/");
}

[[gnu::noinline]] uint32_t name_in_domain(uint32_t domain, const char* message) {
  Text text;
  add_domain(domain, text);
  text.add(message);
  return text.number();
}

uint32_t message_name(uint32_t domain, const char* message) {
  if (message == nullptr) message = "";
  return domain == 0 ? names().number(message) : name_in_domain(domain, message);
}

// Converts the message to UTF-8.
[[gnu::noinline]] uint32_t message_name(uint32_t domain, const wchar_t* message) {
  Text text;
  add_domain(domain, text);
  text.add(message == nullptr ? L"" : message);
  return text.number();
}

uint32_t message_name(uint32_t domain, const nvtxEventAttributes_t* event) {
  if (event != nullptr && event->messageType == NVTX_MESSAGE_TYPE_ASCII) {
    return message_name(domain, event->message.ascii);
  }
  if (event != nullptr && event->messageType == NVTX_MESSAGE_TYPE_UNICODE) {
    return message_name(domain, event->message.unicode);
  }
  return message_name(domain, "");
}

// --- the functions

enum Which : unsigned {
  kPushEx,
  kPushA,
  kPushW,
  kPop,
  kStartEx,
  kStartA,
  kStartW,
  kEnd,
  kDomainPushEx,
  kDomainPop,
  kDomainStartEx,
  kDomainEnd,
  kRegisterA,
  kRegisterW,
  kCreateA,
  kCreateW,
  kDestroy,
};

// Without a tool, handles are the numbers of names.
constinit bool with_tool = false;
constinit NvtxFunctionPointer tools[kCallbacks]{};
constinit alloc::HandleNames domains{}, strings{};
constinit std::atomic<uint64_t> starts{0};

template <typename Function, typename Result, typename... Arguments>
Result or_tools(Which which, Result ours, Arguments... arguments) {
  const auto tool = reinterpret_cast<Function>(tools[which]);
  return tool == nullptr ? ours : tool(arguments...);
}

uint32_t own_number(const void* handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  return number <= names().count() ? static_cast<uint32_t>(number) : 0;
}

template <typename Handle>
Handle own_handle(uint32_t number) {
  return with_tool ? nullptr : reinterpret_cast<Handle>(uintptr_t{number});
}

uint32_t domain_of(nvtxDomainHandle_t handle) {
  return with_tool ? domains.of(handle) : own_number(handle);
}

uint32_t name_of(uint32_t domain, const nvtxEventAttributes_t* event) {
  if (event != nullptr && event->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    nvtxStringHandle_t handle = event->message.registered;
    const uint32_t name = with_tool ? strings.of(handle) : own_number(handle);
    if (name != 0) return name;
  }
  return message_name(domain, event);
}

// --- push and pop ---

int push_ex(const nvtxEventAttributes_t* event) {
  const int level = push_range(0, name_of(0, event));
  return or_tools<nvtxRangePushEx_impl_fntype>(kPushEx, level, event);
}

int push_a(const char* message) {
  const int level = push_range(0, message_name(0, message));
  return or_tools<nvtxRangePushA_impl_fntype>(kPushA, level, message);
}

int push_w(const wchar_t* message) {
  const int level = push_range(0, message_name(0, message));
  return or_tools<nvtxRangePushW_impl_fntype>(kPushW, level, message);
}

int pop() { return or_tools<nvtxRangePop_impl_fntype>(kPop, pop_range(0)); }

int domain_push_ex(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* event) {
  const uint32_t domain = domain_of(handle);
  const int level = push_range(domain, name_of(domain, event));
  return or_tools<nvtxDomainRangePushEx_impl_fntype>(kDomainPushEx, level, handle, event);
}

int domain_pop(nvtxDomainHandle_t handle) {
  const int level = pop_range(domain_of(handle));
  return or_tools<nvtxDomainRangePop_impl_fntype>(kDomainPop, level, handle);
}

// --- start and end: the number that the tool gives must be known first ---

template <typename Function, typename... Arguments>
nvtxRangeId_t start(Which which, uint32_t domain, uint32_t name, Arguments... arguments) {
  const auto tool = reinterpret_cast<Function>(tools[which]);
  const nvtxRangeId_t id = tool == nullptr ? ++starts : tool(arguments...);
  if (id != 0) start_range(domain, name, id);
  return id;
}

nvtxRangeId_t start_ex(const nvtxEventAttributes_t* event) {
  return start<nvtxRangeStartEx_impl_fntype>(kStartEx, 0, name_of(0, event), event);
}

nvtxRangeId_t start_a(const char* message) {
  return start<nvtxRangeStartA_impl_fntype>(kStartA, 0, message_name(0, message), message);
}

nvtxRangeId_t start_w(const wchar_t* message) {
  return start<nvtxRangeStartW_impl_fntype>(kStartW, 0, message_name(0, message), message);
}

nvtxRangeId_t domain_start_ex(nvtxDomainHandle_t handle, const nvtxEventAttributes_t* event) {
  const uint32_t domain = domain_of(handle);
  return start<nvtxDomainRangeStartEx_impl_fntype>(kDomainStartEx, domain, name_of(domain, event),
                                                   handle, event);
}

void end(nvtxRangeId_t id) {
  end_range(id);
  const auto tool = reinterpret_cast<nvtxRangeEnd_impl_fntype>(tools[kEnd]);
  if (tool != nullptr) tool(id);
}

void domain_end(nvtxDomainHandle_t handle, nvtxRangeId_t id) {
  end_range(id);
  const auto tool = reinterpret_cast<nvtxDomainRangeEnd_impl_fntype>(tools[kDomainEnd]);
  if (tool != nullptr) tool(handle, id);
}

// --- strings and domains ---

template <typename Function, typename Char>
nvtxStringHandle_t register_string(Which which, nvtxDomainHandle_t domain, const Char* text) {
  const uint32_t name = message_name(domain_of(domain), text);
  const auto handle = or_tools<Function>(which, own_handle<nvtxStringHandle_t>(name), domain, text);
  if (with_tool) strings.set(handle, name);
  return handle;
}

template <typename Function, typename Char>
nvtxDomainHandle_t create(Which which, const Char* text) {
  const uint32_t name = message_name(0, text);
  const auto handle = or_tools<Function>(which, own_handle<nvtxDomainHandle_t>(name), text);
  if (with_tool) domains.set(handle, name);
  return handle;
}

nvtxStringHandle_t register_a(nvtxDomainHandle_t domain, const char* text) {
  return register_string<nvtxDomainRegisterStringA_impl_fntype>(kRegisterA, domain, text);
}

nvtxStringHandle_t register_w(nvtxDomainHandle_t domain, const wchar_t* text) {
  return register_string<nvtxDomainRegisterStringW_impl_fntype>(kRegisterW, domain, text);
}

nvtxDomainHandle_t create_a(const char* text) {
  return create<nvtxDomainCreateA_impl_fntype>(kCreateA, text);
}

nvtxDomainHandle_t create_w(const wchar_t* text) {
  return create<nvtxDomainCreateW_impl_fntype>(kCreateW, text);
}

void destroy(nvtxDomainHandle_t handle) {
  end_domain(domain_of(handle));
  const auto tool = reinterpret_cast<nvtxDomainDestroy_impl_fntype>(tools[kDestroy]);
  if (tool != nullptr) tool(handle);
}

template <typename Function>
NvtxFunctionPointer any(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

// In the order of Which. Not a constant: a function's address cast to another type is no constant
// expression, and the object has no constructor to fill it in.
void list_callbacks(Callback (&out)[kCallbacks]) {
  const Callback list[kCallbacks] = {
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushEx, any(push_ex)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushA, any(push_a)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushW, any(push_w)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePop, any(pop)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartEx, any(start_ex)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartA, any(start_a)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartW, any(start_w)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeEnd, any(end)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, any(domain_push_ex)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, any(domain_pop)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeStartEx, any(domain_start_ex)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeEnd, any(domain_end)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, any(register_a)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringW, any(register_w)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, any(create_a)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateW, any(create_w)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainDestroy, any(destroy)},
  };
  std::copy(std::begin(list), std::end(list), out);
}

// Takes the tool's functions in the order of that list, null for those that it lacks. `next` null:
// there is no tool. Called before NVTX calls any of our functions; constant from then on.
void put_before(const NvtxFunctionPointer* next) {
  if (next == nullptr) return;
  with_tool = true;
  for (unsigned i = 0; i < kCallbacks; ++i) tools[i] = next[i];
}

void reset_callbacks_after_fork() {
  domains.reset_after_fork();
  strings.reset_after_fork();
}

// --- how NVTX comes to report here ---

constexpr char kVariable[] = "NVTX_INJECTION64_PATH";

using Initialise = NvtxInitializeInjectionNvtxFunc_t;

constinit std::atomic<bool> switched_on{false};
constinit std::atomic<Initialise> named_tool{nullptr};

// The entries of one instance's tables that are ours to fill in.
struct Slots {
  Callback callback[kCallbacks];
  NvtxFunctionPointer* slot[kCallbacks];  // null: this NVTX has no such function
  NvtxFunctionPointer before[kCallbacks];

  bool find(const NvtxExportTableCallbacks* tables) {
    if (tables == nullptr || tables->struct_size < sizeof *tables) return false;
    list_callbacks(callback);
    for (unsigned i = 0; i < kCallbacks; ++i) {
      NvtxFunctionTable table = nullptr;
      unsigned size = 0;
      const bool has = tables->GetModuleFunctionTable(callback[i].module, &table, &size) != 0 &&
                       callback[i].id < size;
      slot[i] = has ? table[callback[i].id] : nullptr;
      before[i] = slot[i] == nullptr ? nullptr : *slot[i];
    }
    return true;
  }

  NvtxFunctionPointer filled_in(unsigned i) const {
    return slot[i] == nullptr || *slot[i] == before[i] ? nullptr : *slot[i];
  }
};

enum class Attached { no, alone, before_tool };

struct First {
  alloc::Mutex mutex;
  Attached how = Attached::no;
  NvtxFunctionPointer tools[kCallbacks]{};
};
constinit First first{};

// False: the instance differs from the first one.
bool attach(const Slots& slots, Attached how) {
  const alloc::LockGuard guard(first.mutex);
  if (first.how == Attached::no) {
    first.how = how;
    for (unsigned i = 0; i < kCallbacks; ++i) first.tools[i] = slots.filled_in(i);
    put_before(how == Attached::alone ? nullptr : first.tools);
  }
  if (first.how != how) return false;
  for (unsigned i = 0; i < kCallbacks; ++i) {
    if (slots.slot[i] != nullptr && slots.filled_in(i) != first.tools[i]) return false;
  }
  for (unsigned i = 0; i < kCallbacks; ++i) {
    if (slots.slot[i] != nullptr) *slots.slot[i] = slots.callback[i].ours;
  }
  return true;
}

int initialise(NvtxGetExportTableFunc_t table, Initialise tool) {
  Slots slots;
  const bool found =
      slots.find(static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS)));
  const bool tool_works = tool != nullptr && tool(table) != 0;
  const bool attached =
      found && attach(slots, tool_works ? Attached::before_tool : Attached::alone);
  if (attached && !tool_works) {
    const auto* version =
        static_cast<const NvtxExportTableVersionInfo*>(table(NVTX_ETID_VERSIONINFO));
    if (version != nullptr && version->struct_size >= sizeof *version) {
      version->SetInjectionNvtxVersion(NVTX_VERSION);
    }
  }
  log(config::LogLevel::kDebug, "NVTX: %s%s", attached ? "ranges are seen" : "ranges are not seen",
      tool_works ? ", and by the tool named before" : "");
  return attached || tool_works ? 1 : 0;
}

int initialise_before_tool(NvtxGetExportTableFunc_t table) {
  return initialise(table, named_tool.load(std::memory_order_acquire));
}

// If the variable names this object, the function found is ours. A second tool keeps its own.
void* in_front_of(void* found) {
  const auto tool = reinterpret_cast<Initialise>(found);
  Initialise expected = nullptr;
  if (tool == InitializeInjectionNvtx2) return found;
  if (!named_tool.compare_exchange_strong(expected, tool) && expected != tool) return found;
  return reinterpret_cast<void*>(initialise_before_tool);
}

constexpr StandIn kInjection = {"InitializeInjectionNvtx2", in_front_of};

// False if NVTX has loaded this object into a process that runs without Cistern, such as a child
// that inherited the variable: then the C library comes before this object.
bool preloaded() { return definition_after_us("dlsym") != nullptr; }

// Sets an absolute path: the program may change its directory before it uses NVTX.
void name_this_object() {
  char path[PATH_MAX];
  const link_map* self = object_of(reinterpret_cast<const void*>(&name_this_object));
  if (self == nullptr || realpath(self->l_name, path) == nullptr) return;
  setenv(kVariable, path, 0);
}

void child_after_fork() {
  first.mutex.reset();
  names().reset_after_fork();
  reset_callbacks_after_fork();
  reset_ranges_after_fork();
}

}  // namespace

bool ranges_on() { return switched_on.load(std::memory_order_acquire); }

// Registers a fork handler of its own, not Part's in_child: a child may be forked before the first
// CUDA call, and go on to use NVTX.
void switch_ranges_on() {
  if (!preloaded() || switched_on.exchange(true)) return;
  at_fork(nullptr, nullptr, child_after_fork);
  stand_in_for(kInjection);
  name_this_object();
}

}  // namespace cistern::shim

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table) {
  using namespace cistern::shim;
  return ranges_on() ? initialise(table, nullptr) : 0;
}
