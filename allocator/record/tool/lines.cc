// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/functions.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace cistern::alloc::tool {
namespace {

// Names as in the DWARF standard, version 5: 6.2 has the table, 7.22 the numbers.
enum : uint8_t {
  DW_LNS_extended = 0,
  DW_LNS_copy,
  DW_LNS_advance_pc,
  DW_LNS_advance_line,
  DW_LNS_set_file,
  DW_LNS_const_add_pc = 8,
  DW_LNS_fixed_advance_pc,
};
enum : uint8_t { DW_LNE_end_sequence = 1, DW_LNE_set_address };
enum : uint64_t { DW_LNCT_path = 1, DW_LNCT_directory_index };
enum : uint64_t {
  DW_FORM_block = 0x09,
  DW_FORM_data1 = 0x0b,
  DW_FORM_data2 = 0x05,
  DW_FORM_data4 = 0x06,
  DW_FORM_data8 = 0x07,
  DW_FORM_data16 = 0x1e,
  DW_FORM_udata = 0x0f,
  DW_FORM_string = 0x08,
  DW_FORM_strp = 0x0e,
  DW_FORM_line_strp = 0x1f,
};

// Bytes in their order. Beyond their end everything is 0, and good() is false.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : left_(bytes) {}

  bool good() const { return good_; }
  bool more() const { return good_ && !left_.empty(); }
  size_t size() const { return left_.size(); }

  std::string_view take(uint64_t count) {
    if (count > left_.size()) {
      good_ = false;
      left_ = {};
      return {};
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    const std::string_view taken = take(bytes);
    if (!taken.empty()) std::memcpy(&value, taken.data(), std::min(taken.size(), sizeof value));
    return value;
  }
  uint8_t byte() { return static_cast<uint8_t>(number(1)); }

  uint64_t uleb() { return leb().value; }
  int64_t sleb() {
    const Leb read = leb();
    const bool negative =
        read.bits != 0 && read.bits < 64 && (read.value >> (read.bits - 1) & 1) != 0;
    return static_cast<int64_t>(negative ? read.value | ~uint64_t{0} << read.bits : read.value);
  }

  std::string_view text() {
    const size_t length = left_.find('\0');
    const std::string_view taken = take(length == left_.npos ? left_.size() + 1 : length + 1);
    return taken.substr(0, taken.empty() ? 0 : taken.size() - 1);
  }

 private:
  struct Leb {
    uint64_t value = 0;
    unsigned bits = 0;
  };
  Leb leb() {
    Leb read;
    for (uint8_t next = 0x80; (next & 0x80) != 0 && good_;) {
      next = byte();
      if (read.bits < 64) read.value |= uint64_t{next & 0x7Fu} << read.bits;
      read.bits = std::min(read.bits + 7, 70u);
    }
    return read;
  }

  std::string_view left_;
  bool good_ = true;
};

struct Texts {
  std::string_view line_texts, texts;
};

std::string_view text_at(std::string_view section, uint64_t offset) {
  return offset < section.size() ? Bytes(section.substr(offset)).text() : std::string_view();
}

// A unit of the table: its head, and where its parts begin.
struct Unit {
  uint64_t version = 0;
  size_t offset_bytes = 4;  // of an offset
  uint8_t least_step = 1;
  int line_base = 0;
  uint8_t line_range = 1, first_special = 1;
  std::array<uint8_t, 256> operands{};  // of each standard opcode, numbers of variable length
  std::string_view tables;              // folders and files
  std::string_view program;
};

// The unit that begins there; `next` is behind it. Nothing where it is none that is known.
std::optional<Unit> read_unit(std::string_view section, size_t begin, size_t* next) {
  Unit unit;
  Bytes all(section.substr(begin));
  uint64_t length = all.number(4);
  if (length == 0xffffffff) {
    unit.offset_bytes = 8;
    length = all.number(8);
  }
  const std::string_view whole = all.take(length);
  if (!all.good()) {
    *next = section.size();
    return std::nullopt;
  }
  *next = section.size() - all.size();
  Bytes head(whole);
  unit.version = head.number(2);
  if (unit.version < 2 || unit.version > 5) return std::nullopt;
  if (unit.version == 5) head.take(2);  // sizes of an address and of a segment's number
  const uint64_t head_bytes = head.number(unit.offset_bytes);
  if (head_bytes > head.size()) return std::nullopt;
  const std::string_view rest = head.take(head.size());
  unit.program = rest.substr(head_bytes);
  Bytes fields(rest.substr(0, head_bytes));
  unit.least_step = fields.byte();
  if (unit.version >= 4) fields.byte();  // operations of an instruction: of VLIW machines alone
  fields.byte();                         // whether lines begin statements
  const int base = fields.byte();        // of two's complement
  unit.line_base = base < 128 ? base : base - 256;
  unit.line_range = fields.byte();
  unit.first_special = fields.byte();
  for (unsigned i = 1; i < unit.first_special; ++i) unit.operands[i] = fields.byte();
  if (!fields.good() || unit.line_range == 0 || unit.first_special == 0) return std::nullopt;
  unit.tables = fields.take(fields.size());
  return unit;
}

struct LineRow {
  uint64_t address = 0, file = 1, line = 1;
  bool ends = false;  // its sequence
};

// Shows the rows of the unit to visit(row) in order.
template <typename Visitor>
void for_each_row(const Unit& unit, Visitor visit) {
  Bytes code(unit.program);
  LineRow row;
  const auto step = [&](uint64_t steps) { row.address += steps * unit.least_step; };
  while (code.more()) {
    const uint8_t opcode = code.byte();
    if (opcode >= unit.first_special) {
      const unsigned special = opcode - unit.first_special;
      step(special / unit.line_range);
      row.line +=
          static_cast<uint64_t>(unit.line_base + static_cast<int>(special % unit.line_range));
      visit(row);
    } else if (opcode == DW_LNS_extended) {
      Bytes operands(code.take(code.uleb()));
      switch (operands.byte()) {
        case DW_LNE_end_sequence:
          row.ends = true;
          visit(row);
          row = {};
          break;
        case DW_LNE_set_address:
          row.address = operands.number(std::min<size_t>(operands.size(), 8));
          break;
      }
    } else if (opcode == DW_LNS_copy) {
      visit(row);
    } else if (opcode == DW_LNS_advance_pc) {
      step(code.uleb());
    } else if (opcode == DW_LNS_advance_line) {
      row.line += static_cast<uint64_t>(code.sleb());
    } else if (opcode == DW_LNS_set_file) {
      row.file = code.uleb();
    } else if (opcode == DW_LNS_const_add_pc) {
      step((255u - unit.first_special) / unit.line_range);
    } else if (opcode == DW_LNS_fixed_advance_pc) {
      row.address += code.number(2);
    } else {
      for (int i = 0; i < unit.operands[opcode]; ++i) code.uleb();
    }
  }
}

struct Entry {
  std::string_view path;
  uint64_t folder = 0;
};

// --- Tables of version 5: of folders, then of files, each with the forms of its entries' fields.

struct Field {
  uint64_t content, form;
};
struct Table {
  std::vector<Field> fields;
  uint64_t entries = 0;
};

Table read_table(Bytes& from) {
  Table table;
  for (int left = from.byte(); left > 0; --left) {
    const uint64_t content = from.uleb();
    table.fields.push_back({content, from.uleb()});
  }
  table.entries = from.uleb();
  return table;
}

// False where the form is not known.
bool read_field(Bytes& from, const Field& field, const Unit& unit, const Texts& texts, Entry* out) {
  std::string_view text;
  uint64_t number = 0;
  switch (field.form) {
    case DW_FORM_string:
      text = from.text();
      break;
    case DW_FORM_line_strp:
      text = text_at(texts.line_texts, from.number(unit.offset_bytes));
      break;
    case DW_FORM_strp:
      text = text_at(texts.texts, from.number(unit.offset_bytes));
      break;
    case DW_FORM_udata:
      number = from.uleb();
      break;
    case DW_FORM_data1:
      number = from.number(1);
      break;
    case DW_FORM_data2:
      number = from.number(2);
      break;
    case DW_FORM_data4:
      number = from.number(4);
      break;
    case DW_FORM_data8:
      number = from.number(8);
      break;
    case DW_FORM_data16:
      from.take(16);
      break;
    case DW_FORM_block:
      from.take(from.uleb());
      break;
    default:
      return false;
  }
  if (field.content == DW_LNCT_path) out->path = text;
  if (field.content == DW_LNCT_directory_index) out->folder = number;
  return true;
}

// The entry with this number; all of the table is read, to what comes behind it.
std::optional<Entry> entry_of(Bytes& from, uint64_t number, const Unit& unit, const Texts& texts) {
  const Table table = read_table(from);
  std::optional<Entry> found;
  if (table.fields.empty()) return found;
  for (uint64_t i = 0; i < table.entries && from.good(); ++i) {
    Entry entry;
    for (const Field& field : table.fields) {
      if (!read_field(from, field, unit, texts, &entry)) return std::nullopt;
    }
    if (i == number && from.good()) found = entry;
  }
  return found;
}

// --- Tables of earlier versions: texts up to an empty one, numbered from 1.

std::optional<Entry> old_entry_of(Bytes& from, uint64_t number, bool files) {
  std::optional<Entry> found;
  for (uint64_t i = 1; from.more(); ++i) {
    Entry entry{from.text()};
    if (entry.path.empty()) break;
    if (files) {
      entry.folder = from.uleb();
      from.uleb();  // when it was changed
      from.uleb();  // its size
    }
    if (i == number && from.good()) found = entry;
  }
  return found;
}

// Folder 0 is the one in which the compiler ran.
std::string path_of(const Unit& unit, const Texts& texts, uint64_t number) {
  const auto find = [&](Bytes& from, uint64_t which, bool files) {
    return unit.version == 5 ? entry_of(from, which, unit, texts)
                             : old_entry_of(from, which, files);
  };
  Bytes tables(unit.tables);
  find(tables, 0, /*files=*/false);
  const std::optional<Entry> file = find(tables, number, /*files=*/true);
  if (!file || file->path.empty()) return "";
  std::string path(file->path);
  if (file->folder == 0 || path[0] == '/') return path;
  Bytes folders(unit.tables);
  const std::optional<Entry> folder = find(folders, file->folder, /*files=*/false);
  return folder ? std::string(folder->path) + "/" + path : path;
}

}  // namespace

SourceLines::SourceLines(const Symbols& file)
    : lines_(file.section(".debug_line")),
      line_texts_(file.section(".debug_line_str")),
      texts_(file.section(".debug_str")) {
  if (lines_.size() > kMostBytes) return;
  for (size_t begin = 0, next = 0; begin < lines_.size(); begin = next) {
    const std::optional<Unit> unit = read_unit(lines_, begin, &next);
    if (!unit) continue;
    uint64_t low = UINT64_MAX;
    for_each_row(*unit, [&](const LineRow& row) {
      low = std::min(low, row.address);
      if (!row.ends) return;
      // Code that the linker left out begins at 0.
      if (low != 0 && low < row.address) sequences_.push_back({low, row.address, begin});
      low = UINT64_MAX;
    });
  }
  std::ranges::sort(sequences_, {}, &Sequence::low);
}

std::string SourceLines::at(uint64_t begin, uint64_t address) const {
  const auto behind = std::ranges::upper_bound(sequences_, address, {}, &Sequence::low);
  if (behind == sequences_.begin() || address >= behind[-1].high) return "";
  size_t next = 0;
  const std::optional<Unit> unit = read_unit(lines_, behind[-1].unit, &next);
  // A row stands for the code up to the next one. Rows of the unit's other sequences do not lie
  // between the beginning of this one and the address.
  LineRow own, found{.line = 0};
  for_each_row(*unit, [&](const LineRow& row) {
    if (row.ends || row.address > address || row.address < behind[-1].low) return;
    if (row.address <= begin && row.address != own.address) own = found = row;
    if (row.file == own.file && row.line != 0) found = row;
  });
  const std::string path = path_of(*unit, {line_texts_, texts_}, found.file);
  return path.empty() || found.line == 0 ? "" : path + ":" + std::to_string(found.line);
}

}  // namespace cistern::alloc::tool
