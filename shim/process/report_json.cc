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
  writer.print("     \"charged_bytes\": %llu, \"refused_by_limit\": %llu,\n     \"by_kind\": {",
               static_cast<ull>(device.cap->charged()), static_cast<ull>(l.refused_by_cap.get()));
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    writer.print("%s\"%s\": {\"bytes\": %llu, \"peak_bytes\": %llu}", i == 0 ? "" : ", ", kKinds[i],
                 static_cast<ull>(taken(l, i)), static_cast<ull>(taken_peak(l, i)));
  }
  writer.print("},\n");
}

void json_scratch(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"scratch\": {\"hits\": %llu, \"misses\": %llu, \"cached_bytes\": %llu, "
      "\"returned\": %llu}",
      static_cast<ull>(l.scratch_hits.get()), static_cast<ull>(l.scratch_misses.get()),
      static_cast<ull>(l.scratch_bytes.get()), static_cast<ull>(l.scratch_released.get()));
}

void json_faults(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      "     \"free_waits\": %llu, \"free_wait_ns\": %llu, \"passed_through\": %llu, "
      "\"kept_out_but_pooled\": %llu,\n",
      static_cast<ull>(l.free_waits.get()), static_cast<ull>(l.free_wait_ns.get()),
      static_cast<ull>(l.unpooled.get()), static_cast<ull>(l.unpooled_short.get()));
}

void json_garbage(Writer& writer, const alloc::Garbage& garbage) {
  writer.print(
      ",\n     \"garbage\": {\"flushes\": %llu, \"collected_bytes\": %llu, \"kept_bytes\": %llu, "
      "\"drained_bytes\": %llu}",
      static_cast<ull>(garbage.flushes.get()), static_cast<ull>(garbage.until_threshold.get()),
      static_cast<ull>(garbage.until_synchronise.get()),
      static_cast<ull>(garbage.flushed_when_short.get()));
}

void json_idle(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"idle_release\": {\"calls\": {\"chunks\": %llu, \"bytes\": %llu}, "
      "\"background\": {\"chunks\": %llu, \"bytes\": %llu}}",
      by(alloc::WorkedBy::call, l.aged), by(alloc::WorkedBy::call, l.aged_bytes),
      by(alloc::WorkedBy::background, l.aged), by(alloc::WorkedBy::background, l.aged_bytes));
}

void json_put_off(Writer& writer, const alloc::Ledger& l) {
  writer.print(",\n     \"put_off_frees\": {\"calls\": %llu, \"background\": %llu}",
               by(alloc::WorkedBy::call, l.deferred_done),
               by(alloc::WorkedBy::background, l.deferred_done));
}

void json_fill(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"fill\": {\"byte\": %u, \"fills\": %llu, \"bytes\": %llu, \"waits\": %llu, "
      "\"skipped_in_captures\": %llu, \"skipped_kinds\": %llu, \"failed\": %llu}",
      static_cast<unsigned>(policy().fill_byte()), static_cast<ull>(l.fills.get()),
      static_cast<ull>(l.fill_bytes.get()), static_cast<ull>(l.fill_waits.get()),
      static_cast<ull>(l.fills_skipped.get()), static_cast<ull>(l.fills_of_other_kind.get()),
      static_cast<ull>(l.fills_failed.get()));
}

void json_strategy(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print("     \"strategy\": \"%s\", \"chunks\": %llu, \"shortages_ended_by\": {",
               alloc::strategy_name(device.strategy), static_cast<ull>(l.chunks.get()));
  for (int i = 0; i < alloc::kSteps; ++i) {
    writer.print("%s\"%s\": %llu", i == 0 ? "" : ", ", alloc::kStepNames[i],
                 static_cast<ull>(l.served_by[i].get()));
  }
  writer.print("}");
}

// GE_USE_STATIC_MEMORY=3 and 4.
void json_units(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print(
      ",\n     \"units\": {\"mode\": %d, \"mapped\": %llu, \"idle_bytes\": %llu, \"created\": "
      "%llu, "
      "\"released\": %llu, \"remaps\": %llu, \"remapped\": %llu}",
      mode_of(device.strategy), static_cast<ull>(l.units.get()),
      static_cast<ull>(device.usage.idle), static_cast<ull>(l.units_created.get()),
      static_cast<ull>(l.units_released.get()), static_cast<ull>(l.remaps.get()),
      static_cast<ull>(l.units_remapped.get()));
}

// GE_USE_STATIC_MEMORY=2 and 4.
void json_arena(Writer& writer, const DeviceReport& device) {
  const alloc::Ledger& l = *device.ledger;
  writer.print(
      ",\n     \"arena\": {\"mode\": %d, \"graphs\": %llu, \"sum_bytes\": %llu, \"bytes\": %llu, "
      "\"peak_bytes\": %llu, \"gain_bytes\": %llu, \"taken\": %llu, \"increments\": %llu, "
      "\"apart\": %llu, \"left\": %llu}",
      mode_of(device.strategy), static_cast<ull>(l.graphs.get()),
      static_cast<ull>(l.graph_bytes.get()), static_cast<ull>(l.arena_bytes.get()),
      static_cast<ull>(l.arena_peak.get()), static_cast<ull>(gain_of_arena(l)),
      static_cast<ull>(l.arenas_taken.get()), static_cast<ull>(l.arena_increments.get()),
      static_cast<ull>(l.graphs_apart.get()), static_cast<ull>(l.arenas_left.get()));
}

// CISTERN_PLAN.
void json_plan(Writer& writer, const alloc::Ledger& l) {
  writer.print(
      ",\n     \"plan\": {\"bytes\": %llu, \"served\": %llu, \"occupied\": %llu, \"entered\": "
      "%llu, \"left\": %llu, \"periods\": %llu, \"made\": %llu}",
      static_cast<ull>(l.plan_bytes.get()), static_cast<ull>(l.plan_served.get()),
      static_cast<ull>(l.plan_occupied.get()), static_cast<ull>(l.plan_entered.get()),
      static_cast<ull>(l.plan_left.get()), static_cast<ull>(l.plan_periods.get()),
      static_cast<ull>(l.plans_made.get()));
}

void json_device(Writer& writer, const DeviceReport& device, bool first) {
  const alloc::Ledger& l = *device.ledger;
  const alloc::Usage& usage = device.usage;
  writer.print("%s\n    {\"device\": %d, \"total_bytes\": %llu, \"limit_bytes\": %llu,\n",
               first ? "" : ",", device.ordinal, static_cast<ull>(device.total_bytes),
               static_cast<ull>(device.cap->limit()));
  writer.print("     \"allocations\": %llu, \"hits\": %llu, \"hit_rate\": %.4f,\n",
               static_cast<ull>(device.allocations), static_cast<ull>(hits(device)),
               ratio(hits(device), device.allocations));
  writer.print("     \"driver_calls\": %llu, \"driver_calls_without\": %llu,\n",
               static_cast<ull>(driver_calls(device)),
               static_cast<ull>(driver_calls_without(device)));
  writer.print(
      "     \"live_peak_bytes\": %llu, \"reserved_peak_bytes\": %llu, "
      "\"reserved_to_live\": %.4f,\n",
      static_cast<ull>(l.live_peak.get()), static_cast<ull>(l.reserved_peak.get()),
      ratio(l.reserved_peak.get(), l.live_peak.get()));
  writer.print(
      "     \"live_bytes\": %llu, \"idle_bytes\": %llu, \"waiting_bytes\": %llu, "
      "\"live_and_waiting_peak_bytes\": %llu, \"parked_bytes\": %llu, \"reserved_bytes\": %llu,\n",
      static_cast<ull>(usage.live), static_cast<ull>(usage.idle), static_cast<ull>(usage.waiting),
      static_cast<ull>(l.live_and_waiting_peak.get()), static_cast<ull>(usage.parked),
      static_cast<ull>(l.reserved.get()));
  writer.print("     \"quarantined_bytes\": %llu, \"quarantined_peak_bytes\": %llu,\n",
               static_cast<ull>(usage.quarantined), static_cast<ull>(l.quarantined_peak.get()));
  json_kinds(writer, device);
  writer.print(
      "     \"waits\": %llu, \"wait_ns\": %llu, \"held_back\": %llu, \"held_back_ns\": %llu, "
      "\"bound_gave_way\": %llu, \"shortages\": %llu, "
      "\"out_of_memory\": %llu, \"lost_chunks\": %llu,\n",
      static_cast<ull>(l.waits.get()), static_cast<ull>(l.wait_ns.get()),
      static_cast<ull>(l.held_back.get()), static_cast<ull>(l.held_back_ns.get()),
      static_cast<ull>(l.bound_gave_way.get()), static_cast<ull>(l.shortages.get()),
      static_cast<ull>(l.out_of_memory.get()), static_cast<ull>(l.lost.get()));
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
    writer.print(",\n     \"groups\": {\"made\": %llu, \"members\": %llu, \"unused_bytes\": %llu}",
                 static_cast<ull>(l.groups.get()), static_cast<ull>(l.group_members.get()),
                 static_cast<ull>(l.group_room.get()));
  }
  if (policy().memory_optimize.set) {
    writer.print(",\n     \"sizes_forgotten\": %llu", static_cast<ull>(l.sizes_forgotten.get()));
  }
  writer.print("}");
}

void json_host(Writer& writer, const alloc::host::HostUsage& host) {
  writer.print(
      "\n \"host_memory\": {\"chunks\": %llu, \"reserved_bytes\": %llu, \"live_bytes\": %llu, "
      "\"idle_bytes\": %llu, \"locked_bytes\": %llu, \"unlocked_bytes\": %llu, \"refused\": %llu},",
      static_cast<ull>(host.chunks), static_cast<ull>(host.reserved), static_cast<ull>(host.live),
      static_cast<ull>(host.idle), static_cast<ull>(host.locked), static_cast<ull>(host.refused),
      static_cast<ull>(host.failed));
}

void json_unknown(Writer& writer, const UnknownReport& unknown) {
  writer.print(
      "\n \"unknown_functions\": {\"in_driver\": %llu, \"looked_up\": %llu, \"called\": %llu, "
      "\"linked\": %llu}, \"careful\": ",
      static_cast<ull>(unknown.in_driver), static_cast<ull>(unknown.looked_up),
      static_cast<ull>(unknown.called), static_cast<ull>(unknown.linked));
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
    writer.print("%s\"%s\": {\"waits\": %llu, \"ns\": %llu}", i == 0 ? "" : ", ", names[i],
                 static_cast<ull>(counts[i].waits.get()), static_cast<ull>(counts[i].ns.get()));
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
      "\n \"frees\": {\"at_once\": %llu, \"left_to_device\": %llu, "
      "\"waited_for_visible\": {\"waits\": %llu, \"ns\": %llu}",
      static_cast<ull>(frees_at_once(process)), static_cast<ull>(frees.ordered.get()),
      static_cast<ull>(frees.for_visible.waits.get()),
      static_cast<ull>(frees.for_visible.ns.get()));
  json_by(writer, "waited_for_all", frees.for_all, kFreeWaitReasons);
  writer.print(",\n  \"debts\": %llu, \"events\": %llu, \"stream_waits\": %llu",
               static_cast<ull>(frees.debts.get()), static_cast<ull>(frees.events.get()),
               static_cast<ull>(frees.stream_waits.get()));
  json_by(writer, "debts_waited_for", frees.paid, kPaidBy);
  writer.print("},");
}

void json_pinned(Writer& writer, const PinnedReport& pinned) {
  const alloc::Ledger& l = *pinned.ledger;
  const uint64_t calls = l.obtained.get() + l.refused.get() + l.releases();
  const uint64_t waiting = pinned.usage.waiting + pinned.usage.parked;
  writer.print(
      "\n \"pinned_memory\": {\"limit_bytes\": %llu, \"allocations\": %llu, \"frees\": %llu, "
      "\"driver_calls\": %llu,\n  \"live_peak_bytes\": %llu, \"reserved_peak_bytes\": %llu, "
      "\"live_bytes\": %llu, \"idle_bytes\": %llu, \"waiting_bytes\": %llu, "
      "\"reserved_bytes\": %llu,\n  \"chunks\": %llu, \"refused_by_limit\": %llu},",
      static_cast<ull>(pinned.limit_bytes), static_cast<ull>(pinned.allocations),
      static_cast<ull>(pinned.frees), static_cast<ull>(calls), static_cast<ull>(l.live_peak.get()),
      static_cast<ull>(l.reserved_peak.get()), static_cast<ull>(pinned.usage.live),
      static_cast<ull>(pinned.usage.idle), static_cast<ull>(waiting),
      static_cast<ull>(l.reserved.get()), static_cast<ull>(l.chunks.get()),
      static_cast<ull>(l.refused_by_cap.get()));
}

void json_sites(Writer& writer, const ProcessReport& process) {
  SiteEntry entry;
  if (process.site_entry == nullptr || !process.site_entry(0, &entry)) return;
  writer.print("\n \"chosen_sites\": [");
  for (int i = 0; process.site_entry(i, &entry); ++i) {
    writer.print("%s\n  {\"setting\": \"%s\", \"entry\": ", i == 0 ? "" : ",", entry.setting);
    writer.quoted(entry.text);
    writer.print(", \"matched\": %llu}", static_cast<ull>(entry.matched));
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
  writer.print(", \"events_recorded\": %llu, \"events_queried\": %llu,",
               static_cast<ull>(process.events_recorded), static_cast<ull>(process.events_queried));
  writer.print("\n \"unseen\": {\"contexts\": %llu, \"streams\": %llu},",
               static_cast<ull>(process.unseen_contexts), static_cast<ull>(process.unseen_streams));
  json_unknown(writer, process.unknown);
  json_frees(writer, process);
  const IpcReport& ipc = process.ipc;
  writer.print(
      "\n \"ipc\": {\"exported\": %llu, \"answered\": %llu, \"opened\": %llu, \"unanswered\": "
      "%llu},",
      static_cast<ull>(ipc.exported), static_cast<ull>(ipc.answered), static_cast<ull>(ipc.opened),
      static_cast<ull>(ipc.unanswered));
  const PoolsReport& pools = process.driver_pools;
  writer.print(
      "\n \"driver_pools\": {\"adopted\": %llu, \"kept_peak_bytes\": %llu, \"trims\": %llu, "
      "\"trimmed_bytes\": %llu},",
      static_cast<ull>(pools.adopted), static_cast<ull>(pools.kept_peak_bytes),
      static_cast<ull>(pools.trims), static_cast<ull>(pools.trimmed_bytes));
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
