// An NCCL profiler plugin (interface v5) that writes down every callback, in the form of docs/formats/calls.md, so that
// `lockstep replay` can make them again. Also the second plugin of the chain test: it asks for other events than ours
// and sees at once when a handle comes back that it never gave out.
//
// Writes CALLS_DIR/rankRANK.calls. A lock and a formatted line per call: for recordings, never for measurements.
// Thread rule: Thread-safe (one lock).
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "plugin/nccl/profiler_abi.h"

namespace {

using namespace lockstep::nccl;

// All but the proxy's own control and the network plugin, which NCCL's builds do not send.
constexpr int kMask = kEventGroup | kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventKernelCh |
                      kEventGroupApi | kEventCollApi | kEventP2pApi | kEventKernelLaunch;

std::mutex g_lock;
FILE* g_file = nullptr;
uint64_t g_contexts = 0;
uint64_t g_handles = 0;

uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

long thread_id() {
  static thread_local const long id = syscall(SYS_gettid);
  return id;
}

const char* variable(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

const char* text(const char* value) {
  return value != nullptr && *value != '\0' ? value : "-";
}

uint64_t number(const void* handle) {
  return reinterpret_cast<uint64_t>(handle);
}

// The lock is held.
void open_file() {
  if (g_file != nullptr) return;
  const char* rank = variable("RANK", "0");
  const std::string path = std::string(variable("CALLS_DIR", ".")) + "/rank" + rank + ".calls";
  g_file = fopen(path.c_str(), "a");
  if (g_file == nullptr) g_file = fopen("/dev/null", "w");
  if (g_file == nullptr) return;
  setvbuf(g_file, nullptr, _IOFBF, 1 << 20);
  fprintf(g_file, "H %d %s %s %s %" PRIu64 " %" PRIu64 "\n", getpid(), rank, variable("WORLD_SIZE", "1"),
          variable("NCCL_HOSTID", "-"), now_ns(CLOCK_REALTIME), now_ns(CLOCK_MONOTONIC));
}

int init(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nodes, int ranks, int rank,
         DebugLogger) {
  const uint64_t now = now_ns(CLOCK_MONOTONIC);
  std::lock_guard guard(g_lock);
  open_file();
  *context = reinterpret_cast<void*>(++g_contexts);
  *mask = kMask;
  if (g_file == nullptr) return kNcclSuccess;
  fprintf(g_file, "I %" PRIu64 " %ld %" PRIu64 " %" PRIu64 " %d %d %d %s\n", now, thread_id(), g_contexts, comm_id,
          nodes, ranks, rank, text(comm_name));
  return kNcclSuccess;
}

void print_fields(const EventDescrV5& event) {
  switch (event.type) {
    case kEventColl:
      fprintf(g_file, " %" PRIu64 " %s %zu %d %s %u %u %s %s %" PRIu64, event.coll.seqNumber, text(event.coll.func),
              event.coll.count, event.coll.root, text(event.coll.datatype), event.coll.nChannels, event.coll.nWarps,
              text(event.coll.algo), text(event.coll.proto), number(event.coll.parentGroup));
      break;
    case kEventP2p:
      fprintf(g_file, " %s %s %zu %d %u %" PRIu64, text(event.p2p.func), text(event.p2p.datatype), event.p2p.count,
              event.p2p.peer, event.p2p.nChannels, number(event.p2p.parentGroup));
      break;
    case kEventProxyOp:
      fprintf(g_file, " %d %u %d %d %d %d", event.proxyOp.pid, event.proxyOp.channelId, event.proxyOp.peer,
              event.proxyOp.nSteps, event.proxyOp.chunkSize, event.proxyOp.isSend);
      break;
    case kEventProxyStep:
      fprintf(g_file, " %d", event.proxyStep.step);
      break;
    case kEventKernelCh:
      fprintf(g_file, " %u %" PRIu64, event.kernelCh.channelId, event.kernelCh.pTimer);
      break;
    case kEventGroupApi:
      fprintf(g_file, " %d %d", event.groupApi.graphCaptured, event.groupApi.groupDepth);
      break;
    case kEventCollApi:
      fprintf(g_file, " %s %zu %s %d %p %d", text(event.collApi.func), event.collApi.count,
              text(event.collApi.datatype), event.collApi.root, event.collApi.stream, event.collApi.graphCaptured);
      break;
    case kEventP2pApi:
      fprintf(g_file, " %s %zu %s %p %d", text(event.p2pApi.func), event.p2pApi.count, text(event.p2pApi.datatype),
              event.p2pApi.stream, event.p2pApi.graphCaptured);
      break;
    case kEventKernelLaunch:
      fprintf(g_file, " %p", event.kernelLaunch.stream);
      break;
    default:
      break;
  }
}

int start_event(void* context, void** handle, EventDescrV5* event) {
  const uint64_t now = now_ns(CLOCK_MONOTONIC);
  std::lock_guard guard(g_lock);
  *handle = nullptr;
  if (g_file == nullptr || (event->type & kMask) == 0) return kNcclSuccess;
  *handle = reinterpret_cast<void*>(++g_handles);
  fprintf(g_file, "S %" PRIu64 " %ld %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d", now, thread_id(),
          number(context), g_handles, event->type, number(event->parentObj), event->rank);
  print_fields(*event);
  fputc('\n', g_file);
  return kNcclSuccess;
}

int stop_event(void* handle) {
  const uint64_t now = now_ns(CLOCK_MONOTONIC);
  std::lock_guard guard(g_lock);
  if (handle != nullptr && g_file != nullptr)
    fprintf(g_file, "X %" PRIu64 " %ld %" PRIu64 "\n", now, thread_id(), number(handle));
  return kNcclSuccess;
}

int record_event_state(void* handle, int state, EventStateArgs* args) {
  const uint64_t now = now_ns(CLOCK_MONOTONIC);
  uint64_t value = 0;
  if (args != nullptr && state == kStateKernelChStop) value = args->kernelCh.pTimer;
  if (args != nullptr &&
      ((state >= kStateStepSendGpuWait && state <= kStateStepRecvGpuWait) || state == kStateStepSendPeerWait))
    value = args->proxyStep.transSize;
  std::lock_guard guard(g_lock);
  if (handle != nullptr && g_file != nullptr)
    fprintf(g_file, "R %" PRIu64 " %ld %" PRIu64 " %d %" PRIu64 "\n", now, thread_id(), number(handle), state, value);
  return kNcclSuccess;
}

int finalize(void* context) {
  const uint64_t now = now_ns(CLOCK_MONOTONIC);
  std::lock_guard guard(g_lock);
  if (g_file == nullptr) return kNcclSuccess;
  fprintf(g_file, "F %" PRIu64 " %ld %" PRIu64 "\n", now, thread_id(), number(context));
  fflush(g_file);
  return kNcclSuccess;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const ProfilerV5 ncclProfiler_v5;
const ProfilerV5 ncclProfiler_v5 = {"CallsRecorder", init, start_event, stop_event, record_event_state, finalize};
}
