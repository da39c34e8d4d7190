#include "plugin/nccl/chain.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "plugin/nccl/detail.h"
#include "recorder/writer.h"

namespace lockstep::nccl {
namespace {

void* open_library(const char* value, std::string* fault) {
  if (void* library = ::dlopen(value, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* error = ::dlerror();
  *fault = error != nullptr ? error : "cannot be opened";
  const std::string_view name = value;
  const bool is_file_name = name.starts_with("lib") && name.ends_with(".so");
  if (name.find('/') != std::string_view::npos || is_file_name) return nullptr;
  return ::dlopen(("libnccl-profiler-" + std::string(name) + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
}

// Every event that NCCL sends for a mask: what was asked for, and the events above it.
uint32_t sent_for(uint64_t mask) {
  constexpr uint64_t kKernel = kEventKernelCh | kEventKernelPhase;
  constexpr uint64_t kStep = kEventProxyStep | kEventNetPlugin;
  constexpr uint64_t kProxy = kEventProxyOp | kStep;
  constexpr uint64_t kBelowOperation = kProxy | kKernel;
  constexpr uint64_t kCopyEngine = kEventCeColl | kEventCeSync | kEventCeBatch;
  constexpr uint64_t kBelowGroup = kEventColl | kEventP2p | kBelowOperation;
  constexpr struct {
    uint64_t event;
    uint64_t for_any_of;
  } kAbove[] = {
      {kEventKernelCh, kKernel},
      {kEventProxyStep, kStep},
      {kEventProxyOp, kProxy},
      {kEventColl, kBelowOperation},
      {kEventP2p, kBelowOperation},
      {kEventGroup, kBelowGroup},
      {kEventCeColl, kCopyEngine},
      {kEventCollApi, kEventColl | kBelowOperation | kCopyEngine},
      {kEventP2pApi, kEventP2p | kBelowOperation},
      {kEventGroupApi, kEventGroup | kBelowGroup | kCopyEngine | kEventCollApi | kEventP2pApi | kEventKernelLaunch},
  };
  uint64_t sent = mask;
  for (const auto& above : kAbove) {
    if ((mask & above.for_any_of) != 0) sent |= above.event;
  }
  return static_cast<uint32_t>(sent);
}

uint32_t known_events(int version) {
  constexpr uint64_t kByVersion[] = {0,           V1::kEvents, V2::kEvents, V3::kEvents,
                                     V4::kEvents, V5::kEvents, V6::kEvents, V7::kEvents};
  return static_cast<uint32_t>(kByVersion[version]);
}

// Not std::to_string: from here it would put symbols of the C++ library among those that the plugin exports.
std::string v(int version) {
  return {'v', static_cast<char>('0' + version)};
}

struct Found {
  int version = 0;
  const void* table = nullptr;
};

// The newest table of all versions from `newest` down to `oldest`.
Found find_table(void* library, int newest, int oldest) {
  for (int version = newest; version >= oldest; --version) {
    if (const void* table = ::dlsym(library, ("ncclProfiler_" + v(version)).c_str())) return {version, table};
  }
  return {};
}

void say(DebugLogger log, int level, const std::string& line) {
  if (log != nullptr)
    log(level, kLogFlagInit | kLogFlagProfile, __FILE__, __LINE__, "Lockstep: LOCKSTEP_CHAIN_PLUGIN: %s", line.c_str());
}

}  // namespace

Chain* Chain::load(int nccl_version, DebugLogger log) {
  const char* value = std::getenv("LOCKSTEP_CHAIN_PLUGIN");
  if (value == nullptr || *value == '\0') return nullptr;
  const std::string reported = value;
  std::string fault;
  void* library = open_library(value, &fault);
  if (library == nullptr) {
    say(log, kLogWarn, fault + "; only Lockstep records");
    return nullptr;
  }
  const Found found = find_table(library, nccl_version, 1);
  if (found.table == nullptr) {
    const Found newer = find_table(library, 7, nccl_version + 1);
    const std::string why = newer.table != nullptr
                                ? " needs interface " + v(newer.version) + " and this NCCL speaks " + v(nccl_version)
                                : " is no profiler plugin";
    say(log, kLogWarn, reported + why + "; only Lockstep records");
    return nullptr;
  }
  // The name comes first in the table of every version.
  const char* const* name_field = static_cast<const char* const*>(found.table);
  const std::string name = *name_field != nullptr ? *name_field : "a plugin without a name";
  if (name == kPluginName) {
    say(log, kLogWarn, reported + " is Lockstep itself; not forwarded");
    return nullptr;
  }
  auto* chain = new Chain(found.version, found.table);
  say(log, kLogInfo, "forwarding to " + name + " (" + v(found.version) + ")");
  return chain;
}

Chain::Chain(int version, const void* table)
    : version_(version), table_(table), pid_(::getpid()), salt_(new_salt()), contexts_(new Context[kContexts]()) {
  for (uint32_t ring = 0; ring < kRings; ++ring)
    rings_[ring] = std::make_unique<PairRing>(ring == kCaptured ? kCapturedPairs : kPairs);
}

void Chain::note_mask() {
  const auto mask = static_cast<uint32_t>(__atomic_load_n(&their_mask_, __ATOMIC_RELAXED));
  const uint32_t known = known_events(version_);
  seen_mask_.store(mask, std::memory_order_relaxed);
  wanted_.store(sent_for(mask & known) & known, std::memory_order_relaxed);
  // Operations always: at their start we look whether the mask has changed.
  keep_.store((mask | Detail::kNeeded) & known, std::memory_order_relaxed);
}

void Chain::ours_follows(uint32_t events) {
  ours_wanted_.store(sent_for(events), std::memory_order_relaxed);
}

Chain::Word Chain::add(Word ours, const Theirs& theirs, const InFlightTable::Comm& comm, int* nccl_mask) {
  if (!theirs.follows) return ours;
  {
    const MutexLock lock(lifecycle_);
    for (uint32_t tries = 0; tries < kContexts; ++tries) {
      if (++next_context_ == 0) ++next_context_;
      Context& context = contexts_[next_context_ % kContexts];
      if (context.key.load(std::memory_order_relaxed) != 0) continue;
      context.ours = ours;
      context.theirs = theirs.context;
      context.comm_id = comm.comm_id;
      context.named = comm.name != nullptr ? 1 : 0;
      if (comm.name != nullptr) {
        const size_t bytes = ::strnlen(comm.name, sizeof context.name - 1);
        std::memcpy(context.name, comm.name, bytes);
        context.name[bytes] = '\0';
      }
      context.key.store(next_context_, std::memory_order_release);
      contexts_alive_ += 1;
      nccl_mask_.store(nccl_mask, std::memory_order_release);
      return Handle{HandleKind::kPair, kContextRow, next_context_}.packed(salt_);
    }
  }
  if (theirs.context != nullptr) table<V1>().finalize(theirs.context);
  return ours;
}

Chain::Context* Chain::find_context(Word word) {
  const Handle handle = Handle::unpacked(word, salt_);
  if (handle.kind != HandleKind::kPair || handle.row != kContextRow) return nullptr;
  Context& context = contexts_[handle.position % kContexts];
  const bool here = handle.position != 0 && context.key.load(std::memory_order_acquire) == handle.position;
  return here ? &context : nullptr;
}

Chain::Word Chain::finalize(Word word) {
  if (Handle::unpacked(word, salt_).kind != HandleKind::kPair) return word;
  Word ours = kNobody;
  void* theirs = nullptr;
  {
    const MutexLock lock(lifecycle_);
    if (Context* context = find_context(word)) {
      ours = context->ours;
      theirs = context->theirs;
      context->key.store(0, std::memory_order_release);
      contexts_alive_ -= 1;
      // NCCL may be unloaded after its last communicator, and its mask with it.
      if (contexts_alive_ == 0) nccl_mask_.store(nullptr, std::memory_order_release);
    }
  }
  // NCCL does not finalize a context that was null. finalize and stop are the same in all versions.
  if (theirs != nullptr) table<V1>().finalize(theirs);
  return ours;
}

Chain::Named Chain::named(const void* pointer) const {
  const auto word = reinterpret_cast<Word>(pointer);
  const Handle handle = Handle::unpacked(word, salt_);
  if (handle.kind != HandleKind::kPair) return {.ours = word};
  const auto seen = handle.row < kRings ? rings_[handle.row]->peek(handle.position) : PairRing::Seen{};
  return seen.found ? Named{seen.ours, seen.theirs, seen.wanted} : Named{.ours = kNobody};
}

Chain::Word Chain::pair(Ring ring, Word ours, void* theirs, uint32_t wanted) {
  const uint32_t position = rings_[ring]->put(ours, theirs, wanted);
  return position != 0 ? Handle{HandleKind::kPair, ring, position}.packed(salt_) : ours;
}

Chain::Word Chain::stop(Word word) {
  const Handle handle = Handle::unpacked(word, salt_);
  if (handle.kind != HandleKind::kPair) return word;
  const auto seen = handle.row < kRings ? rings_[handle.row]->stop(handle.position) : PairRing::Seen{};
  if (seen.open) table<V1>().stopEvent(seen.theirs);
  // NCCL stops the last call of a thread again and again, however old: that is nobody's fault.
  if (!seen.found) return handle.row == kGroups || handle.row == kCaptured ? 0 : kNobody;
  return seen.ours;
}

}  // namespace lockstep::nccl
