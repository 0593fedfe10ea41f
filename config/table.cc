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
     "on: device memory is pooled. off: every call goes to the driver untouched, for comparison and "
     "for tools such as compute-sanitizer."},
    {"CISTERN_CONFIG", Group::kGeneral, free_text("a file name"), kUnset, "", "/etc/cistern.conf", to<&P::config>,
     "A file of settings that fills in what the environment leaves unset: lines NAME=value or "
     "--FLAGS_name=value; # begins a comment. A relative name is looked up in each process's own "
     "directory."},
    {"CISTERN_ON_ERROR", Group::kGeneral, choice("inactive|abort"), "inactive", "", "abort", to<&P::on_error>,
     "What a bad value does. inactive: one line on stderr and the program runs as without Cistern. "
     "abort: the line, and the process exits with status 78 before main."},
    {"CISTERN_LOG", Group::kGeneral, choice("error|warn|info|debug"), "warn", "", "info", to<&P::log>,
     "The least serious messages that are written. info adds the policy in force and what was done "
     "about memory shortages; debug each look-up of a function, and each call that the pools make to "
     "the driver for chunks and marks."},
    {"CISTERN_LOG_FILE", Group::kGeneral, text(Kind::kReportFile), kUnset, "", "/tmp/cistern.log", to<&P::log_file>,
     "Messages are appended to this file; %p becomes the process id, %h the host, %r the rank; a relative "
     "name begins where the process did. Not set: stderr."},
    {"CISTERN_REPORT", Group::kGeneral, choice("text|json", 1), kUnset, "", "text", to<&P::report>,
     "A report when the process exits: per device the driver calls made and avoided, live, idle and "
     "reserved memory at the peak, hit rate, waits, and the policy in force."},
    {"CISTERN_REPORT_FILE", Group::kGeneral, text(Kind::kReportFile), kUnset, "", "/tmp/report.%p.json", to<&P::report_file>,
     "Where the report goes; %p becomes the process id, %h the host, %r the rank. Not set: a "
     "duplicate of stderr taken at load."},
    {"CISTERN_SITES", Group::kGeneral, choice("ranges|stacks", 1), kUnset, "", "stacks", to<&P::sites>,
     "Who allocates: the report lists what is held, and was at the peak, by NVTX range and by phase, and with stacks by "
     "call stack, too; recordings have the stacks, also with CISTERN_POOL=off, and so does the message about a "
     "lack of memory."},
    {"CISTERN_RECORD", Group::kGeneral, text(Kind::kReportFile), kUnset, "", "/tmp/run.%p.cistern", to<&P::record>,
     "Records every allocation and free, and the chunks of the pools, to this file, which cistern trace reads; %p, %h and "
     "%r as above. A file that exists is not overwritten: the process id is added to the name then. Works with "
     "CISTERN_POOL=off as well."},

    // --- Limits
    {"FLAGS_gpu_memory_limit_mb", Group::kLimits, integer(0, kMaxMb), "0", "MB of 2^20 bytes", "8192", to<&P::gpu_memory_limit_mb>,
     "The most this process takes from each device by pools, direct allocations, arrays, memory "
     "pools and mapped physical memory; 0 is no limit. The program sees a device of that size, and "
     "CUDA's out-of-memory code beyond it. Managed memory is counted, not limited; the context and "
     "modules are not counted."},
    {"CISTERN_GPU_LIMIT", Group::kLimits, text(Kind::kCap), kUnset, "", "60%", to<&P::gpu_limit>,
     "The same limit as a size or as a share of the device's total memory."},
    {"CISTERN_GPU_LIMIT_<n>", Group::kLimits, text(Kind::kCap), kUnset, "", "8G", nullptr,
     "The same limit for CUDA device n (0 to 63, as the process numbers them); it goes before "
     "CISTERN_GPU_LIMIT."},

    // --- GPU chunks
    {"FLAGS_allocator_strategy", Group::kChunks, choice("legacy|naive_best_fit|auto_growth|thread_local", 1), kUnset, "", "auto_growth", to<&P::allocator_strategy>,
     "How device memory is organised. Not set: on demand, by actual size. legacy: chunks with "
     "splitting and neighbour merge. naive_best_fit: all chunks of the first chunk's size, merged "
     "only when a request misses. auto_growth: a chunk for each miss. thread_local: a pool per thread."},
    {"FLAGS_auto_growth_chunk_size_in_mb", Group::kChunks, integer(0, kMaxMb), "0", "MB of 2^20 bytes", "64", to<&P::auto_growth_chunk_size_in_mb>,
     "The least size of an auto_growth chunk; 0 is the size of the request, or 2 MiB for requests "
     "below 1 MiB.", true},
    {"FLAGS_fraction_of_gpu_memory_to_use", Group::kChunks, number(0, 1), "0.92", "share of the device's total memory", "0.5", to<&P::fraction_of_gpu_memory_to_use>,
     "Chunk size as a share of the total memory of the device, MIG instance or limit, rounded down "
     "to 2 MiB; further chunks are as large. 0: do not pool, or, where one of the next two is set, "
     "chunks as large as the request, or 2 MiB for requests below 1 MiB, in place of the other. "
     "Setting it selects chunk pools; the default counts only there.", true},
    {"FLAGS_initial_gpu_memory_in_mb", Group::kChunks, integer(1, kMaxMb), kUnset, "MB of 2^20 bytes", "4096", to<&P::initial_gpu_memory_in_mb>,
     "Size of the first chunk, in place of the fraction. Setting it selects chunk pools."},
    {"FLAGS_reallocate_gpu_memory_in_mb", Group::kChunks, integer(1, kMaxMb), kUnset, "MB of 2^20 bytes", "1024", to<&P::reallocate_gpu_memory_in_mb>,
     "Size of every later chunk, in place of the fraction. Setting it selects chunk pools."},
    {"FLAGS_free_idle_memory", Group::kChunks, boolean(), "false", "", "true", to<&P::free_idle_memory>,
     "true: a chunk of device or pinned memory in which nothing is in use goes back to the driver "
     "after CISTERN_IDLE_MS, also while the program makes no call, and so do freed pages of host "
     "memory to the system. false: idle memory is kept until memory runs short. Not set: so it is "
     "under the strategies that a setting chooses; the default one keeps what was in use within the "
     "last second, and 64 MiB or an eighth of the live peak.", true},
    {"CISTERN_IDLE_MS", Group::kChunks, integer(0, kMaxIdleMs), "1000", "milliseconds", "5000", to<&P::idle_ms>,
     "How long a chunk stays idle before FLAGS_free_idle_memory gives it back; each use starts the "
     "time anew. Looked at eight times as often, so it takes up to three eighths longer."},
    {"CISTERN_IDLE_KEEP_MB", Group::kChunks, integer(0, kMaxMb), "0", "MB of 2^20 bytes", "256", to<&P::idle_keep_mb>,
     "FLAGS_free_idle_memory gives chunks back, the longest idle first, only where at least this much "
     "stays idle on their device: a chunk that is larger than what may go stays."},
    {"FLAGS_init_allocated_mem", Group::kChunks, boolean(), "false", "", "true", to<&P::init_allocated_mem>,
     "true: every block handed out, new or reused, of device, pinned and host memory is filled with "
     "byte 0xEF over every requested byte before the program can use it; stream-ordered memory in the "
     "order of its stream. calloc's stays zero, and realloc's keeps what it had. Skipped and counted "
     "during a stream capture, for managed memory, arrays and memory of pools on other devices. Physical "
     "memory that the program maps itself is not filled."},
    {"FLAGS_alloc_fill_value", Group::kChunks, integer(-1, 255), "-1", "", "0", to<&P::alloc_fill_value>,
     "Another byte for the same fill, which it switches on by itself; -1 is off, or 0xEF where "
     "FLAGS_init_allocated_mem is true."},

    // --- Garbage
    {"FLAGS_fast_eager_deletion_mode", Group::kGarbage, boolean(), "true", "", "false", to<&P::fast_eager_deletion_mode>,
     "true: a request that names a stream may take a block freed on that stream while earlier kernels "
     "still run. false: it too waits for all work enqueued before the free. Such requests are those "
     "of the scratch cache (the two settings below). Plain cudaMalloc memory always waits, by events "
     "and not by stopping the host."},
    {"FLAGS_eager_delete_tensor_gb", Group::kGarbage, number(kAnyMin), "-1.0", "GB of 2^30 bytes", "0.5", to<&P::eager_delete_tensor_gb>,
     "0 or more: freed blocks collect in a queue per device and become reusable together when their "
     "bytes reach this; 0 is at each free. Negative: reusable once the program has synchronised their "
     "context. When memory runs short all of them are, in any case. The default counts only when this "
     "is set; not set, blocks become reusable at once. For freed tensors it takes freed blocks.", true},
    {"FLAGS_memory_fraction_of_eager_deletion", Group::kGarbage, number(0, 1), "1.0", "share of the queued bytes", "0.5", to<&P::memory_fraction_of_eager_deletion>,
     "At each flush of the queue the largest blocks are released first until this share of the bytes "
     "is, the block that crosses the line included; the rest waits until the program synchronises its "
     "context or memory runs short. 0 is as a negative threshold."},
    {"FLAGS_eager_delete_scope", Group::kGarbage, boolean(), "true", "", "false", to<&P::eager_delete_scope>,
     "true: the work of a free (merging, seeing that earlier work has ended, returning idle chunks) "
     "is done inside the free. false: a background thread does it, and an allocation that misses "
     "finishes it first, as far as that needs no wait for the device."},
    {"FLAGS_limit_of_tmp_allocation", Group::kGarbage, integer(-1, kNoMax), "-1", "bytes", "268435456", to<&P::limit_of_tmp_allocation>,
     "Setting this or the next puts a scratch cache per stream before cudaMallocAsync and "
     "cudaFreeAsync, for the device's current pool. When the cached bytes of a stream would pass the "
     "limit they go back to the pool in stream order; 0 is at each free, -1 is no limit. The "
     "program's own synchronisation of the stream empties its cache, too. Captures and the "
     "per-thread default stream are left to the driver.", true},
    {"FLAGS_times_excess_than_required_tmp_allocation", Group::kGarbage, number(1), "2", "", "1.5", to<&P::times_excess_than_required_tmp_allocation>,
     "A cached scratch block of size S serves a request of N when N <= S <= this times N, smallest "
     "first.", true},
    {"CISTERN_MEMPOOL_THRESHOLD", Group::kGarbage, text(Kind::kPoolThreshold), "auto", "", "1G", to<&P::mempool_threshold>,
     "What the driver's own memory pools (cudaMallocAsync) keep at a synchronisation, where the program sets no "
     "release threshold: by the driver's default of 0 they give everything back, and take it again. auto: what the program used "
     "within the last second, and an eighth more; not where the device has a memory limit. A size: up to that much. What is kept "
     "goes back before cudaMemGetInfo tells what is free, before memory is out, and with auto when a second passes unused. off: pools are "
     "left as they are. A threshold that the program sets counts, and it is told its own; pools made to be shared with other "
     "processes are left alone."},

    // --- Static memory
    {"GE_USE_STATIC_MEMORY", Group::kStatic, integer(0, 4), "0", "", "3", to<&P::ge_use_static_memory>,
     "0: blocks by actual size. 2 (and 1): graphs that run one after the other share one arena per "
     "context, as large as the largest of them; what outlives its graph has no place in it. What a "
     "graph is says CISTERN_GRAPH_RANGE. Graphs that run at the same time get an arena each, and one "
     "warning. 3: an expandable pool on CUDA virtual memory: physical units of 2 MiB "
     "or more, moved to other addresses where that makes room, so that a request fails only when the "
     "units in use and those that it needs are more than there are. Smaller requests share units of their "
     "own: on a nearly full device some of 1 to 2 MiB may fail that the default serves. 4: both over one supply of units; "
     "an arena keeps its addresses, and gives up idle units when there are no others. Without virtual "
     "memory management: one warning, and 0 in place of 3, or 2 in place of 4. With 2 to 4, "
     "FLAGS_initial_gpu_memory_in_mb, or FLAGS_fraction_of_gpu_memory_to_use, is what the arena or pool "
     "takes at its first use, FLAGS_reallocate_gpu_memory_in_mb the step in which it grows; not set, "
     "it takes what it needs."},
    {"CISTERN_STATIC_MEMORY_POLICY", Group::kStatic, integer(0, 4), "0", "", "3", to<&P::static_memory_policy>,
     "The same modes under their MemoryConfig name, static_memory_policy.", false,
     "static_memory_policy, ge.exec.staticMemoryPolicy"},
    {"CISTERN_GRAPH_RANGE", Group::kStatic, text(Kind::kGlob), kUnset, "", "step*", to<&P::graph_range>,
     "An NVTX range whose name matches is a phase: a graph or an iteration, for which figures are "
     "kept. The name of one in a domain is domain/message. The program's own marker calls "
     "(include/cistern.h) come first; where neither is, a phase ends at a synchronisation when live "
     "bytes are back at their minimum. For GE_USE_STATIC_MEMORY=2 and 4 a phase is a graph; one inside "
     "another belongs to that one."},
    {"CISTERN_ATOMIC_CLEAN_POLICY", Group::kStatic, integer(0, 1), "0", "", "1", to<&P::atomic_clean_policy>,
     "How the fills of FLAGS_init_allocated_mem are made (MemoryConfig's atomic_clean_policy). 0: "
     "gathered: where blocks are cut from chunks, a chunk is filled as a whole when it is taken, and "
     "what was freed later is filled in runs, all of it when a request finds nothing filled. 1: each "
     "block by itself when it is handed out. The program's own memsets, which stand where memset "
     "operators would, are never touched.", false, "atomic_clean_policy, ge.exec.atomicCleanPolicy"},

    // --- Lifetime-based reuse
    {"CISTERN_MEMORY_OPTIMIZE", Group::kReuse, integer(0, 1), kUnset, "", "1", to<&P::memory_optimize>,
     "The level of memory_optimize. 0: a freed block serves only requests of the same size, which "
     "stands for the same shape. 1: any request that fits, smallest sufficient block first."},
    {"CISTERN_PLAN", Group::kReuse, text(Kind::kPlan), "off", "", "auto", to<&P::plan>,
     "Blocks get places in one chunk, packed by their lifetimes. A file: the plan, or one plan a "
     "device, that cistern plan made of a recording. auto: found while the program runs, once it "
     "repeated its requests, or those in its graphs, three times (iterations of up to 21000 "
     "requests); another one when it changes. Requests are compared with the plan by their size and order. The first that differs "
     "is a pool's. So are those behind it, until four in a row are those that end an iteration. A "
     "place that is not free is not used."},
    {"CISTERN_SKIP_OPT_SET", Group::kReuse, text(Kind::kGlobList), kUnset, "", "fc*,*embedding*", to<&P::skip_opt_set>,
     "Allocations whose NVTX range, call-stack symbol (C++ demangled or not), Python function, library "
     "or source file (path or name) matches get private blocks, driver allocations of their own; "
     "that stands for the names of variables in skip_opt_set. The report counts what each matched."},
    {"CISTERN_SKIP_GRADS", Group::kReuse, boolean(), "false", "", "true", to<&P::skip_grads>,
     "The same for allocations of the backward part, known by a built-in list of NVTX ranges and "
     "call-stack symbols (*backward*, *Backward*, *_grad*, *@GRAD*, *GradOp*, *GradNode*, "
     "*Grad*Kernel*, *AccumulateGrad*, autograd engines; config/backward.h)."},
    {"CISTERN_PRINT_LOG", Group::kReuse, boolean(), "false", "", "true", to<&P::print_log>,
     "One line per reuse (request, its call site and NVTX range, block, its former call site and "
     "range, bytes saved) and a summary."},
    {"FLAGS_enable_inplace_whitelist", Group::kReuse, boolean(), "false", "", "true", to<&P::enable_inplace_whitelist>,
     "A debugging aid: allocations whose NVTX range or call-stack symbol names one of 19 operators "
     "(sigmoid, relu, batch_norm and others) get no recently freed block, so that in-place style "
     "reuse cannot touch them."},
    {"FLAGS_fuse_parameter_groups_size", Group::kReuse, Type{.kind = Kind::kInteger, .min = -1, .max = INT32_MAX, .not_zero = true}, "3", "", "8", to<&P::fuse_parameter_groups_size>,
     "Consecutive allocations of one call site, which stand for a group of parameters, are placed "
     "side by side, this many to a group; 1 is no grouping, -1 no limit. Other sites may ask in "
     "between: up to 8 groups of a thread are open, each until its thread made 16 other requests. "
     "Active once this or the next is set. With GE_USE_STATIC_MEMORY=2 and 4 groups have places "
     "of their own, outside the arenas of graphs.", true},
    {"FLAGS_fuse_parameter_memory_size", Group::kReuse, number(kAnyMin), "-1.0", "MB of 2^20 bytes", "16", to<&P::fuse_parameter_memory_size>,
     "The most bytes of such a group; 0 or less is no limit. Communication calls are never changed.", true},

    // --- Host memory
    {"CISTERN_MALLOC_CONF", Group::kHost, free_text("a jemalloc configuration"), kUnset, "", "narenas:4", to<&P::malloc_conf>,
     "Appended to the jemalloc configuration that Cistern composes, for experts."},
    {"FLAGS_initial_cpu_memory_in_mb", Group::kHost, integer(1, kMaxMb), "500", "MB of 2^20 bytes", "1000", to<&P::initial_cpu_memory_in_mb>,
     "Size of a host chunk: address space reserved at first need, pages taken as they are touched. "
     "At most the next setting's share of physical memory, or of the control group's limit.", true},
    {"FLAGS_fraction_of_cpu_memory_to_use", Group::kHost, number_above(0, 1), "1.0", "share of physical memory", "0.5", to<&P::fraction_of_cpu_memory_to_use>,
     "The largest share of physical memory that one host chunk may be.", true},
    {"FLAGS_use_pinned_memory", Group::kHost, boolean(), "true", "", "false", to<&P::use_pinned_memory>,
     "Host chunks are locked, each page when first touched; a refusal falls back to unlocked pages and "
     "is said once. The default counts once this or a host chunk flag is set; nothing set, nothing is "
     "locked.", true},
    {"CISTERN_PIN_EAGER", Group::kHost, boolean(), "false", "", "true", to<&P::pin_eager>,
     "Locks and populates a whole host chunk at once."},
    {"CISTERN_PINNED_POOL", Group::kHost, boolean(), "true", "", "false", to<&P::pinned_pool>,
     "Blocks of cudaHostAlloc and cudaMallocHost are pooled, each set of flags by itself."},
    {"FLAGS_fraction_of_cuda_pinned_memory_to_use", Group::kHost, number_above(0, 1), "0.5", "share of physical memory", "0.25", to<&P::fraction_of_cuda_pinned_memory_to_use>,
     "The most that the pinned pool holds."},

    // --- Finding faults
    {"CISTERN_FREE_SYNC", Group::kFaults, choice("auto|true|false"), "auto", "", "false", to<&P::free_sync>,
     "Whether cudaFree and cudaFreeHost of pooled memory wait for the work of its context, as the driver's do and "
     "programs rely on. true: they do, but not if nothing was submitted since the last such wait or the last "
     "synchronisation of the context. auto: they wait for what the host can see, and the device keeps the order of "
     "the rest, where one thread handed over all work; else as with true. false: no order is kept; freed memory waits until no earlier work can touch it, and a "
     "free waits only where more than 256 MiB, or a tenth of what is live, waits. For programs that rely on streams, "
     "events and synchronisations alone."},
    {"CISTERN_ALIGN", Group::kFaults, Type{.kind = Kind::kAlignment, .min = 512}, "512", "", "2M", to<&P::align>,
     "Alignment of blocks at least that large, in strategies that split chunks."},
    {"CISTERN_ONLY_SIZES", Group::kFaults, text(Kind::kSizeRanges), kUnset, "", "1M-64M,256K", to<&P::only_sizes>,
     "Only requests of these sizes are pooled, both ends included; each other one is a driver "
     "allocation of its own, counted and really freed. (Only when no memory is left but free blocks "
     "beside live ones, those serve it.) To find the allocation that a program uses wrongly."},
    {"CISTERN_ONLY_SITES", Group::kFaults, text(Kind::kGlobList), kUnset, "", "*libtorch*", to<&P::only_sites>,
     "Only requests whose NVTX range, call-stack symbol, Python function, library or source file "
     "matches are pooled."},
    {"CISTERN_POOL_FIRST", Group::kFaults, integer(0, kNoMax), kUnset, "requests", "1000", to<&P::pool_first>,
     "Only the first so many requests of the process, of those that the settings above choose, are "
     "pooled; the rest as there."},
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
