// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "allocator/chunk_pools/groups.h"
#include "config/version.h"
#include "shim/process/report_writer.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

void text_kinds(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  const alloc::Cap& cap = *device.cap;
  writer.print("cistern:   peak by kind  ");
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    writer.print("%s %s %.1f", i == 0 ? "" : ",", kKinds[i], mib(taken_peak(l, i)));
  }
  writer.print(" MiB\n");
  if (cap.limit() == 0) return;
  writer.print("cistern:   limit          %.1f MiB, charged at exit %.1f MiB; %lu calls refused\n",
               mib(cap.limit()), mib(cap.charged()), l.refused_by_cap.get());
}

void text_scratch(Writer& writer, const alloc::Ledger& l) {
  const uint64_t hits = l.scratch_hits.get(), requests = hits + l.scratch_misses.get();
  writer.print(
      "cistern:   scratch        %lu of %lu stream-ordered allocations from the cache (%.1f %%), "
      "%.1f MiB cached, %lu blocks returned to the driver\n",
      hits, requests, 100 * ratio(hits, requests), mib(l.scratch_bytes.get()),
      l.scratch_released.get());
}

void text_idle(Writer& writer, const alloc::Ledger& l) {
  using alloc::WorkedBy;
  writer.print(
      "cistern:   idle release   %lu chunks, %.1f MiB in calls of the program; %lu chunks, %.1f "
      "MiB in the background\n",
      by(WorkedBy::call, l.aged), mib(by(WorkedBy::call, l.aged_bytes)),
      by(WorkedBy::background, l.aged), mib(by(WorkedBy::background, l.aged_bytes)));
}

void text_put_off(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      "cistern:   deferred frees done %lu times by allocations that missed, %lu times in the "
      "background\n",
      by(alloc::WorkedBy::call, l.deferred_done), by(alloc::WorkedBy::background, l.deferred_done));
}

void text_fill(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      "cistern:   filled         %.1f MiB with byte 0x%02X in %lu fills, %lu waits; not filled: "
      "%lu during captures, %lu of another kind of memory, %lu failed\n",
      mib(l.fill_bytes.get()), static_cast<unsigned>(policy().fill_byte()), l.fills.get(),
      l.fill_waits.get(), l.fills_skipped.get(), l.fills_of_other_kind.get(), l.fills_failed.get());
}

void text_shortages(Writer& writer, const alloc::Ledger& l) {
  writer.print("cistern:   shortages      ended by");
  for (int i = 0; i < alloc::kSteps; ++i) {
    writer.print("%s %s %lu", i == 0 ? "" : ",", alloc::kStepNames[i], l.served_by[i].get());
  }
  writer.print("\n");
}

// What the settings did that help to find faults in the program (CISTERN_ONLY_SIZES,
// CISTERN_POOL_FIRST).
void text_faults(Writer& writer, const alloc::Ledger& l) {
  if (policy().chooses_requests()) {
    writer.print("cistern:   not pooled     %lu allocations, because of the settings",
                 l.unpooled.get());
    if (const uint64_t pooled = l.unpooled_short.get(); pooled != 0) {
      writer.print("; the pools served %lu more because no other memory was left", pooled);
    }
    writer.print("\n");
  }
}

void text_garbage(Writer& writer, const alloc::Garbage& garbage) {
  writer.print(
      "cistern:   held back      %.1f MiB until the threshold (%lu flushes), %.1f MiB until a "
      "synchronisation, %.1f MiB until memory was short\n",
      mib(garbage.until_threshold.get()), garbage.flushes.get(),
      mib(garbage.until_synchronise.get()), mib(garbage.flushed_when_short.get()));
}

// GE_USE_STATIC_MEMORY=3 and 4.
void text_units(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print(
      "cistern:   units          static memory mode %d: %lu mapped, %.1f MiB of them idle; %lu "
      "created, %lu released; %lu requests moved %lu units\n",
      mode_of(device.strategy), l.units.get(), mib(device.usage.idle), l.units_created.get(),
      l.units_released.get(), l.remaps.get(), l.units_remapped.get());
}

// GE_USE_STATIC_MEMORY=2 and 4.
void text_arena(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print(
      "cistern:   arena          static memory mode %d: %lu graphs need %.1f MiB together; at "
      "most "
      "%.1f MiB taken for them, %.1f MiB gained; taken %lu times, %lu increments; %lu graphs "
      "apart, %lu arenas left\n",
      mode_of(device.strategy), l.graphs.get(), mib(l.graph_bytes.get()), mib(l.arena_peak.get()),
      mib(gain_of_arena(l)), l.arenas_taken.get(), l.arena_increments.get(), l.graphs_apart.get(),
      l.arenas_left.get());
}

// CISTERN_PLAN.
void text_plan(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      "cistern:   plan           %.1f MiB; %lu requests served at their place, %lu whose place "
      "was "
      "not free; entered %lu times, left %lu, followed to its end "
      "%lu; %lu plans made by itself\n",
      mib(l.plan_bytes.get()), l.plan_served.get(), l.plan_occupied.get(), l.plan_entered.get(),
      l.plan_left.get(), l.plan_periods.get(), l.plans_made.get());
}

void text_device(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  const alloc::Usage& usage = device.usage;
  writer.print("cistern: device %d\n", device.ordinal);
  writer.print("cistern:   driver calls   %lu allocating or freeing; %lu without Cistern\n",
               driver_calls(device), driver_calls_without(device));
  writer.print("cistern:   strategy       %s, %lu chunks, %.1f MiB\n",
               alloc::strategy_name(device.strategy), l.chunks.get(), mib(l.reserved.get()));
  writer.print("cistern:   served         %lu of %lu allocations from the pool (%.1f %%)\n",
               hits(device), device.allocations, 100 * ratio(hits(device), device.allocations));
  writer.print("cistern:   at peak        live %.1f MiB, reserved %.1f MiB, ratio %.3f\n",
               mib(l.live_peak.get()), mib(l.reserved_peak.get()),
               ratio(l.reserved_peak.get(), l.live_peak.get()));
  writer.print(
      "cistern:   at exit        live %.1f MiB, idle %.1f MiB, waiting %.1f MiB, parked for graphs "
      "%.1f MiB\n",
      mib(usage.live), mib(usage.idle), mib(usage.waiting), mib(usage.parked));
  if (alloc::has_units(device.strategy)) text_units(writer, device);
  if (alloc::has_arenas(device.strategy)) text_arena(writer, device);
  if (policy().plan.value.mode != config::PlanMode::kOff) text_plan(writer, l);
  if (device.garbage != nullptr) text_garbage(writer, *device.garbage);
  if (l.quarantined_peak.get() != 0) {
    writer.print(
        "cistern:   quarantined    %.1f MiB at exit, at most %.1f MiB: freed, but known outside "
        "the "
        "process\n",
        mib(usage.quarantined), mib(l.quarantined_peak.get()));
  }
  text_kinds(writer, device);
  writer.print(
      "cistern:   waits          %lu, %.3f ms; returned under pressure: %lu times; "
      "out of memory: %lu times\n",
      l.waits.get(), static_cast<double>(l.wait_ns.get()) / 1e6, l.shortages.get(),
      l.out_of_memory.get());
  if (const uint64_t times = l.bound_gave_way.get(); times != 0) {
    writer.print(
        "cistern:   no bound       %lu times more memory waited than allowed: no work ended for "
        "a second\n",
        times);
  }
  if (const uint64_t lost = l.lost.get(); lost != 0) {
    writer.print(
        "cistern:   not returned   %lu chunks or units: the driver refused to take them back\n",
        lost);
  }
  if (l.shortages.get() != 0) text_shortages(writer, l);
  text_faults(writer, l);
  if (policy().free_idle_memory) text_idle(writer, l);
  if (!policy().eager_delete_scope) text_put_off(writer, l);
  if (policy().caches_scratch()) text_scratch(writer, l);
  if (policy().fill_byte() >= 0) text_fill(writer, l);
  if (alloc::group_rules(policy()).on) {
    writer.print(
        "cistern:   groups         %lu with %lu members side by side; %.1f MiB reserved for "
        "members "
        "that did not come\n",
        l.groups.get(), l.group_members.get(), mib(l.group_room.get()));
  }
  if (const uint64_t times = l.sizes_forgotten.get(); times != 0) {
    writer.print(
        "cistern:   other sizes    %lu times freed memory served other sizes than its own because "
        "memory was short\n",
        times);
  }
}

void text_host(Writer& writer, const alloc::host::HostUsage& host) {
  writer.print(
      "cistern: host memory      %lu chunks, %.1f MiB reserved, malloc has %.1f MiB, idle %.1f "
      "MiB; locked %.1f MiB, not locked %.1f MiB; %lu requests refused\n",
      host.chunks, mib(host.reserved), mib(host.live), mib(host.idle), mib(host.locked),
      mib(host.refused), host.failed);
}

void text_pinned(Writer& writer, const PinnedReport& pinned) {
  const alloc::Ledger& l = *pinned.ledger;
  const uint64_t calls = l.obtained.get() + l.refused.get() + l.releases();
  writer.print(
      "cistern: pinned memory    %lu allocations, %lu driver calls; live %.1f MiB, peak %.1f "
      "MiB; "
      "taken %.1f MiB, peak %.1f MiB, limit %.1f MiB; %lu refused by it\n",
      pinned.allocations, calls, mib(pinned.usage.live), mib(l.live_peak.get()),
      mib(l.reserved.get()), mib(l.reserved_peak.get()), mib(pinned.limit_bytes),
      l.refused_by_cap.get());
}

void text_ipc(Writer& writer, const IpcReport& ipc) {
  if (ipc.exported == 0 && ipc.opened == 0) return;
  writer.print(
      "cistern: IPC              %lu handles of Cistern's made here, opened elsewhere %lu times; "
      "%lu of other processes opened here\n",
      ipc.exported, ipc.answered, ipc.opened);
}

void text_driver_pools(Writer& writer, const PoolsReport& pools) {
  if (pools.adopted == 0) return;
  writer.print(
      "cistern: memory pools     %lu pools of the driver kept recently used memory: at most %.1f "
      "MiB; "
      "trimmed %lu times, %.1f MiB\n",
      pools.adopted, mib(pools.kept_peak_bytes), pools.trims, mib(pools.trimmed_bytes));
}

// Why more is assumed than is seen, and what came of it.
void text_reason(Writer& writer, const char* what, const char* why, const char* effect) {
  if (why == nullptr) return;
  writer.print("cistern: %-15s  ", what);
  writer.plain(why);
  writer.print("; %s after that\n", effect);
}

void text_unknown(Writer& writer, const UnknownReport& unknown) {
  text_reason(writer, "careful", unknown.careful, "the driver served all requests");
  text_reason(writer, "careful", unknown.unseen_work, "frees waited for all work");
  text_reason(writer, "all visible", unknown.all_visible, "frees waited for all unfinished work");
}

template <size_t n>
void text_by(Writer& writer, const WaitCount (&counts)[n], const char* const (&names)[n]) {
  const char* between = " (";
  bool any = false;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t waits = counts[i].waits.get();
    if (waits == 0) continue;
    writer.print("%s%s %lu", between, names[i], waits);
    between = ", ";
    any = true;
  }
  if (any) writer.print(")");
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

// What the barrier that a free is cost (CISTERN_FREE_SYNC).
void text_free_waits(Writer& writer, const FreeCounts& frees) {
  const WaitSum sum = waits_of_frees(frees);
  if (sum.waits == 0) return;
  const uint64_t visible = frees.for_visible.waits.get();
  writer.print(
      "cistern: frees waited     %lu times, %.3f ms: %lu for work visible to the host, %lu for "
      "all "
      "work",
      sum.waits, ms(sum.ns), visible, sum.waits - visible);
  text_by(writer, frees.for_all, kFreeWaitReasons);
  writer.print("\n");
}

void text_debts(Writer& writer, const FreeCounts& frees) {
  const WaitSum sum = waits_for_order(frees);
  if (frees.ordered.get() == 0 && sum.waits == 0) return;
  writer.print(
      "cistern: frees in order   %lu left to the device: %lu events, %lu waits of streams; the "
      "host waited %lu times, %.3f ms",
      frees.ordered.get(), frees.events.get(), frees.stream_waits.get(), sum.waits, ms(sum.ns));
  text_by(writer, frees.paid, kPaidBy);
  writer.print("\n");
}

// Which requests the settings chose by where they come from.
void text_sites(Writer& writer, const ProcessReport& process) {
  SiteEntry entry;
  for (int i = 0; process.site_entry != nullptr && process.site_entry(i, &entry); ++i) {
    writer.print("cistern: %s '", entry.setting);
    writer.plain(entry.text);
    entry.matched == 0 ? writer.print("' matched nothing\n")
                       : writer.print("' matched %lu requests\n", entry.matched);
  }
}

}  // namespace

void compose_text(Writer& writer, const ProcessReport& process, const Advice& advice) {
  const Run run;
  writer.print("cistern: report of process %d, ", static_cast<int>(getpid()));
  writer.plain(run.program);
  writer.print(", on %s, ended %s, Cistern %s\n", run.host, run.ended, config::kVersion);
  writer.print("cistern: policy: ");
  writer.plain(policy_line());
  writer.print("\n");
  for_each_device(process, [&](const DeviceReport& device) { text_device(writer, device); });
  alloc::host::HostUsage host;
  if (process.host_memory != nullptr && process.host_memory(&host)) text_host(writer, host);
  PinnedReport pinned;
  if (process.pinned_memory != nullptr && process.pinned_memory(&pinned)) {
    text_pinned(writer, pinned);
  }
  text_free_waits(writer, *process.frees);
  text_debts(writer, *process.frees);
  text_ipc(writer, process.ipc);
  text_driver_pools(writer, process.driver_pools);
  text_unknown(writer, process.unknown);
  if (process.holders != nullptr) text_holders(writer, *process.holders);
  text_sites(writer, process);
  writer.print("cistern: events recorded %lu, queried %lu\n", process.events_recorded,
               process.events_queried);
  if (process.unseen_contexts != 0 || process.unseen_streams != 0) {
    writer.print(
        "cistern: unseen           %lu contexts and %lu streams that no hook saw created\n",
        process.unseen_contexts, process.unseen_streams);
  }
  for (const config::Framework* framework : advice.frameworks.list()) {
    char text[200];
    config::describe_framework(*framework, text, sizeof text);
    writer.print("cistern: %-15s  %s\n", framework->name, text);
  }
  for (const Hint& hint : advice.list()) writer.print("cistern: hint             %s\n", hint.text);
}

}  // namespace cistern::shim
