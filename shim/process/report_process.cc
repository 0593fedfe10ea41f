// SPDX-License-Identifier: Apache-2.0
// The report as a whole, and its parts about the process: settings, pinned and host memory, frees,
// other processes, and advice. Devices: report_device.cc; holders of memory: report_holders.cc.
#include <unistd.h>

#include "config/known.h"
#include "shim/process/report_writer.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

void write_host(Writer& writer, const ProcessReport& process) {
  alloc::host::HostUsage host;
  if (process.host_memory == nullptr || !process.host_memory(&host)) return;
  writer.text(
      "cistern: host memory      %lu chunks, %.1f MiB reserved, malloc has %.1f MiB, idle %.1f "
      "MiB; locked %.1f MiB, not locked %.1f MiB; %lu requests refused\n",
      host.chunks, mib(host.reserved), mib(host.live), mib(host.idle), mib(host.locked),
      mib(host.refused), host.failed);
  writer.numbers("\n \"host_memory\": {",
                 "chunks reserved_bytes live_bytes idle_bytes locked_bytes unlocked_bytes refused",
                 "},", host.chunks, host.reserved, host.live, host.idle, host.locked, host.refused,
                 host.failed);
}

void write_pinned(Writer& writer, const ProcessReport& process) {
  PinnedReport pinned;
  if (process.pinned_memory == nullptr || !process.pinned_memory(&pinned)) return;
  const alloc::Ledger& l = *pinned.ledger;
  const alloc::Usage& usage = pinned.usage;
  const uint64_t calls = l.obtained.get() + l.refused.get() + l.releases();
  writer.text(
      "cistern: pinned memory    %lu allocations, %lu driver calls; live %.1f MiB, peak %.1f MiB; "
      "taken %.1f MiB, peak %.1f MiB, limit %.1f MiB; %lu refused by it\n",
      pinned.allocations, calls, mib(usage.live), mib(l.live_peak.get()), mib(l.reserved.get()),
      mib(l.reserved_peak.get()), mib(pinned.limit_bytes), l.refused_by_cap.get());
  writer.numbers("\n \"pinned_memory\": {", "limit_bytes allocations frees driver_calls", ",\n",
                 pinned.limit_bytes, pinned.allocations, pinned.frees, calls);
  writer.numbers(
      "  ",
      "live_peak_bytes reserved_peak_bytes live_bytes idle_bytes waiting_bytes reserved_bytes",
      ",\n", l.live_peak.get(), l.reserved_peak.get(), usage.live, usage.idle,
      usage.waiting + usage.parked, l.reserved.get());
  writer.numbers("  ", "chunks refused_by_limit", "},", l.chunks.get(), l.refused_by_cap.get());
}

void write_ipc(Writer& writer, const IpcReport& ipc) {
  if (ipc.exported != 0 || ipc.opened != 0) {
    writer.text(
        "cistern: IPC              %lu handles of Cistern's made here, opened elsewhere %lu times; "
        "%lu of other processes opened here\n",
        ipc.exported, ipc.answered, ipc.opened);
  }
  writer.numbers("\n \"ipc\": {", "exported answered opened unanswered", "},", ipc.exported,
                 ipc.answered, ipc.opened, ipc.unanswered);
}

void write_driver_pools(Writer& writer, const PoolsReport& pools) {
  if (pools.adopted != 0) {
    writer.text(
        "cistern: memory pools     %lu pools of the driver kept recently used memory: at most %.1f "
        "MiB; trimmed %lu times, %.1f MiB\n",
        pools.adopted, mib(pools.kept_peak_bytes), pools.trims, mib(pools.trimmed_bytes));
  }
  writer.numbers("\n \"driver_pools\": {", "adopted kept_peak_bytes trims trimmed_bytes", "},",
                 pools.adopted, pools.kept_peak_bytes, pools.trims, pools.trimmed_bytes);
}

// Why Cistern had to assume more than it saw, and the effect.
void write_unknown(Writer& writer, const UnknownReport& unknown) {
  writer.numbers("\n \"unknown_functions\": {", "in_driver looked_up called linked", "}, ",
                 unknown.in_driver, unknown.looked_up, unknown.called, unknown.linked);
  const struct {
    const char *what, *why, *effect;
    const char *key, *after;
  } reasons[] = {{"careful", unknown.careful, "the driver served all requests", "careful", ",\n "},
                 {"careful", unknown.unseen_work, "frees waited for all work", "unseen_work", ", "},
                 {"all visible", unknown.all_visible, "frees waited for all unfinished work",
                  "all_visible", ","}};
  for (const auto& [what, why, effect, key, after] : reasons) {
    writer.json("\"%s\": ", key);
    writer.quoted(why == nullptr ? "" : why);
    writer.json("%s", after);
    if (why == nullptr) continue;
    writer.text("cistern: %-15s  ", what);
    writer.plain(why);
    writer.text("; %s after that\n", effect);
  }
}

// Waits by reason; the text omits reasons without waits.
template <size_t n>
void write_by(Writer& writer, const char* key, const WaitCount (&counts)[n],
              const char* const (&names)[n]) {
  writer.json(",\n  \"%s\": {", key);
  const char* between = " (";
  for (size_t i = 0; i < n; ++i) {
    const uint64_t waits = counts[i].waits.get();
    writer.json("%s\"%s\": ", i == 0 ? "" : ", ", names[i]);
    writer.numbers("{", "waits ns", "}", waits, counts[i].ns.get());
    if (waits == 0) continue;
    writer.text("%s%s %lu", between, names[i], waits);
    between = ", ";
  }
  if (between[0] == ',') writer.text(")");
  writer.json("}");
}

// All frees that neither waited nor were ordered by the device.
uint64_t frees_at_once(const ProcessReport& process) {
  uint64_t all = 0;
  for_each_device(process, [&](const DeviceReport& device) { all += device.frees; });
  PinnedReport pinned;
  if (process.pinned_memory != nullptr && process.pinned_memory(&pinned)) all += pinned.frees;
  const uint64_t others = waits_of_frees(*process.frees).waits + process.frees->ordered.get();
  return all > others ? all - others : 0;
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

// The cost of the barrier at each free (CISTERN_FREE_SYNC), and the frees that were left to the
// device.
void write_frees(Writer& writer, const ProcessReport& process) {
  const FreeCounts& frees = *process.frees;
  const WaitSum waited = waits_of_frees(frees), in_order = waits_for_order(frees);
  const uint64_t visible = frees.for_visible.waits.get(), ordered = frees.ordered.get();
  writer.numbers("\n \"frees\": {", "at_once left_to_device", ", ", frees_at_once(process),
                 ordered);
  writer.numbers("\"waited_for_visible\": {", "waits ns", "}", visible, frees.for_visible.ns.get());
  if (writer.json() || waited.waits != 0) {
    writer.text(
        "cistern: frees waited     %lu times, %.3f ms: %lu for work visible to the host, %lu for "
        "all work",
        waited.waits, ms(waited.ns), visible, waited.waits - visible);
    write_by(writer, "waited_for_all", frees.for_all, kFreeWaitReasons);
    writer.text("\n");
  }
  writer.numbers(",\n  ", "debts events stream_waits", "", frees.debts.get(), frees.events.get(),
                 frees.stream_waits.get());
  if (writer.json() || ordered != 0 || in_order.waits != 0) {
    writer.text(
        "cistern: frees in order   %lu left to the device: %lu events, %lu waits of streams; the "
        "host waited %lu times, %.3f ms",
        ordered, frees.events.get(), frees.stream_waits.get(), in_order.waits, ms(in_order.ns));
    write_by(writer, "debts_waited_for", frees.paid, kPaidBy);
    writer.text("\n");
  }
  writer.json("},");
}

// Requests that settings chose by call site.
void write_sites(Writer& writer, const ProcessReport& process) {
  SiteEntry entry;
  if (process.site_entry == nullptr || !process.site_entry(0, &entry)) return;
  writer.json("\n \"chosen_sites\": [");
  for (int i = 0; process.site_entry(i, &entry); ++i) {
    writer.json("%s\n  {\"setting\": \"%s\", \"entry\": ", i == 0 ? "" : ",", entry.setting);
    writer.text("cistern: %s '", entry.setting);
    writer.plain(entry.text);
    writer.quoted(entry.text);
    writer.json(", \"matched\": %lu}", entry.matched);
    entry.matched == 0 ? writer.text("' matched nothing\n")
                       : writer.text("' matched %lu requests\n", entry.matched);
  }
  writer.json("\n ],");
}

void write_advice(Writer& writer, const Advice& advice) {
  writer.json("\n \"frameworks\": [");
  const char* between = "";
  for (const config::Framework* framework : advice.frameworks.list()) {
    char text[200];
    config::describe_framework(*framework, text, sizeof text);
    writer.text("cistern: %-15s  %s\n", framework->name, text);
    writer.json("%s{\"name\": \"%s\", \"setting\": \"%s\"}", between, framework->name,
                framework->setting);
    between = ", ";
  }
  writer.json("],\n \"hints\": [");
  between = "";
  for (const Hint& hint : advice.list()) {
    writer.text("cistern: hint             %s\n", hint.text);
    writer.json("%s\n  {\"about\": \"%s\", \"text\": ", between, hint.about);
    writer.quoted(hint.text);
    writer.json("}");
    between = ",";
  }
  writer.json("]");
}

void compose_text(Writer& writer, const ProcessReport& process) {
  const Run run;
  writer.text("cistern: report of process %d, ", static_cast<int>(getpid()));
  writer.plain(run.program);
  writer.text(", on %s, ended %s, Cistern %s\n", run.host, run.ended, config::kVersion);
  writer.text("cistern: policy: ");
  writer.plain(policy_line());
  writer.text("\n");
  for_each_device(process, [&](const DeviceReport& device) { write_device(writer, device, true); });
  write_host(writer, process);
  write_pinned(writer, process);
  write_frees(writer, process);
  write_ipc(writer, process.ipc);
  write_driver_pools(writer, process.driver_pools);
  write_unknown(writer, process.unknown);
  if (process.holders != nullptr) write_holders(writer, *process.holders);
  write_sites(writer, process);
  writer.text("cistern: events recorded %lu, queried %lu\n", process.events_recorded,
              process.events_queried);
  if (process.unseen_contexts != 0 || process.unseen_streams != 0) {
    writer.text("cistern: unseen           %lu contexts and %lu streams that no hook saw created\n",
                process.unseen_contexts, process.unseen_streams);
  }
}

void compose_json(Writer& writer, const ProcessReport& process) {
  const Run run;
  writer.json("{\"cistern\": 1, \"version\": \"%s\", \"pid\": %d", config::kVersion,
              static_cast<int>(getpid()));
  const struct {
    const char *key, *text;
  } texts[] = {{"program", run.program},
               {"host", run.host},
               {"ended", run.ended},
               {"policy", policy_line()}};
  for (const auto& [key, text] : texts) {
    writer.json(",\n \"%s\": ", key);
    writer.quoted(text);
  }
  writer.numbers(", ", "events_recorded events_queried", ",\n ", process.events_recorded,
                 process.events_queried);
  writer.numbers("\"unseen\": {", "contexts streams", "},", process.unseen_contexts,
                 process.unseen_streams);
  write_unknown(writer, process.unknown);
  write_frees(writer, process);
  write_ipc(writer, process.ipc);
  write_driver_pools(writer, process.driver_pools);
  write_host(writer, process);
  write_pinned(writer, process);
  if (process.holders != nullptr) write_holders(writer, *process.holders);
  write_sites(writer, process);
  writer.json("\n \"devices\": [");
  bool first = true;
  for_each_device(process, [&](const DeviceReport& device) {
    write_device(writer, device, first);
    first = false;
  });
  writer.json("\n ],");
}

}  // namespace

void compose(Writer& writer, const ProcessReport& process, const Advice& advice) {
  writer.json() ? compose_json(writer, process) : compose_text(writer, process);
  write_advice(writer, advice);
  writer.json("}\n");
}

}  // namespace cistern::shim
