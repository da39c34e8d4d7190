// Random sequences of NCCL's callbacks, as its threads make them, against the plugin as it is built, for as long as one
// likes: one process per interface version and seed (a process has one version), each with its recorder, which this
// process reads all the time. What is found must be whole and must add up to what the host did.
//
//   plugin_soak [--seconds N] [--threads N] [--version V] [--seed S]
//
// A failure says one line with the version and the seed; the same two run the same threads with the same choices again
// (how they interleave is up to the machine).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "plugin/nccl/soak_host.h"
#include "plugin/nccl/soak_parts.h"
#include "recorder/control.h"
#include "recorder/layout.h"
#include "recorder/reader.h"
#include "recorder/writer.h"
#include "testing/temporary_folder.h"

// A race is an error at once: the processes of the soak end without looking back.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "halt_on_error=1";
}

namespace lockstep::nccl {
namespace {

// Looks at every record, and at the end at the whole file.
class Checker {
 public:
  Checker(const SoakSettings& settings, std::unique_ptr<RecorderReader> reader, std::string path)
      : settings_(settings), reader_(std::move(reader)), path_(std::move(path)) {}

  uint64_t drain() {
    const auto drained = reader_->drain([this](uint32_t, const Record& record) { look_at(record); });
    records_ += drained.records;
    lost_ += drained.overwritten + drained.torn;
    return drained.records;
  }
  void look_at_table() {
    for (const InFlightComm& comm : reader_->in_flight()) {
      expect(comm.comm_index < settings_.rows, "a row beyond the table", comm.comm_index);
      for (const InFlightOp& op : comm.recent) expect(op.ordinal != 0, "an operation without a number");
    }
  }

  // The process has ended.
  void finish(const SoakReported& reported) {
    while (drain() != 0) {
    }
    const RecorderHeader header = reader_->header();
    slow_ = header.switched_off == static_cast<uint64_t>(SwitchOff::kTooSlow);
    if (slow_) return;  // a machine with too much to do: then nothing has to add up
    expect(header.switched_off == 0, "the recorder switched itself off", header.switched_off);
    check_rows();
    check_counts(reported, header);
    check_ids();
  }

  bool slow() const { return slow_; }
  bool exact() const { return exact_; }
  uint64_t records() const { return records_; }
  uint64_t ops() const { return ops_.size(); }

 private:
  enum Counted { kKernels, kProxyOps, kProxySteps, kCounted };

  void look_at(const Record& record) {
    const RecordHead& head = record.head;
    switch (head.type) {
      case RecordType::kColl:
      case RecordType::kP2p: {
        const bool p2p = head.type == RecordType::kP2p;
        expect(record.op.ordinal != 0, "an operation without a number");
        ops_.push_back(record.op.op_id);
        return belongs(record.op.op_id, p2p ? record.op.bytes / 2 & tag::kMask : record.op.seq >> 40, head);
      }
      case RecordType::kKernelCh: {
        const KernelChRecord& kernel = record.kernel;
        ++counts_[kKernels];
        expect(kernel.host_start_ns <= head.time_ns, "a kernel that stops before it starts", kernel.host_start_ns,
               head.time_ns);
        if (settings_.version < 4) return belongs(kernel.op_id, 0, head);
        expect(kernel.gpu_stop_ns == 0 || kernel.gpu_stop_ns - kernel.gpu_start_ns == tag::gpu_length(kernel.channel),
               "the times of a kernel are of two kernels", kernel.gpu_stop_ns, kernel.gpu_start_ns);
        return belongs(kernel.op_id, kernel.gpu_start_ns >> 40, head);
      }
      case RecordType::kProxyOp:
        ++counts_[kProxyOps];
        expect(record.proxy_op.start_ns <= head.time_ns, "a proxy operation that stops before it starts",
               record.proxy_op.start_ns, head.time_ns);
        return belongs(record.proxy_op.op_id, record.proxy_op.chunk_bytes, head);
      case RecordType::kProxyStep: {
        // Steps that share a record all came with the same bytes; before version 4 with none.
        const uint64_t steps = uint64_t{record.proxy_step.merged} + 1;
        counts_[kProxySteps] += steps;
        expect(record.proxy_step.start_ns <= head.time_ns, "a step that stops before it starts",
               record.proxy_step.start_ns, head.time_ns);
        expect(record.proxy_step.bytes % steps == 0, "the bytes of steps that share a record", record.proxy_step.bytes,
               steps);
        return belongs(record.proxy_step.op_id, record.proxy_step.bytes / steps, head);
      }
      case RecordType::kCommInit:
      case RecordType::kCommFinalize:
        return expect(head.comm_index < settings_.rows, "a row beyond the table", head.comm_index);
      default:
        ++marks_;
        return expect(head.comm_index == kNoComm && record.head.type != RecordType::kInvalid, "a strange record",
                      static_cast<uint64_t>(head.type));
    }
  }

  // The number that came with an event is that of the communicator whose operation the record names. comm: 0: none.
  void belongs(uint64_t op_id, uint64_t comm, const RecordHead& head) {
    expect(head.comm_index < settings_.rows, "a row beyond the table", head.comm_index);
    expect(op_id != 0 || head.type == RecordType::kProxyOp || head.type == RecordType::kProxyStep,
           "a record of no operation", static_cast<uint64_t>(head.type));
    if (op_id == 0) return;
    if (head.type != RecordType::kColl && head.type != RecordType::kP2p) children_.push_back(op_id);
    Epoch& epoch = epochs_[op_id >> layout::kOpIdPositionBits];
    if (epoch.row == kNoComm) epoch.row = head.comm_index;
    if (epoch.comm == 0) epoch.comm = comm;
    expect(epoch.row == head.comm_index, "a record is on the row of another communicator", head.comm_index, epoch.row);
    if (comm == 0 || epoch.comm == comm) return;
    fail(format("a record of type %d has values of another communicator", static_cast<int>(head.type)).c_str(), comm,
         epoch.comm);
  }

  void check_rows() {
    const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    layout::FileHeader header{};
    expect(::pread(fd.get(), &header, sizeof header, 0) == sizeof header, "the file is cut");
    for (uint64_t i = 0; i < header.comm_rows_used; ++i) {
      layout::CommRow row{};
      expect(::pread(fd.get(), &row, sizeof row, static_cast<off_t>(header.comm_offset + i * sizeof row)) == sizeof row,
             "the file is cut");
      expect((row.state & 3) == static_cast<uint64_t>(layout::RowState::kFinalized), "a row is not finalized", i);
      expect(row.collectives_completed <= row.collectives_enqueued, "more collectives completed than enqueued",
             row.collectives_completed, row.collectives_enqueued);
      expect(row.p2p_completed <= row.p2p_enqueued, "more p2p completed than enqueued", row.p2p_completed,
             row.p2p_enqueued);
      expect(row.inserted == row.collectives_enqueued + row.p2p_enqueued, "operations of a row", row.inserted);
      for (const layout::OpEntry& entry : row.ops)
        expect((entry.tag & 0xFF) <= static_cast<uint64_t>(InFlightState::kCompleted), "an entry is half filled", i);
    }
  }

  static uint64_t refused(const RecorderHeader& header, Refused reason) {
    return header.refused[static_cast<size_t>(reason)];
  }
  void check_counts(const SoakReported& reported, const RecorderHeader& header) {
    expect(reader_->written_total() == records_ + lost_, "records written", reader_->written_total(), records_ + lost_);
    const uint64_t callbacks = ops_.size() + counts_[kKernels] + counts_[kProxyOps] + counts_[kProxySteps];
    const uint64_t events = reader_->cost().events;
    expect(events >= callbacks, "more records than events", callbacks, events);
    expect(events <= reported.callbacks, "more events than callbacks", events, reported.callbacks);
    expect(refused(header, Refused::kForeign) == reported.foreign, "operations of other processes",
           refused(header, Refused::kForeign), reported.foreign);
    const uint64_t no_row = refused(header, Refused::kNoRow);
    expect(no_row >= reported.unfollowed && no_row <= reported.unfollowed + reported.unfollowed_maybe,
           "events of communicators that are not followed", no_row, reported.unfollowed);

    const uint64_t missing = lost_ + refused(header, Refused::kNoLane);
    exact_ = missing == 0;
    const auto add_up = [](uint64_t found, uint64_t done, uint64_t may_lack, const char* what) {
      expect(found <= done && done - found <= may_lack, what, found, done);
    };
    const uint64_t no_slot = refused(header, Refused::kNoSlot);
    add_up(ops_.size(), reported.ops + reported.captured_ops, missing + reported.captured_ops,
           "operations do not add up");
    add_up(counts_[kKernels], reported.kernels, missing + no_slot + reported.captured_kernels,
           "kernel events do not add up");
    add_up(counts_[kProxyOps], reported.proxy_ops, missing + no_slot, "proxy operations do not add up");
    // Those that share a record are lost together, and wait for the end of their proxy operation.
    add_up(counts_[kProxySteps], reported.proxy_steps, (missing + reported.left_open) * (kMergedMax + 1) + no_slot,
           "proxy steps do not add up");
    add_up(marks_, reported.marks, missing, "marks do not add up");
    if (settings_.steady) expect(no_slot == 0, "events lost their places", no_slot);
  }
  void check_ids() {
    std::sort(ops_.begin(), ops_.end());
    expect(std::adjacent_find(ops_.begin(), ops_.end()) == ops_.end(), "two operations have one id");
    if (!exact_) return;
    for (const uint64_t id : children_)
      expect(std::binary_search(ops_.begin(), ops_.end(), id), "a record of an operation that never was", id);
  }

  struct Epoch {
    uint16_t row = kNoComm;
    uint64_t comm = 0;
  };

  const SoakSettings& settings_;
  std::unique_ptr<RecorderReader> reader_;
  const std::string path_;
  std::map<uint64_t, Epoch> epochs_;
  std::vector<uint64_t> ops_;
  std::vector<uint64_t> children_;
  uint64_t counts_[kCounted] = {};
  uint64_t marks_ = 0;
  uint64_t records_ = 0;
  uint64_t lost_ = 0;
  bool slow_ = false;
  bool exact_ = false;
};

class Folder {
 public:
  Folder() { soak_folder = path(); }
  const std::string& path() const { return folder_.path(); }
  std::string recorder() const {
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      if (entry.path().extension() == kRecorderSuffix) return entry.path();
    }
    return "";
  }

 private:
  lockstep::testing::TemporaryFolder folder_;
};

[[noreturn]] void host_process(const SoakSettings& settings, SoakReported& reported, const std::string& folder) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv("LOCKSTEP_RECORDER_DIR", folder.c_str(), 1);
  ::setenv("LOCKSTEP_RECORDER_LANES", std::to_string(settings.lanes).c_str(), 1);
  ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", std::to_string(settings.lane_records).c_str(), 1);
  ::setenv("LOCKSTEP_RECORDER_COMMS", std::to_string(settings.rows).c_str(), 1);
  run_soak_host(settings, reported);
  ::_exit(0);
}

// One process of the host, read until it ends. Every failure ends the program.
void soak(const SoakSettings& settings) {
  soak_settings = &settings;
  const Folder folder;
  void* memory = ::mmap(nullptr, sizeof(SoakReported), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "no memory");
  auto& reported = *new (memory) SoakReported;
  std::fflush(nullptr);
  const pid_t host = ::fork();
  expect(host >= 0, "fork failed");
  if (host == 0) host_process(settings, reported, folder.path());

  Random random(settings.seed);
  std::unique_ptr<Checker> checker;
  const uint64_t began = system_now_ns();
  const auto patience_ns = static_cast<uint64_t>((settings.seconds * 10 + 90) * 1e9);
  int status = 0;
  for (uint64_t turn = 0; ::waitpid(host, &status, WNOHANG) == 0; ++turn) {
    const std::string path = checker == nullptr ? folder.recorder() : "";
    if (!path.empty()) {
      auto reader = RecorderReader::open(path);
      if (!reader.ok()) fail(reader.error().c_str());
      checker = std::make_unique<Checker>(settings, std::move(*reader), path);
    }
    if (checker != nullptr) checker->drain();
    if (checker != nullptr && turn % 64 == 0) checker->look_at_table();
    if (reported.no_more_requests.load()) {
      reported.requests_ended.store(true);
    } else if (checker != nullptr && settings.requests && turn % 16 == 0) {
      const auto until_s = static_cast<uint32_t>(system_now_ns() / 1'000'000'000 + random.below(1000));
      const auto request = random.once_in(4)
                               ? std::nullopt
                               : std::optional(DetailControl{static_cast<uint16_t>(random.next()), until_s});
      (void)ask_detail(folder.recorder(), request);
    }
    if (system_now_ns() - began > patience_ns) {
      ::kill(host, SIGABRT);
      fail("the process hangs");
    }
    ::usleep(500);
  }
  if (WIFSIGNALED(status)) fail("the process died of a signal", static_cast<uint64_t>(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) {
    fail("the process failed; its own line is above", static_cast<uint64_t>(WEXITSTATUS(status)));
  }
  expect(checker != nullptr, "there was no recorder");
  checker->finish(reported);
  std::printf("version %d seed %llu: %s callbacks, %s operations on %s communicators, %s forks%s%s%s\n",
              settings.version, static_cast<unsigned long long>(settings.seed),
              with_thousands(static_cast<int64_t>(reported.callbacks)).c_str(),
              with_thousands(static_cast<int64_t>(reported.ops)).c_str(),
              with_thousands(static_cast<int64_t>(reported.comms)).c_str(),
              with_thousands(static_cast<int64_t>(reported.forks)).c_str(), settings.steady ? ", steady" : "",
              checker->exact() ? ", nothing lost" : "", checker->slow() ? ", switched off: machine too slow" : "");
  std::fflush(stdout);
  ::munmap(memory, sizeof(SoakReported));
}

int soak_main(int argc, char** argv) {
  double seconds = 10;
  int threads = 4;
  int version = 0;
  uint64_t seed = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const auto value = parse_uint(argv[i + 1]);
    if (!value || *value == 0) return std::fprintf(stderr, "plugin_soak: %s takes a number from 1 on\n", argv[i]), 2;
    if (flag == "--seconds") {
      seconds = static_cast<double>(*value);
    } else if (flag == "--threads") {
      threads = static_cast<int>(std::min<uint64_t>(*value, 64));
    } else if (flag == "--version") {
      version = static_cast<int>(std::min<uint64_t>(*value, 7));
    } else if (flag == "--seed") {
      seed = *value;
    } else {
      return std::fprintf(stderr, "plugin_soak: no option %s\n", argv[i]), 2;
    }
  }
  if (argc % 2 == 0) return std::fprintf(stderr, "plugin_soak: %s lacks its number\n", argv[argc - 1]), 2;

  const uint64_t until = system_now_ns() + static_cast<uint64_t>(seconds * 1e9);
  const bool once = version != 0 && seed != 0;
  const double slice = once ? seconds : std::min(2.0, seconds / 14);
  for (uint64_t next = seed != 0 ? seed : 1;; next += seed == 0 ? 1 : 0) {
    for (int v = version != 0 ? version : 1; v <= (version != 0 ? version : 7); ++v) {
      soak(SoakSettings::of(v, next, slice, threads));
    }
    if (once || system_now_ns() >= until) break;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::nccl

int main(int argc, char** argv) {
  return lockstep::nccl::soak_main(argc, argv);
}
