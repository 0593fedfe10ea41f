// SPDX-License-Identifier: Apache-2.0
//
// Gathering from the environment: one pass, which looks closer only at names with our prefixes.
// Every process under the preload pays for this pass. And what gathering from a file shares with
// it.
#include <cstring>

#include "config/collect.h"
#include "config/parse.h"

namespace cistern::config {
namespace {

constexpr std::string_view kOurs = "CISTERN_";

bool may_be_ours(std::string_view entry) {
  return begins(entry, kOurs) || begins(entry, "FLAGS_") || begins(entry, "GE_");
}

void write_bad_device(std::string_view name, Loaded& out) {
  LineWriter(out.error)
      .text("cistern: error: there is no such device; value seen ")
      .quoted(name)
      .text("; allowed: device numbers from 0 to ")
      .number(kMaxDevices - 1)
      .text("; example: CISTERN_GPU_LIMIT_0=8G");
}

bool collect_entry(std::string_view entry, Loaded& out) {
  const size_t equals = entry.find('=');
  if (equals == std::string_view::npos) return true;  // not a variable; getenv sees none either
  const std::string_view name = part(entry, 0, equals);
  if (name == "CISTERN_LAUNCHER") return true;
  Given* slot = nullptr;
  if (!find_slot(name, out, slot)) return false;
  if (slot == nullptr) {
    if (begins(name, kOurs)) warn_unknown("", name, out);
    return true;
  }
  if (slot->text != nullptr) return true;  // the first of two counts, as for getenv
  const char* text = keep_text(name, part(entry, equals + 1, entry.size()), out);
  if (text == nullptr) return false;
  *slot = {text, 0, Origin::kEnv};
  return true;
}

bool mark_launcher(std::string_view names, Loaded& out) {
  while (!names.empty()) {
    Given* slot = nullptr;
    if (!find_slot(next_item(names, ','), out, slot)) return false;
    if (slot != nullptr && slot->text != nullptr) slot->origin = Origin::kLauncher;
  }
  return true;
}

}  // namespace

bool collect_environment(const char* const* envp, Loaded& out) {
  const char* launcher_names = nullptr;
  for (; *envp != nullptr; ++envp) {
    const std::string_view entry = *envp;
    if (!may_be_ours(entry)) continue;
    if (!collect_entry(entry, out)) return false;
    constexpr std::string_view kEntry = "CISTERN_LAUNCHER=";
    if (begins(entry, kEntry)) launcher_names = *envp + kEntry.size();
  }
  out.launched = launcher_names != nullptr;
  return !out.launched || mark_launcher(launcher_names, out);
}

bool find_slot(std::string_view name, Loaded& out, Given*& slot) {
  unsigned device = kNoDevice;
  const Row* row = find_row(name, device);
  slot = nullptr;
  if (row == nullptr) return true;
  if (row->store != nullptr) {
    slot = &out.given[static_cast<size_t>(row - kTable.data())];
    return true;
  }
  if (device >= kMaxDevices) return write_bad_device(name, out), false;
  slot = &out.given_device[device];
  return true;
}

const char* keep_text(std::string_view name, std::string_view text, Loaded& out) {
  const size_t left = kStorageBytes - out.storage_used;
  if (text.size() > kMaxValueBytes || text.size() >= left) {
    LineWriter(out.error)
        .text("cistern: error: ")
        .text(name)
        .text(" is too long; value seen ")
        .quoted(text, 40)
        .text("; allowed: ")
        .number(kMaxValueBytes)
        .text(" bytes, and ")
        .number(kStorageBytes)
        .text(" for all settings together; example: unset ")
        .text(name);
    return nullptr;
  }
  char* kept = out.storage + out.storage_used;
  std::memcpy(kept, text.data(), text.size());
  kept[text.size()] = '\0';
  out.storage_used += text.size() + 1;
  return kept;
}

void warn_unknown(const char* where, std::string_view name, Loaded& out) {
  LineWriter line(next_warning(out));
  line.text("cistern: warn: ").text(where).text("unknown setting; ").quoted(name);
  const char* nearest = begins(name, kOurs) ? nearest_name(name) : nullptr;
  if (nearest != nullptr) {
    line.text("; did you mean ").text(nearest).text("?");
  } else {
    line.text("; see cistern flags");
  }
}

}  // namespace cistern::config
