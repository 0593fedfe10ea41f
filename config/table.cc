// SPDX-License-Identifier: Apache-2.0
//
// The rows. One place on purpose, though it makes a long file: a reader who wants to know what a
// setting is finds all of them here, in the order in which SETTINGS.md and `cistern flags` show
// them. A preload sees calls, call stacks and NVTX ranges, but no operators, shapes or variables;
// where a setting comes from a world that has those, its meaning says what takes their place.
#include "config/table.h"

#include <iterator>

namespace cistern::config {
namespace {

constexpr const char* kUnset = nullptr;
constexpr int64_t kMaxMb = (int64_t{1} << 44) - 1;  // so that the bytes fit into 64 bits
constexpr int64_t kMaxIdleMs = 86'400'000;          // a day
constexpr int64_t kAnyMin = INT64_MIN;

constexpr Type boolean() { return {.kind = Kind::kBool}; }
constexpr Type text(Kind kind) { return {.kind = kind}; }
constexpr Type free_text(const char* what) { return {.kind = Kind::kText, .words = what}; }
// `first`: the value of the first word; 1 where 0 stands for "not set".
constexpr Type choice(const char* words, int64_t first = 0) {
  return {.kind = Kind::kChoice, .min = first, .words = words};
}
constexpr Type integer(int64_t min, int64_t max) {
  return {.kind = Kind::kInteger, .min = min, .max = max};
}
constexpr Type number(int64_t min, int64_t max = kNoMax) {
  return {.kind = Kind::kNumber, .min = min, .max = max};
}
constexpr Type number_above(int64_t min, int64_t max) {
  return {.kind = Kind::kNumber, .min = min, .max = max, .above_min = true};
}

// What a row's member of Policy holds, out of what was parsed.
template <typename T>
T take(const Value& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.integer != 0;
  } else if constexpr (std::is_same_v<T, double>) {
    return value.number;
  } else if constexpr (std::is_same_v<T, const char*>) {
    return value.text;
  } else if constexpr (std::is_same_v<T, Cap>) {
    return value.cap;
  } else if constexpr (std::is_same_v<T, SizeRanges>) {
    return value.sizes;
  } else if constexpr (std::is_same_v<T, PoolThreshold>) {
    return value.threshold;
  } else if constexpr (std::is_same_v<T, Plan>) {
    const std::string_view text = value.text;
    if (text == "off") return {PlanMode::kOff, nullptr};
    if (text == "auto") return {PlanMode::kAuto, nullptr};
    return {PlanMode::kFile, value.text};
  } else {
    return static_cast<T>(value.integer);
  }
}

template <auto Member>
void to(Policy& policy, const Value& value, bool set) {
  auto& setting = policy.*Member;
  setting.value = take<decltype(setting.value)>(value);
  setting.set = set;
}

using P = Policy;

// clang-format off
constexpr Row kRows[] = {
    // --- General
    {"CISTERN_POOL", Group::kGeneral, choice("off|on"), "on", "", "off", to<&P::pool>,
     "on: device memory is pooled. off: every call goes to the driver untouched, for comparison and for "
     "tools such as compute-sanitizer."},
    {"CISTERN_CONFIG", Group::kGeneral, free_text("a file name"), kUnset, "", "/etc/cistern.conf", to<&P::config>,
     "A file with settings that the environment does not set. Its lines are NAME=value or "
     "--FLAGS_name=value; # begins a comment. A relative name is looked up in each process's working "
     "directory."},
    {"CISTERN_ON_ERROR", Group::kGeneral, choice("inactive|abort"), "inactive", "", "abort", to<&P::on_error>,
     "What a bad value does. inactive: it prints one line on stderr, and the program runs as without "
     "Cistern. abort: it prints the line, and the process exits with status 78 before main."},
    {"CISTERN_LOG", Group::kGeneral, choice("error|warn|info|debug"), "warn", "", "info", to<&P::log>,
     "The least serious messages that are written. info adds the policy in force and how memory shortages "
     "ended. debug adds each look-up of a function and each driver call of the pools for chunks and "
     "events."},
    {"CISTERN_LOG_FILE", Group::kGeneral, text(Kind::kReportFile), kUnset, "", "/tmp/cistern.log", to<&P::log_file>,
     "Messages are appended to this file. %p becomes the process id, %h the host, %r the rank. A relative "
     "name is looked up in the directory in which the process started. Not set: stderr."},
    {"CISTERN_REPORT", Group::kGeneral, choice("text|json", 1), kUnset, "", "text", to<&P::report>,
     "Writes a report when the process exits. For each device it has the driver calls made and avoided, "
     "live, idle and reserved memory at the peak, the hit rate and the waits. It also has the policy in "
     "force."},
    {"CISTERN_REPORT_FILE", Group::kGeneral, text(Kind::kReportFile), kUnset, "", "/tmp/report.%p.json", to<&P::report_file>,
     "The file for the report. %p becomes the process id, %h the host, %r the rank. Not set: a duplicate "
     "of stderr, taken at load."},
    {"CISTERN_SITES", Group::kGeneral, choice("ranges|stacks", 1), kUnset, "", "stacks", to<&P::sites>,
     "Shows who allocates. The report lists memory that is live at the end, and memory that was live at "
     "the peak, by NVTX range and by phase. stacks adds call stacks to the report, to recordings and to "
     "the out-of-memory message. Recordings have stacks also with CISTERN_POOL=off."},
    {"CISTERN_RECORD", Group::kGeneral, text(Kind::kReportFile), kUnset, "", "/tmp/run.%p.cistern", to<&P::record>,
     "Records every allocation and free, and the chunks of the pools, to this file; cistern trace reads "
     "it. %p, %h and %r as above. An existing file is not overwritten: the process id is added to the "
     "name. Works with CISTERN_POOL=off too."},

    // --- Limits
    {"FLAGS_gpu_memory_limit_mb", Group::kLimits, integer(0, kMaxMb), "0", "MB of 2^20 bytes", "8192", to<&P::gpu_memory_limit_mb>,
     "The most memory that this process takes from each device, by pools, direct allocations, arrays, "
     "memory pools and mapped physical memory; 0 is no limit. The program sees a device of that size and "
     "gets CUDA's out-of-memory code beyond it. Managed memory is counted but not limited. The context and "
     "modules are not counted."},
    {"CISTERN_GPU_LIMIT", Group::kLimits, text(Kind::kCap), kUnset, "", "60%", to<&P::gpu_limit>,
     "The same limit as a size or as a share of the device's total memory."},
    {"CISTERN_GPU_LIMIT_<n>", Group::kLimits, text(Kind::kCap), kUnset, "", "8G", nullptr,
     "The same limit for CUDA device n (0 to 63, as the process numbers them). It takes precedence over "
     "CISTERN_GPU_LIMIT."},

    // --- GPU chunks
    {"FLAGS_allocator_strategy", Group::kChunks, choice("legacy|naive_best_fit|auto_growth|thread_local", 1), kUnset, "", "auto_growth", to<&P::allocator_strategy>,
     "How device memory is organised. Not set: blocks on demand, by actual size. legacy: chunks that are "
     "split and merged with their neighbours. naive_best_fit: all chunks have the first chunk's size and "
     "are merged only when a request misses. auto_growth: a chunk for each miss. thread_local: a pool per "
     "thread."},
    {"FLAGS_auto_growth_chunk_size_in_mb", Group::kChunks, integer(0, kMaxMb), "0", "MB of 2^20 bytes", "64", to<&P::auto_growth_chunk_size_in_mb>,
     "The smallest auto_growth chunk. 0: as large as the request, or 2 MiB for requests below 1 MiB.", true},
    {"FLAGS_fraction_of_gpu_memory_to_use", Group::kChunks, number(0, 1), "0.92", "share of the device's total memory", "0.5", to<&P::fraction_of_gpu_memory_to_use>,
     "Size of each chunk as a share of the total memory of the device, MIG instance or limit, rounded down to "
     "2 MiB. 0: nothing is pooled. If only one of the next two settings is set, 0 makes the chunks of the "
     "other as large as the request, or 2 MiB for requests below 1 MiB. Setting this selects legacy, unless a "
     "strategy is set. The default counts only with a chunk strategy.", true},
    {"FLAGS_initial_gpu_memory_in_mb", Group::kChunks, integer(1, kMaxMb), kUnset, "MB of 2^20 bytes", "4096", to<&P::initial_gpu_memory_in_mb>,
     "Size of the first chunk, in place of the fraction. Selects legacy likewise."},
    {"FLAGS_reallocate_gpu_memory_in_mb", Group::kChunks, integer(1, kMaxMb), kUnset, "MB of 2^20 bytes", "1024", to<&P::reallocate_gpu_memory_in_mb>,
     "Size of every later chunk, in place of the fraction. Selects legacy likewise."},
    {"FLAGS_free_idle_memory", Group::kChunks, boolean(), "false", "", "true", to<&P::free_idle_memory>,
     "true: a chunk of device or pinned memory with nothing in use goes back to the driver after "
     "CISTERN_IDLE_MS, even if the program makes no call. Freed pages of host memory go back to the system "
     "likewise. false: idle memory stays until memory runs short. Not set: as false under a "
     "strategy that you select. The default strategy keeps what was in use within the last second, plus the "
     "larger of 64 MiB and an eighth of the live peak.", true},
    {"CISTERN_IDLE_MS", Group::kChunks, integer(0, kMaxIdleMs), "1000", "milliseconds", "5000", to<&P::idle_ms>,
     "How long a chunk must be idle before FLAGS_free_idle_memory returns it. Each use restarts the time. A "
     "check runs eight times in this time, so a return may come up to three eighths of it later."},
    {"CISTERN_IDLE_KEEP_MB", Group::kChunks, integer(0, kMaxMb), "0", "MB of 2^20 bytes", "256", to<&P::idle_keep_mb>,
     "FLAGS_free_idle_memory leaves at least this much idle memory on each device. It returns the longest "
     "idle chunks first, and no chunk that would leave less."},
    {"FLAGS_init_allocated_mem", Group::kChunks, boolean(), "false", "", "true", to<&P::init_allocated_mem>,
     "true: every block of device, pinned and host memory, new or reused, is filled with byte 0xEF over every "
     "requested byte before the program can use it. Stream-ordered memory is filled in the order of its "
     "stream. calloc's memory stays zero, and realloc keeps the old content. Not filled, but counted: blocks "
     "during a stream capture, managed memory, arrays and memory of pools on other devices. Not filled nor "
     "counted: physical memory that the program maps itself."},
    {"FLAGS_alloc_fill_value", Group::kChunks, integer(-1, 255), "-1", "", "0", to<&P::alloc_fill_value>,
     "The byte for this fill; 0 or more also switches the fill on. -1: off, or 0xEF if "
     "FLAGS_init_allocated_mem is true."},

    // --- Garbage
    {"FLAGS_fast_eager_deletion_mode", Group::kGarbage, boolean(), "true", "", "false", to<&P::fast_eager_deletion_mode>,
     "true: a request that names a stream may take a block freed on that stream while earlier kernels still "
     "run. false: it waits for all work submitted before the free. Only requests of the scratch cache "
     "(FLAGS_limit_of_tmp_allocation) name a stream. Plain cudaMalloc memory always waits for such work, by "
     "events and not on the host."},
    {"FLAGS_eager_delete_tensor_gb", Group::kGarbage, number(kAnyMin), "-1.0", "GB of 2^30 bytes", "0.5", to<&P::eager_delete_tensor_gb>,
     "0 or more: freed blocks collect in a queue per device. They become reusable together when their "
     "bytes reach this value; 0 means at each free. Negative: they become reusable once the program has "
     "synchronised their context. If memory runs short, all of them become reusable. Not set: blocks "
     "become reusable at once; the default counts only when this is set. Freed blocks take the place of "
     "Paddle's freed tensors.", true},
    {"FLAGS_memory_fraction_of_eager_deletion", Group::kGarbage, number(0, 1), "1.0", "share of the queued bytes", "0.5", to<&P::memory_fraction_of_eager_deletion>,
     "Each flush of the queue releases the largest blocks first, until this share of the bytes is released; "
     "it includes the block that reaches it. The rest waits until the program synchronises its context or "
     "memory runs short. 0 is the same as a negative threshold."},
    {"FLAGS_eager_delete_scope", Group::kGarbage, boolean(), "true", "", "false", to<&P::eager_delete_scope>,
     "true: the free itself does its work (merging, checking whether earlier work has ended, returning idle "
     "chunks). false: a background thread does it. An allocation that finds no free block does this work "
     "first, except where that would wait for the device."},
    {"FLAGS_limit_of_tmp_allocation", Group::kGarbage, integer(-1, kNoMax), "-1", "bytes", "268435456", to<&P::limit_of_tmp_allocation>,
     "Setting this or the next puts a scratch cache for each stream in front of cudaMallocAsync and "
     "cudaFreeAsync, for the device's current pool. If the cached bytes of a stream would pass the limit, "
     "they go back to the pool in stream order. 0: at each free. -1: no limit. When the program "
     "synchronises a stream, its cache is emptied too. Captures and the per-thread default stream are left "
     "to the driver.", true},
    {"FLAGS_times_excess_than_required_tmp_allocation", Group::kGarbage, number(1), "2", "", "1.5", to<&P::times_excess_than_required_tmp_allocation>,
     "A cached scratch block of size S serves a request of N if N <= S <= this times N, smallest first.", true},
    {"CISTERN_MEMPOOL_THRESHOLD", Group::kGarbage, text(Kind::kPoolThreshold), "auto", "", "1G", to<&P::mempool_threshold>,
     "What the driver's own memory pools (cudaMallocAsync) keep at a synchronisation if the program sets "
     "no release threshold. The driver's default of 0 returns everything, and the next request takes it "
     "again. auto: what the program used within the last second and an eighth more, but nothing on a "
     "device with a memory limit. A size: up to that much. off: pools are left alone. Kept memory goes "
     "back before cudaMemGetInfo answers and before a request fails; with auto also after a second without "
     "use. A threshold that the program sets counts, and the program reads its own value. Pools made to be "
     "shared with other processes are left alone."},

    // --- Static memory
    {"GE_USE_STATIC_MEMORY", Group::kStatic, integer(0, 4), "0", "", "3", to<&P::ge_use_static_memory>,
     "0: blocks by actual size. 2 (and 1): graphs that run one after the other share one arena per context, "
     "as large as the largest graph. Blocks that outlive their graph lie outside it. CISTERN_GRAPH_RANGE says "
     "what a graph is. Graphs that run at the same time get an arena each, and one warning. 3: an expandable "
     "pool on CUDA virtual memory. Physical units of 2 MiB or more move to other addresses to make room. A "
     "request fails only if the units in use and the units it needs are more than the device has. Blocks "
     "share units: on a nearly full device some requests of nearly 2 MiB may fail that the driver serves. 4: "
     "both modes over one supply of units. An arena keeps its addresses, and gives up idle units when there "
     "are no others. Without virtual memory management there is one warning, and 3 becomes 0 and 4 becomes 2. "
     "With 2 to 4, the arena or pool takes FLAGS_initial_gpu_memory_in_mb, or "
     "FLAGS_fraction_of_gpu_memory_to_use, at its first use, and grows in steps of "
     "FLAGS_reallocate_gpu_memory_in_mb. Not set: it takes what it needs."},
    {"CISTERN_STATIC_MEMORY_POLICY", Group::kStatic, integer(0, 4), "0", "", "3", to<&P::static_memory_policy>,
     "The same modes under their MemoryConfig name, static_memory_policy.", false,
     "static_memory_policy, ge.exec.staticMemoryPolicy"},
    {"CISTERN_GRAPH_RANGE", Group::kStatic, text(Kind::kGlob), kUnset, "", "step*", to<&P::graph_range>,
     "An NVTX range whose name matches is a phase: a graph or an iteration, with figures of its own. The name "
     "of a range in a domain is domain/message. The program's own marker calls (cistern.h) take precedence. "
     "Without markers and ranges, a phase ends at a synchronisation if live bytes are back at their minimum "
     "after a rise of 16 MiB or more. For GE_USE_STATIC_MEMORY=2 and 4 a phase is a graph. A phase inside "
     "another one belongs to the outer one."},
    {"CISTERN_ATOMIC_CLEAN_POLICY", Group::kStatic, integer(0, 1), "0", "", "1", to<&P::atomic_clean_policy>,
     "How the fills of FLAGS_init_allocated_mem are made (MemoryConfig's atomic_clean_policy). 0: gathered. "
     "If blocks are cut from chunks, a new chunk is filled as a whole. Freed memory is filled in runs, all at "
     "once when a request finds none that is filled. 1: each block is filled by itself when it is handed out. "
     "The program's own memsets, the counterpart of memset operators, are never touched.", false, "atomic_clean_policy, ge.exec.atomicCleanPolicy"},

    // --- Lifetime-based reuse
    {"CISTERN_MEMORY_OPTIMIZE", Group::kReuse, integer(0, 1), kUnset, "", "1", to<&P::memory_optimize>,
     "The level of memory_optimize. 0: a freed block serves only requests of the same size, the "
     "counterpart of the same shape. 1: it serves any request that fits; the smallest sufficient block "
     "comes first."},
    {"CISTERN_PLAN", Group::kReuse, text(Kind::kPlan), "off", "", "auto", to<&P::plan>,
     "Blocks get places in one chunk, packed by their lifetimes. A file: a plan that cistern plan made from a "
     "recording, or one for each device. auto: a plan that is made while the program runs, once it has "
     "repeated its requests three times (iterations of up to 21000 requests), and again when they change. If "
     "only one thread allocates, it is enough that the requests in its graphs repeat. Requests are compared "
     "with the plan by size and order. A single extra request is passed over. If more differ, the pool serves "
     "all requests until four in a row match the end of an iteration, or a graph begins. A place that is not "
     "free is not used."},
    {"CISTERN_SKIP_OPT_SET", Group::kReuse, text(Kind::kGlobList), kUnset, "", "fc*,*embedding*", to<&P::skip_opt_set>,
     "Allocations that match get private blocks, each a driver allocation of its own. A pattern matches an "
     "NVTX range, a call-stack symbol (C++ demangled or not), a Python function, a library or a source "
     "file (path or name). These take the place of the variable names in skip_opt_set. The report counts "
     "the matches of each pattern."},
    {"CISTERN_SKIP_GRADS", Group::kReuse, boolean(), "false", "", "true", to<&P::skip_grads>,
     "The same for allocations of the backward pass. A built-in list of NVTX ranges and call-stack symbols "
     "recognises them (*backward*, *Backward*, *_grad*, *@GRAD*, *GradOp*, *GradNode*, *Grad*Kernel*, "
     "*AccumulateGrad*, autograd engines; config/glob.cc)."},
    {"CISTERN_PRINT_LOG", Group::kReuse, boolean(), "false", "", "true", to<&P::print_log>,
     "Prints one line per reuse (request, its call site and NVTX range; block, its former call site and "
     "range; bytes saved) and a summary."},
    {"FLAGS_enable_inplace_whitelist", Group::kReuse, boolean(), "false", "", "true", to<&P::enable_inplace_whitelist>,
     "For debugging: allocations whose NVTX range or call-stack symbol names one of 19 operators (sigmoid, "
     "relu, batch_norm and others) never get a recently freed block. So in-place reuse cannot affect them."},
    {"FLAGS_fuse_parameter_groups_size", Group::kReuse, Type{.kind = Kind::kInteger, .min = -1, .max = INT32_MAX, .not_zero = true}, "3", "", "8", to<&P::fuse_parameter_groups_size>,
     "Consecutive allocations of one call site form a group, the counterpart of a group of parameters, and "
     "are placed side by side. This is the number of blocks in a group; 1 is no grouping, -1 no limit. "
     "Other call sites may allocate in between: up to 8 groups of a thread are open, each until its thread "
     "has made 16 other requests. Active once this or the next is set. With GE_USE_STATIC_MEMORY=2 and 4 "
     "groups lie outside the arenas of graphs.", true},
    {"FLAGS_fuse_parameter_memory_size", Group::kReuse, number(kAnyMin), "-1.0", "MB of 2^20 bytes", "16", to<&P::fuse_parameter_memory_size>,
     "The most bytes of such a group; 0 or less is no limit. Communication calls are never changed.", true},

    // --- Host memory
    {"CISTERN_MALLOC_CONF", Group::kHost, free_text("a jemalloc configuration"), kUnset, "", "narenas:4", to<&P::malloc_conf>,
     "For experts: appended to the jemalloc configuration that Cistern composes."},
    {"FLAGS_initial_cpu_memory_in_mb", Group::kHost, integer(1, kMaxMb), "500", "MB of 2^20 bytes", "1000", to<&P::initial_cpu_memory_in_mb>,
     "Size of a host chunk. Its address space is reserved when it is first needed, and its pages are taken "
     "when they are touched. At most the next setting's share of physical memory or of the control group's "
     "limit.", true},
    {"FLAGS_fraction_of_cpu_memory_to_use", Group::kHost, number_above(0, 1), "1.0", "share of physical memory", "0.5", to<&P::fraction_of_cpu_memory_to_use>,
     "The largest share of physical memory that one host chunk may be.", true},
    {"FLAGS_use_pinned_memory", Group::kHost, boolean(), "true", "", "false", to<&P::use_pinned_memory>,
     "Host chunks are locked, each page when it is first touched. If the system refuses, pages stay "
     "unlocked, and one message says so. The default counts only if this or a host chunk setting is set. "
     "Otherwise nothing is locked.", true},
    {"CISTERN_PIN_EAGER", Group::kHost, boolean(), "false", "", "true", to<&P::pin_eager>,
     "Locks and populates a whole host chunk at once."},
    {"CISTERN_PINNED_POOL", Group::kHost, boolean(), "true", "", "false", to<&P::pinned_pool>,
     "Blocks of cudaHostAlloc and cudaMallocHost are pooled, with a pool for each set of flags."},
    {"FLAGS_fraction_of_cuda_pinned_memory_to_use", Group::kHost, number_above(0, 1), "0.5", "share of physical memory", "0.25", to<&P::fraction_of_cuda_pinned_memory_to_use>,
     "The most that the pinned pool holds."},

    // --- Finding faults
    {"CISTERN_FREE_SYNC", Group::kFaults, choice("auto|true|false"), "auto", "", "false", to<&P::free_sync>,
     "Whether cudaFree and cudaFreeHost of pooled memory wait for the work of its context. The driver's calls "
     "wait, and programs rely on it. true: they wait, unless nothing was submitted since the last such wait "
     "or the last synchronisation of the context. auto: they wait for work that the host can see, and the "
     "device keeps the order of other work. If more than one thread submitted the work, auto waits as true "
     "does. false: no order is kept. Freed memory is reused only when no earlier work can touch it. A free "
     "waits only if more freed memory waits than the larger of 256 MiB and a tenth of the live memory. Use "
     "false for programs that rely on streams, events and synchronisations alone."},
    {"CISTERN_ALIGN", Group::kFaults, Type{.kind = Kind::kAlignment, .min = 512}, "512", "", "2M", to<&P::align>,
     "Alignment of blocks of at least this size, in strategies that split chunks."},
    {"CISTERN_ONLY_SIZES", Group::kFaults, text(Kind::kSizeRanges), kUnset, "", "1M-64M,256K", to<&P::only_sizes>,
     "Only requests of these sizes are pooled, both ends included. Each other request is a driver "
     "allocation of its own, counted and really freed. (Exception: if the only memory left is in free "
     "blocks beside live ones, they serve it.) Use it to find the allocation that a program uses wrongly."},
    {"CISTERN_ONLY_SITES", Group::kFaults, text(Kind::kGlobList), kUnset, "", "*libtorch*", to<&P::only_sites>,
     "Only requests that match are pooled: by NVTX range, call-stack symbol, Python function, library or "
     "source file."},
    {"CISTERN_POOL_FIRST", Group::kFaults, integer(0, kNoMax), kUnset, "requests", "1000", to<&P::pool_first>,
     "Of the requests that the settings above select, only this many are pooled, "
     "counted from the start of the process. The others are driver allocations of their own."},
};
// clang-format on
static_assert(std::size(kRows) <= kMaxRows);

}  // namespace

constinit const std::span<const Row> kTable = kRows;

const char* group_title(Group group) {
  switch (group) {
    case Group::kGeneral:
      return "General";
    case Group::kLimits:
      return "Limits";
    case Group::kChunks:
      return "GPU pool: chunks";
    case Group::kGarbage:
      return "When freed memory may be used again";
    case Group::kStatic:
      return "Static memory";
    case Group::kReuse:
      return "Reuse by lifetime";
    case Group::kHost:
      return "Host memory";
    case Group::kFaults:
      return "Finding faults";
  }
  return "";
}

}  // namespace cistern::config
