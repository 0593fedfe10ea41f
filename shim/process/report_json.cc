// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "allocator/chunk_pools/groups.h"
#include "config/version.h"
#include "shim/process/report_writer.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

void json_kinds(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print("     \"charged_bytes\": %lu, \"refused_by_limit\": %lu,\n     \"by_kind\": {",
               device.cap->charged(), l.refused_by_cap.get());
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    writer.print("%s\"%s\": {\"bytes\": %lu, \"peak_bytes\": %lu}", i == 0 ? "" : ", ", kKinds[i],
                 taken(l, i), taken_peak(l, i));
  }
  writer.print("},\n");
}

void json_scratch(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"scratch\": {\"hits\": %lu, \"misses\": %lu, \"cached_bytes\": %lu, "
      "\"returned\": %lu}",
      l.scratch_hits.get(), l.scratch_misses.get(), l.scratch_bytes.get(),
      l.scratch_released.get());
}

void json_faults(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      "     \"free_waits\": %lu, \"free_wait_ns\": %lu, \"passed_through\": %lu, "
      "\"kept_out_but_pooled\": %lu,\n",
      l.free_waits.get(), l.free_wait_ns.get(), l.unpooled.get(), l.unpooled_short.get());
}

void json_garbage(Writer& writer, const alloc::Garbage& garbage) {
  writer.print(
      ",\n     \"garbage\": {\"flushes\": %lu, \"collected_bytes\": %lu, \"kept_bytes\": %lu, "
      "\"drained_bytes\": %lu}",
      garbage.flushes.get(), garbage.until_threshold.get(), garbage.until_synchronise.get(),
      garbage.flushed_when_short.get());
}

void json_idle(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"idle_release\": {\"calls\": {\"chunks\": %lu, \"bytes\": %lu}, "
      "\"background\": {\"chunks\": %lu, \"bytes\": %lu}}",
      by(alloc::WorkedBy::call, l.aged), by(alloc::WorkedBy::call, l.aged_bytes),
      by(alloc::WorkedBy::background, l.aged), by(alloc::WorkedBy::background, l.aged_bytes));
}

void json_put_off(Writer& writer, const alloc::Ledger& l) {
  writer.print(",\n     \"put_off_frees\": {\"calls\": %lu, \"background\": %lu}",
               by(alloc::WorkedBy::call, l.deferred_done),
               by(alloc::WorkedBy::background, l.deferred_done));
}

void json_fill(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"fill\": {\"byte\": %u, \"fills\": %lu, \"bytes\": %lu, \"waits\": %lu, "
      "\"skipped_in_captures\": %lu, \"skipped_kinds\": %lu, \"failed\": %lu}",
      static_cast<unsigned>(policy().fill_byte()), l.fills.get(), l.fill_bytes.get(),
      l.fill_waits.get(), l.fills_skipped.get(), l.fills_of_other_kind.get(), l.fills_failed.get());
}

void json_strategy(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print("     \"strategy\": \"%s\", \"chunks\": %lu, \"shortages_ended_by\": {",
               alloc::strategy_name(device.strategy), l.chunks.get());
  for (int i = 0; i < alloc::kSteps; ++i) {
    writer.print("%s\"%s\": %lu", i == 0 ? "" : ", ", alloc::kStepNames[i], l.served_by[i].get());
  }
  writer.print("}");
}

// GE_USE_STATIC_MEMORY=3 and 4.
void json_units(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print(
      ",\n     \"units\": {\"mode\": %d, \"mapped\": %lu, \"idle_bytes\": %lu, \"created\": "
      "%lu, "
      "\"released\": %lu, \"remaps\": %lu, \"remapped\": %lu}",
      mode_of(device.strategy), l.units.get(), device.usage.idle, l.units_created.get(),
      l.units_released.get(), l.remaps.get(), l.units_remapped.get());
}

// GE_USE_STATIC_MEMORY=2 and 4.
void json_arena(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print(
      ",\n     \"arena\": {\"mode\": %d, \"graphs\": %lu, \"sum_bytes\": %lu, \"bytes\": %lu, "
      "\"peak_bytes\": %lu, \"gain_bytes\": %lu, \"taken\": %lu, \"increments\": %lu, "
      "\"apart\": %lu, \"left\": %lu}",
      mode_of(device.strategy), l.graphs.get(), l.graph_bytes.get(), l.arena_bytes.get(),
      l.arena_peak.get(), gain_of_arena(l), l.arenas_taken.get(), l.arena_increments.get(),
      l.graphs_apart.get(), l.arenas_left.get());
}

// CISTERN_PLAN.
void json_plan(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"plan\": {\"bytes\": %lu, \"served\": %lu, \"occupied\": %lu, \"entered\": "
      "%lu, \"left\": %lu, \"periods\": %lu, \"made\": %lu}",
      l.plan_bytes.get(), l.plan_served.get(), l.plan_occupied.get(), l.plan_entered.get(),
      l.plan_left.get(), l.plan_periods.get(), l.plans_made.get());
}

void json_device(Writer& writer, const DeviceReport& device, bool first) {
  const alloc::Ledger& l = *device.ledger;
  const alloc::Usage& usage = device.usage;
  writer.print("%s\n    {\"device\": %d, \"total_bytes\": %lu, \"limit_bytes\": %lu,\n",
               first ? "" : ",", device.ordinal, device.total_bytes, device.cap->limit());
  writer.print("     \"allocations\": %lu, \"hits\": %lu, \"hit_rate\": %.4f,\n",
               device.allocations, hits(device), ratio(hits(device), device.allocations));
  writer.print("     \"driver_calls\": %lu, \"driver_calls_without\": %lu,\n", driver_calls(device),
               driver_calls_without(device));
  writer.print(
      "     \"live_peak_bytes\": %lu, \"reserved_peak_bytes\": %lu, "
      "\"reserved_to_live\": %.4f,\n",
      l.live_peak.get(), l.reserved_peak.get(), ratio(l.reserved_peak.get(), l.live_peak.get()));
  writer.print(
      "     \"live_bytes\": %lu, \"idle_bytes\": %lu, \"waiting_bytes\": %lu, "
      "\"live_and_waiting_peak_bytes\": %lu, \"parked_bytes\": %lu, \"reserved_bytes\": %lu,\n",
      usage.live, usage.idle, usage.waiting, l.live_and_waiting_peak.get(), usage.parked,
      l.reserved.get());
  writer.print("     \"quarantined_bytes\": %lu, \"quarantined_peak_bytes\": %lu,\n",
               usage.quarantined, l.quarantined_peak.get());
  json_kinds(writer, device);
  writer.print(
      "     \"waits\": %lu, \"wait_ns\": %lu, \"held_back\": %lu, \"held_back_ns\": %lu, "
      "\"bound_gave_way\": %lu, \"shortages\": %lu, "
      "\"out_of_memory\": %lu, \"lost_chunks\": %lu,\n",
      l.waits.get(), l.wait_ns.get(), l.held_back.get(), l.held_back_ns.get(),
      l.bound_gave_way.get(), l.shortages.get(), l.out_of_memory.get(), l.lost.get());
  json_faults(writer, l);
  json_strategy(writer, device);
  if (alloc::has_units(device.strategy)) json_units(writer, device);
  if (alloc::has_arenas(device.strategy)) json_arena(writer, device);
  if (policy().plan.value.mode != config::PlanMode::kOff) json_plan(writer, l);
  if (device.garbage != nullptr) json_garbage(writer, *device.garbage);
  if (policy().free_idle_memory) json_idle(writer, l);
  if (!policy().eager_delete_scope) json_put_off(writer, l);
  if (policy().caches_scratch()) json_scratch(writer, l);
  if (policy().fill_byte() >= 0) json_fill(writer, l);
  if (alloc::group_rules(policy()).on) {
    writer.print(",\n     \"groups\": {\"made\": %lu, \"members\": %lu, \"unused_bytes\": %lu}",
                 l.groups.get(), l.group_members.get(), l.group_room.get());
  }
  if (policy().memory_optimize.set) {
    writer.print(",\n     \"sizes_forgotten\": %lu", l.sizes_forgotten.get());
  }
  writer.print("}");
}

void json_host(Writer& writer, const alloc::host::HostUsage& host) {
  writer.print(
      "\n \"host_memory\": {\"chunks\": %lu, \"reserved_bytes\": %lu, \"live_bytes\": %lu, "
      "\"idle_bytes\": %lu, \"locked_bytes\": %lu, \"unlocked_bytes\": %lu, \"refused\": %lu},",
      host.chunks, host.reserved, host.live, host.idle, host.locked, host.refused, host.failed);
}

void json_unknown(Writer& writer, const UnknownReport& unknown) {
  writer.print(
      "\n \"unknown_functions\": {\"in_driver\": %lu, \"looked_up\": %lu, \"called\": %lu, "
      "\"linked\": %lu}, \"careful\": ",
      unknown.in_driver, unknown.looked_up, unknown.called, unknown.linked);
  writer.quoted(unknown.careful == nullptr ? "" : unknown.careful);
  writer.print(",\n \"unseen_work\": ");
  writer.quoted(unknown.unseen_work == nullptr ? "" : unknown.unseen_work);
  writer.print(", \"all_visible\": ");
  writer.quoted(unknown.all_visible == nullptr ? "" : unknown.all_visible);
  writer.print(",");
}

template <size_t n>
void json_by(Writer& writer, const char* key, const WaitCount (&counts)[n],
             const char* const (&names)[n]) {
  writer.print(",\n  \"%s\": {", key);
  for (size_t i = 0; i < n; ++i) {
    writer.print("%s\"%s\": {\"waits\": %lu, \"ns\": %lu}", i == 0 ? "" : ", ", names[i],
                 counts[i].waits.get(), counts[i].ns.get());
  }
  writer.print("}");
}

// What is left of all frees had nothing to wait for.
uint64_t frees_at_once(const ProcessReport& process) {
  uint64_t all = 0;
  for_each_device(process, [&](const DeviceReport& device) { all += device.frees; });
  PinnedReport pinned;
  if (process.pinned_memory != nullptr && process.pinned_memory(&pinned)) all += pinned.frees;
  const uint64_t others = waits_of_frees(*process.frees).waits + process.frees->ordered.get();
  return all > others ? all - others : 0;
}

void json_frees(Writer& writer, const ProcessReport& process) {
  const FreeCounts& frees = *process.frees;
  writer.print(
      "\n \"frees\": {\"at_once\": %lu, \"left_to_device\": %lu, "
      "\"waited_for_visible\": {\"waits\": %lu, \"ns\": %lu}",
      frees_at_once(process), frees.ordered.get(), frees.for_visible.waits.get(),
      frees.for_visible.ns.get());
  json_by(writer, "waited_for_all", frees.for_all, kFreeWaitReasons);
  writer.print(",\n  \"debts\": %lu, \"events\": %lu, \"stream_waits\": %lu", frees.debts.get(),
               frees.events.get(), frees.stream_waits.get());
  json_by(writer, "debts_waited_for", frees.paid, kPaidBy);
  writer.print("},");
}

void json_pinned(Writer& writer, const PinnedReport& pinned) {
  const alloc::Ledger& l = *pinned.ledger;
  const uint64_t calls = l.obtained.get() + l.refused.get() + l.releases();
  const uint64_t waiting = pinned.usage.waiting + pinned.usage.parked;
  writer.print(
      "\n \"pinned_memory\": {\"limit_bytes\": %lu, \"allocations\": %lu, \"frees\": %lu, "
      "\"driver_calls\": %lu,\n  \"live_peak_bytes\": %lu, \"reserved_peak_bytes\": %lu, "
      "\"live_bytes\": %lu, \"idle_bytes\": %lu, \"waiting_bytes\": %lu, "
      "\"reserved_bytes\": %lu,\n  \"chunks\": %lu, \"refused_by_limit\": %lu},",
      pinned.limit_bytes, pinned.allocations, pinned.frees, calls, l.live_peak.get(),
      l.reserved_peak.get(), pinned.usage.live, pinned.usage.idle, waiting, l.reserved.get(),
      l.chunks.get(), l.refused_by_cap.get());
}

void json_sites(Writer& writer, const ProcessReport& process) {
  SiteEntry entry;
  if (process.site_entry == nullptr || !process.site_entry(0, &entry)) return;
  writer.print("\n \"chosen_sites\": [");
  for (int i = 0; process.site_entry(i, &entry); ++i) {
    writer.print("%s\n  {\"setting\": \"%s\", \"entry\": ", i == 0 ? "" : ",", entry.setting);
    writer.quoted(entry.text);
    writer.print(", \"matched\": %lu}", entry.matched);
  }
  writer.print("\n ],");
}

void json_advice(Writer& writer, const Advice& advice) {
  writer.print("\n \"frameworks\": [");
  const char* between = "";
  for (const config::Framework* framework : advice.frameworks.list()) {
    writer.print("%s{\"name\": \"%s\", \"setting\": \"%s\"}", between, framework->name,
                 framework->setting);
    between = ", ";
  }
  writer.print("],\n \"hints\": [");
  between = "";
  for (const Hint& hint : advice.list()) {
    writer.print("%s\n  {\"about\": \"%s\", \"text\": ", between, hint.about);
    writer.quoted(hint.text);
    writer.print("}");
    between = ",";
  }
  writer.print("]");
}

}  // namespace

void compose_json(Writer& writer, const ProcessReport& process, const Advice& advice) {
  const Run run;
  writer.print("{\"cistern\": 1, \"version\": \"%s\", \"pid\": %d", config::kVersion,
               static_cast<int>(getpid()));
  const struct {
    const char *key, *text;
  } texts[] = {{"program", run.program},
               {"host", run.host},
               {"ended", run.ended},
               {"policy", policy_line()}};
  for (const auto& [key, text] : texts) {
    writer.print(",\n \"%s\": ", key);
    writer.quoted(text);
  }
  writer.print(", \"events_recorded\": %lu, \"events_queried\": %lu,", process.events_recorded,
               process.events_queried);
  writer.print("\n \"unseen\": {\"contexts\": %lu, \"streams\": %lu},", process.unseen_contexts,
               process.unseen_streams);
  json_unknown(writer, process.unknown);
  json_frees(writer, process);
  const IpcReport& ipc = process.ipc;
  writer.print(
      "\n \"ipc\": {\"exported\": %lu, \"answered\": %lu, \"opened\": %lu, \"unanswered\": "
      "%lu},",
      ipc.exported, ipc.answered, ipc.opened, ipc.unanswered);
  const PoolsReport& pools = process.driver_pools;
  writer.print(
      "\n \"driver_pools\": {\"adopted\": %lu, \"kept_peak_bytes\": %lu, \"trims\": %lu, "
      "\"trimmed_bytes\": %lu},",
      pools.adopted, pools.kept_peak_bytes, pools.trims, pools.trimmed_bytes);
  alloc::host::HostUsage host;
  if (process.host_memory != nullptr && process.host_memory(&host)) json_host(writer, host);
  PinnedReport pinned;
  if (process.pinned_memory != nullptr && process.pinned_memory(&pinned)) {
    json_pinned(writer, pinned);
  }
  if (process.holders != nullptr) json_holders(writer, *process.holders);
  json_sites(writer, process);
  writer.print("\n \"devices\": [");
  bool first = true;
  for_each_device(process, [&](const DeviceReport& device) {
    json_device(writer, device, first);
    first = false;
  });
  writer.print("\n ],");
  json_advice(writer, advice);
  writer.print("}\n");
}

}  // namespace cistern::shim
