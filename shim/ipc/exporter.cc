// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/exporter.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "allocator/base/os.h"
#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

// --- exports ---

namespace {

struct Exported {
  Exported* next;
  uint64_t key;  // the address of the chunk, or of the block in units
  uint64_t number;
  CUcontext context;
  CUipcMemHandle handle;
};

constinit alloc::Mutex mutex;
constinit alloc::KeyedTable<Exported, 8> chunks{};
constinit alloc::Arena<Exported, size_t{64} << 10> arena{};
constinit uint64_t last_number = 0;
constinit IpcProcess names[kMostNames]{};
constinit std::atomic<uint32_t> name_count{0};
constinit std::atomic<uint64_t> made{0}, answered{0};

bool add_name() {
  const uint32_t count = name_count.load(std::memory_order_relaxed);
  if (count == kMostNames || !describe_ipc_process(&names[count])) return false;
  name_count.store(count + 1, std::memory_order_release);
  return true;
}

bool of_this_process(const IpcToken& token) {
  const uint32_t count = name_count.load(std::memory_order_acquire);
  return std::any_of(names, names + count,
                     [&](const IpcProcess& each) { return same_process(token.process, each); });
}

Exported* add(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle) {
  Exported* chunk = arena.take();
  if (chunk == nullptr) return nullptr;
  *chunk = {nullptr, block.chunk, ++last_number, context, handle};
  chunks.insert(chunk);
  return chunk;
}

void give_back(Exported* list) {
  while (list != nullptr) {
    Exported* next = list->next;
    arena.give_back(list);
    list = next;
  }
}

// Whether the memory that begins at an address was exported under this number, and still exists.
bool handle_under(uint64_t chunk, uint64_t number, CUipcMemHandle* out) {
  const alloc::LockGuard guard(mutex);
  const Exported* exported = chunks.find(chunk);
  if (exported == nullptr || exported->number != number) return false;
  *out = exported->handle;
  return true;
}

}  // namespace

bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token) {
  const alloc::LockGuard guard(mutex);
  const IpcProcess* process = exporting_process();
  if (process == nullptr) return false;
  Exported* chunk = chunks.find(block.chunk);
  if (chunk == nullptr) chunk = add(block, context, handle);
  if (chunk == nullptr) return false;
  *token = make_token(*process, block.start, block.bytes, chunk->number);
  made.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void end_exports_at(uint64_t chunk) {
  if (made.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  const alloc::LockGuard guard(mutex);
  Exported* exported = chunks.find(chunk);
  if (exported == nullptr) return;
  chunks.remove(exported);
  arena.give_back(exported);
}

void end_exports_in(uint64_t address, uint64_t bytes) {
  if (made.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  const alloc::LockGuard guard(mutex);
  give_back(chunks.remove_all([=](const Exported& e) { return e.key - address < bytes; }));
}

void end_exports_of(CUcontext context) {
  const alloc::LockGuard guard(mutex);
  give_back(chunks.remove_all([=](const Exported& e) { return e.context == context; }));
}

// The number is checked after the block was found. A chunk that was released meanwhile has lost its
// number. A block in a chunk that still has the number is the exported one, since exported blocks
// are not handed out again.
bool find_exported(const IpcToken& token, const IpcPools& pools, CUipcMemHandle* handle,
                   HeldBlock* block) {
  return of_this_process(token) && pools.find(token.address, block) &&
         block->start == token.address && block->bytes == token.bytes &&
         handle_under(block->chunk, token.chunk, handle);
}

// By the time that their descriptors exist, the units may be another block's. Then the number that
// was looked for is gone.
IpcAnswer answer_for(const IpcToken& token, uint32_t first, const IpcPools& pools,
                     IpcFiles* files) {
  IpcAnswer answer{};
  answer.status = IpcStatus::gone;
  CUipcMemHandle handle;
  HeldBlock block;
  if (!find_exported(token, pools, &handle, &block)) return answer;
  if (block.in_units) {
    const bool had = pools.units(block, first, &answer, files);
    const bool held = answer.unit_bytes != 0 && handle_under(block.chunk, token.chunk, &handle);
    if (!had || !held) {
      files->close_all();
      answer = {};
      answer.status = had ? IpcStatus::gone : IpcStatus::unable;
      return answer;
    }
  } else {
    answer.handle = handle;
    answer.offset = block.start - block.chunk;
  }
  answer.status = IpcStatus::given;
  answer.bytes = block.bytes;
  if (first == 0) answered.fetch_add(1, std::memory_order_relaxed);
  return answer;
}

const IpcProcess* exporting_process() {
  const uint32_t count = name_count.load(std::memory_order_acquire);
  return count == 0 ? nullptr : &names[count - 1];
}

const IpcProcess* begin_exporting() {
  const alloc::LockGuard guard(mutex);
  return exporting_process() != nullptr || add_name() ? exporting_process() : nullptr;
}

bool take_another_name() {
  const alloc::LockGuard guard(mutex);
  return add_name();
}

bool own_token(const IpcToken& token) { return of_this_process(token); }

uint64_t tokens_made() { return made.load(std::memory_order_relaxed); }

uint64_t tokens_answered() { return answered.load(std::memory_order_relaxed); }

void reset_exports_after_fork() {
  mutex.reset();
  arena.reset_after_fork();
  chunks = {};  // they are the parent's
  name_count.store(0);
}

// --- the thread that answers importers ---

// The index of the oldest line, the first of several; 0 if there is none.
size_t IpcLines::oldest() const {
  const auto older = [](const Line& a, const Line& b) { return a.since_ns < b.since_ns; };
  return static_cast<size_t>(std::min_element(lines_, lines_ + count_, older) - lines_);
}

bool IpcLines::one_may_go(uint64_t now_ns) const {
  return count_ == kMostLines && now_ns - lines_[oldest()].since_ns > kFairNs;
}

bool IpcLines::has_room(uint64_t now_ns) {
  for (size_t i = count_; i-- > 0;) {
    // The program may have a file of its own under the number by now.
    if (now_ns - lines_[i].since_ns > kLineNs || !lines_[i].socket.still_ours()) close_at(i);
  }
  return count_ < kMostLines || one_may_go(now_ns);
}

uint64_t IpcLines::unchanged_for(uint64_t now_ns) const {
  if (count_ == 0) return UINT64_MAX;
  const bool full = count_ == kMostLines && !one_may_go(now_ns);
  const uint64_t end = lines_[oldest()].since_ns + (full ? kFairNs : kLineNs);
  return end > now_ns ? end - now_ns : 0;
}

void IpcLines::invite(const IpcProcess& own, uint64_t number, const IpcSender& to,
                      const IpcAnswer& come, uint64_t now_ns) {
  const bool there =
      std::any_of(lines_, lines_ + count_, [=](const Line& line) { return line.number == number; });
  if (there || !to.has_address()) return;
  if (one_may_go(now_ns)) close_at(oldest());
  if (count_ == kMostLines) return;
  Line& line = lines_[count_];
  if (!line.socket.open_line(own, number, to)) return;
  line.number = number;
  line.since_ns = now_ns;
  ++count_;
  if (!line.socket.send_connected(&come, sizeof come, IpcFiles())) close_at(count_ - 1);
}

size_t IpcLines::put_polled(pollfd* out) const {
  for (size_t i = 0; i < count_; ++i) out[i] = {lines_[i].socket.number(), POLLIN, 0};
  return count_;
}

void IpcLines::close_at(size_t i) {
  lines_[i].socket.close_own();
  lines_[i] = lines_[--count_];
  lines_[count_] = {};
}

void IpcLines::close_all() {
  while (count_ > 0) close_at(count_ - 1);
}

// Also closes a line that was being opened when the process forked.
void IpcLines::close_in_child() {
  for (Line& line : lines_) line.socket.close_in_child();
  count_ = 0;
}

namespace {

constexpr uint64_t kPauseNs = 1'000'000'000;  // alone() is checked at least this often

constinit alloc::Mutex starting;
constinit OwnSocket socket_{};
constinit IpcLines lines{};
constinit std::atomic<bool> runs{false};
constinit IpcPools pools_{};
constinit std::atomic<bool> ends{false};     // the process is ending
constinit std::atomic<bool> calling{false};  // maybe inside a driver call

// Called in place of pools_.units: makes no driver call once the process is ending.
bool units_unless_the_end(const HeldBlock& block, uint32_t first, IpcAnswer* answer,
                          IpcFiles* files) {
  calling.store(true);
  const bool had = ends.load() || pools_.units(block, first, answer, files);
  calling.store(false);
  return had;
}

// A refusal goes to the sender's address, whichever process has it now.
void hear_request() {
  IpcRequest request;
  IpcSender from;
  const ssize_t size = socket_.receive(&request, sizeof request, &from);
  if (size < 0) return;
  const IpcAnswer answer = answer_request(&request, static_cast<size_t>(size), from.user);
  if (answer.magic != kAnswerMagic) return;
  if (answer.status == IpcStatus::come) {
    lines.invite(*exporting_process(), request.number, from, answer, alloc::os::now_ns());
  } else if (from.has_address()) {
    socket_.send_to(from.address, from.address_bytes, &answer, sizeof answer);
  }
}

// One question, one answer.
void hear_on_line(size_t i) {
  const OwnSocket& line = lines.at(i);
  IpcRequest request;
  IpcSender from;
  const ssize_t size = line.receive(&request, sizeof request, &from);
  if (size >= 0) {
    IpcFiles files;
    const IpcAnswer answer = answer_message(&request, static_cast<size_t>(size), from.user,
                                            {pools_.find, units_unless_the_end}, &files);
    if (answer.magic == kAnswerMagic) line.send_connected(&answer, sizeof answer, files);
  }
  lines.close_at(i);
}

// Opens the socket under the name of the process, or under a new name if that is taken.
bool open_socket() {
  const IpcProcess* process = begin_exporting();
  while (process != nullptr && !socket_.open_for(*process)) {
    if (errno != EADDRINUSE || !take_another_name()) return false;
    process = exporting_process();
  }
  if (process != nullptr && is_own_user(getuid())) return true;
  socket_.close_own();
  return false;
}

// Waits for messages, but no longer than kPauseNs. Requests are left in the queue while there is no
// room for a line.
void hear() {
  pollfd all[kMostLines + 1];
  const uint64_t now = alloc::os::now_ns();
  const bool has_room = lines.has_room(now);
  size_t count = lines.put_polled(all);
  if (has_room) all[count++] = {socket_.number(), POLLIN, 0};
  const uint64_t wait_ns = std::min(kPauseNs, lines.unchanged_for(now));
  poll(all, count, static_cast<int>(wait_ns / 1'000'000 + 1));
  if (alone()) return;
  // The program may have files of its own under these numbers by now.
  if (has_room && all[--count].revents != 0 && socket_.still_ours()) hear_request();
  while (count-- > 0) {
    if (all[count].revents != 0 && lines.at(count).still_ours()) hear_on_line(count);
  }
}

void* run(void*) {
  const OwnThread counted;
  while (socket_.still_ours() || open_socket()) {
    hear();
    if (alone()) {
      lines.close_all();
      become_thread_of_the_program();
      return nullptr;
    }
  }
  lines.close_all();
  runs.store(false, std::memory_order_release);
  return nullptr;
}

}  // namespace

// If the thread could not open the socket again, a later export tries again.
bool serve_importers(const IpcPools& pools) {
  const NoCancel starts;
  close_what_children_get();
  const alloc::LockGuard guard(starting);
  if (runs.load(std::memory_order_acquire)) return true;
  const int saved = errno;
  pools_ = pools;
  bool started = open_socket();
  if (started) {
    runs.store(true, std::memory_order_release);
    started = start_own_thread(run) == 0;
    if (!started) {
      runs.store(false, std::memory_order_release);
      socket_.close_own();
    }
  }
  errno = saved;
  return started;
}

namespace {

// False: the sender gets no answer. Else `*out` says what is wrong, or `come`.
bool begin_answer(const void* message, size_t size, uid_t user, const IpcProcess* own,
                  IpcRequest* request, IpcAnswer* out) {
  if (size != sizeof *request || own == nullptr) return false;
  memcpy(request, message, sizeof *request);
  if (request->magic != kRequestMagic || request->token.process.name != own->name) return false;
  out->magic = kAnswerMagic;
  out->version = kIpcVersion;
  out->proof = proof_of(*own, request->number);
  out->status = !is_own_user(user)                ? IpcStatus::refused
                : request->version != kIpcVersion ? IpcStatus::version
                                                  : IpcStatus::come;
  return true;
}

}  // namespace

IpcAnswer answer_request(const void* message, size_t size, uid_t user) {
  IpcAnswer answer{};
  IpcRequest request;
  const IpcProcess* own = exporting_process();
  const bool well = begin_answer(message, size, user, own, &request, &answer) &&
                    request.token.process.secret == pass_of(*own);
  return well ? answer : IpcAnswer{};
}

IpcAnswer answer_message(const void* message, size_t size, uid_t user, const IpcPools& pools,
                         IpcFiles* files) {
  IpcAnswer begun{};
  IpcRequest request;
  const IpcProcess* own = exporting_process();
  if (!begin_answer(message, size, user, own, &request, &begun) ||
      request.token.process.secret != word_of(*own, request.number)) {
    return {};
  }
  if (begun.status != IpcStatus::come) return begun;
  CUipcMemHandle handle;
  memcpy(&handle, &request.token, sizeof handle);
  IpcToken token;
  IpcAnswer answer{};
  answer.status = IpcStatus::gone;
  if (read_token(handle, &token) && token.version == kIpcVersion) {
    token.process.secret = own->secret;
    answer = answer_for(token, request.first, pools, files);
  }
  answer.magic = begun.magic;
  answer.version = begun.version;
  answer.proof = begun.proof;
  return answer;
}

void stop_service() {
  constexpr uint64_t kMostNs = 100'000'000;
  ends.store(true);
  alloc::os::wait_until([] { return !calling.load(); }, kMostNs);
}

void reset_service_after_fork() {
  calling.store(false);
  starting.reset();
  runs.store(false);
  socket_.close_in_child();
  lines.close_in_child();
}

}  // namespace cistern::shim
