#include "recorder/writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>

#include "base/files.h"
#include "base/mutex.h"
#include "base/text.h"
#include "recorder/identity_variables.h"
#include "recorder/reader.h"

namespace lockstep {

using layout::load;
using layout::store;

namespace {

int64_t realtime_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Field 22 of /proc/self/stat. The process's name, in brackets, may hold anything, so count from its end.
std::optional<uint64_t> process_start_ticks() {
  UniqueFd fd(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  char buffer[1024];
  const ssize_t length = fd.valid() ? ::read(fd.get(), buffer, sizeof buffer) : -1;
  if (length <= 0) return std::nullopt;
  std::string_view text(buffer, static_cast<size_t>(length));
  const size_t bracket = text.rfind(')');
  if (bracket == std::string_view::npos || bracket + 2 > text.size()) return std::nullopt;
  const auto fields = split(text.substr(bracket + 2), ' ');  // the first of them is field 3
  return fields.size() > 19 ? parse_uint(fields[19]) : std::nullopt;
}

std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

int64_t number_variable(std::initializer_list<const char*> names, int64_t otherwise) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    const auto number = value != nullptr ? parse_int(value) : std::nullopt;
    if (number) return *number;
  }
  return otherwise;
}

std::string host_name() {
  if (std::string reported = variable({"LOCKSTEP_HOST"}); !reported.empty()) return reported;
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

template <size_t N>
void copy_text(char (&target)[N], const std::string& text) {
  std::memcpy(target, text.data(), std::min(text.size(), N - 1));
}

Error failed(const std::string& what) {
  return Error{"recorder: " + what + ": " + std::strerror(errno)};
}

uint64_t rank_word(int32_t rank, int32_t world_size) {
  return static_cast<uint64_t>(static_cast<uint32_t>(rank)) | static_cast<uint64_t>(static_cast<uint32_t>(world_size))
                                                                  << 32;
}

Result<void> prepare_directory(const std::string& directory, bool must_be_ours) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return failed("cannot make " + directory);
  if (!must_be_ours) return {};
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0) return failed("cannot look at " + directory);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 022) != 0) {
    return Error{"recorder: " + directory + " is not a folder that only this user can write; recording is off"};
  }
  return {};
}

// Fills in a fresh file under a name of its own, then gives it its real name, unless that is taken by now.
Result<UniqueFd> make_file(const std::string& path, const layout::FileHeader& header) {
  // Two libraries of one process may come at the same time, each with its own copy of this counter: its address tells
  // them apart.
  static std::atomic<uint32_t> attempts{0};
  const std::string temporary = format("%s.%zx.%u.tmp", path.c_str(), reinterpret_cast<size_t>(&attempts),
                                       attempts.fetch_add(1, std::memory_order_relaxed));
  UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed("cannot make " + temporary);
  // Every page now: a write into a page that the full file system cannot give would kill the job (SIGBUS).
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(header.file_bytes)); error != 0) {
    ::unlink(temporary.c_str());
    return Error{format("recorder: no room for %llu bytes in %s: %s",
                        static_cast<unsigned long long>(header.file_bytes), temporary.c_str(), std::strerror(error))};
  }
  const ssize_t written = ::pwrite(fd.get(), &header, sizeof header, 0);
  const bool whole = written == static_cast<ssize_t>(sizeof header);
  long renamed = -1;
  if (whole) {
    renamed = ::syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), 1 /* RENAME_NOREPLACE */);
    if (renamed != 0 && (errno == ENOSYS || errno == EINVAL)) {  // an old kernel or file system
      renamed = ::link(temporary.c_str(), path.c_str());
      if (renamed == 0) ::unlink(temporary.c_str());
    }
  }
  if (renamed == 0) return fd;
  const Error error = failed("cannot name " + path);
  ::unlink(temporary.c_str());
  return error;
}

// The file of this very process, made by the other library. Anything odd about it: hands off.
Result<UniqueFd> open_existing(const std::string& path, const layout::FileHeader& ours, layout::FileHeader* found) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return failed("cannot open " + path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Error{"recorder: " + path + " is not a file"};
  if (status.st_uid != ::geteuid()) return Error{"recorder: " + path + " belongs to another user; recording is off"};
  if (::pread(fd.get(), found, sizeof *found, 0) != static_cast<ssize_t>(sizeof *found)) {
    return Error{"recorder: " + path + " is too short for a header; recording is off"};
  }
  if (const char* fault = layout::header_fault(*found, static_cast<uint64_t>(status.st_size))) {
    return Error{"recorder: " + path + " is " + fault + "; recording is off"};
  }
  if (found->pid != ours.pid || found->process_start_ticks != ours.process_start_ticks) {
    return Error{"recorder: " + path + " was made by another process; recording is off"};
  }
  return fd;
}

// `header` is then that of the file: another one's where it was there already.
Result<UniqueFd> make_or_open(const std::string& path, layout::FileHeader& header) {
  if (::access(path.c_str(), F_OK) != 0) {
    auto made = make_file(path, header);
    if (made) return made;
    // Lost the race for the name: the other library's file is there now.
    if (::access(path.c_str(), F_OK) != 0) return made.failure();
  }
  const layout::FileHeader ours = header;
  return open_existing(path, ours, &header);
}

// Held while the process lives: who asks for it knows that even from where the pid means nothing (another container).
void hold_lock(int file) {
  struct flock hold {};
  hold.l_type = F_WRLCK;
  hold.l_whence = SEEK_SET;
  hold.l_len = 1;
  (void)::fcntl(file, F_SETLK, &hold);  // without it, the pid has to do
}

layout::FileHeader header_of(const RecorderWriter::Options& options, const layout::Geometry& geometry,
                             uint64_t start_ticks) {
  layout::FileHeader header{};
  header.magic = layout::kMagic;
  header.layout_version = layout::kLayoutVersion;
  header.header_bytes = sizeof header;
  header.file_bytes = geometry.file_bytes();
  header.pid = ::getpid();
  header.process_start_ticks = start_ticks;
  header.lanes = geometry.lanes;
  header.lane_records = geometry.lane_records;
  header.comms = geometry.comms;
  header.comm_offset = geometry.comm_offset();
  header.lane_header_offset = geometry.lane_header_offset();
  header.record_offset = geometry.record_offset();
  header.anchor_unix_ns = options.anchor_unix_ns;
  header.anchor_monotonic_ns = options.anchor_monotonic_ns;
  if (header.anchor_unix_ns == 0 && header.anchor_monotonic_ns == 0) {
    header.anchor_unix_ns = realtime_ns();
    header.anchor_monotonic_ns = static_cast<int64_t>(recorder_now_ns());
  }
  header.attempt = options.identity.attempt;
  header.rank_and_world = rank_word(options.identity.rank, options.identity.world_size);
  header.local_rank = options.identity.local_rank;
  copy_text(header.job_id, options.identity.job_id);
  copy_text(header.host, options.identity.host);
  copy_text(header.gpu_uuid, options.identity.gpu_uuid);
  return header;
}

}  // namespace

constinit std::atomic<uint64_t (*)()> recorder_clock{nullptr};

uint64_t recorder_now_ns() {
  auto* const reported = recorder_clock.load(std::memory_order_relaxed);
  return reported != nullptr ? reported() : system_now_ns();
}

void use_recorder_clock(uint64_t (*now_ns)()) {
  recorder_clock.store(now_ns, std::memory_order_relaxed);
}

const char* to_text(SwitchOff reason) {
  switch (reason) {
    case SwitchOff::kNone:
      return "it is on";
    case SwitchOff::kLaneTaken:
      return "another thread wrote on a lane that was taken";
    case SwitchOff::kHeaderChanged:
      return "somebody else wrote into its file";
    case SwitchOff::kTooSlow:
      return "its own callbacks took too long";
  }
  return "of an unknown reason";
}

RecorderWriter::Options RecorderWriter::options_from_environment() {
  Options options;
  options.directory = recorder_directory();
  options.directory_must_be_ours = variable({"LOCKSTEP_RECORDER_DIR"}).empty();

  const int64_t lanes = number_variable({"LOCKSTEP_RECORDER_LANES"}, layout::kLanesDefault);
  const int64_t records = number_variable({"LOCKSTEP_RECORDER_LANE_RECORDS"}, layout::kLaneRecordsDefault);
  options.geometry.lanes = static_cast<uint32_t>(std::clamp<int64_t>(lanes, 1, layout::kLanesMax));
  const int64_t comms = number_variable({"LOCKSTEP_RECORDER_COMMS"}, layout::kCommsDefault);
  options.geometry.comms = static_cast<uint32_t>(std::clamp<int64_t>(comms, 1, layout::kCommsMax));
  options.geometry.lane_records = std::bit_floor(
      static_cast<uint32_t>(std::clamp<int64_t>(records, layout::kLaneRecordsMin, layout::kLaneRecordsMax)));

  namespace names = identity_variables;
  Identity& identity = options.identity;
  identity.host = host_name();
  identity.job_id = variable({names::kJobId, names::kSlurmJobId});
  if (identity.job_id.empty()) {
    identity.job_id = variable({names::kElasticJobId});
    if (identity.job_id == names::kNoElasticJob) identity.job_id.clear();
  }
  if (identity.job_id.empty())
    identity.job_id = format("%s%s-%d", names::kUnknownJobPrefix, identity.host.c_str(), ::getsid(0));
  identity.attempt = number_variable(names::kAttempt, 0);
  const auto small = [](int64_t value) { return static_cast<int32_t>(std::clamp<int64_t>(value, -1, INT32_MAX)); };
  identity.rank = small(number_variable(names::kRank, -1));
  identity.world_size = small(number_variable(names::kWorldSize, 0));
  identity.local_rank = small(number_variable(names::kLocalRank, 0));
  identity.gpu_uuid = variable({names::kGpuUuid});

  const std::string anchor = variable({"LOCKSTEP_CLOCK_ANCHOR"});
  const auto parts = split(anchor, ':');
  const auto unix_ns = parts.size() == 2 ? parse_int(parts[0]) : std::nullopt;
  const auto monotonic_ns = parts.size() == 2 ? parse_int(parts[1]) : std::nullopt;
  if (unix_ns && monotonic_ns) {
    options.anchor_unix_ns = *unix_ns;
    options.anchor_monotonic_ns = *monotonic_ns;
  }
  return options;
}

Result<layout::Geometry> RecorderWriter::fitting(layout::Geometry geometry, uint64_t free_bytes) {
  constexpr uint64_t kShare = 16;
  while (geometry.file_bytes() > free_bytes / kShare) {
    if (geometry.lane_records > 512) {
      geometry.lane_records /= 2;
    } else if (geometry.comms > 64) {
      geometry.comms /= 2;
    } else if (geometry.lane_records > layout::kLaneRecordsMin * 4) {
      geometry.lane_records /= 2;
    } else {
      return Error{format("recorder: %llu bytes free are too few: NCCL needs shared memory too; recording is off",
                          static_cast<unsigned long long>(free_bytes))};
    }
  }
  return geometry;
}

Result<void> RecorderWriter::map(UniqueFd file, const layout::FileHeader& header) {
  // Populated: a page fault would be a system call in all but name on the job's threads.
  void* bytes = ::mmap(nullptr, header.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (bytes == MAP_FAILED) return failed("cannot map " + path_);
  bytes_ = static_cast<std::byte*>(bytes);
  fd_ = std::move(file);
  geometry_ = layout::Geometry{header.lanes, header.lane_records, header.comms};
  header_ = reinterpret_cast<layout::FileHeader*>(bytes_);
  in_flight_ = InFlightTable(header_, reinterpret_cast<layout::CommRow*>(bytes_ + header.comm_offset), header.comms);
  return {};
}

void RecorderWriter::place_lanes(const layout::FileHeader& header) {
  lanes_ = std::make_unique<Lane[]>(header.lanes);
  auto* lane_headers = reinterpret_cast<layout::LaneHeader*>(bytes_ + header.lane_header_offset);
  for (uint32_t i = 0; i < header.lanes; ++i) {
    Lane& lane = lanes_[i];
    lane.writer = this;
    lane.number = i;
    lane.header = &lane_headers[i];
    lane.words = reinterpret_cast<uint64_t*>(bytes_ + header.record_offset + i * geometry_.lane_bytes());
    lane.mask = header.lane_records - 1;
  }
}

Result<std::unique_ptr<RecorderWriter>> RecorderWriter::open(const Options& options) {
  if (!options.geometry.sane())
    return Error{"recorder: lanes, records or communicators out of range; recording is off"};
  const auto ticks = process_start_ticks();
  if (!ticks) return Error{"recorder: cannot read /proc/self/stat; recording is off"};
  LOCKSTEP_TRY(prepare_directory(options.directory, options.directory_must_be_ours));

  struct statvfs space {};
  layout::Geometry geometry = options.geometry;
  if (::statvfs(options.directory.c_str(), &space) == 0) {
    geometry = LOCKSTEP_TRY(fitting(geometry, static_cast<uint64_t>(space.f_bavail) * space.f_frsize));
  }
  TickClock::prepare();

  layout::FileHeader header = header_of(options, geometry, *ticks);
  auto writer = std::unique_ptr<RecorderWriter>(new RecorderWriter);
  writer->path_ = format("%s/%d-%llu%s", options.directory.c_str(), header.pid, static_cast<unsigned long long>(*ticks),
                         kRecorderSuffix);
  UniqueFd file = LOCKSTEP_TRY(make_or_open(writer->path_, header));
  hold_lock(file.get());
  LOCKSTEP_TRY(writer->map(std::move(file), header));
  if (::pthread_key_create(&writer->key_, thread_ended) != 0)
    return Error{"recorder: no thread key left; recording is off"};
  writer->has_key_ = true;
  writer->ticks_ = TickClock::usable();
  writer->place_lanes(header);
  return writer;
}

RecorderWriter::~RecorderWriter() {
  if (has_key_) {
    // The key's destructor does not run for this thread any more, so its lane goes back here.
    if (void* lane = ::pthread_getspecific(key_)) thread_ended(lane);
    ::pthread_key_delete(key_);
  }
  if (bytes_ != nullptr) ::munmap(bytes_, geometry_.file_bytes());
}

RecorderWriter::Lane* RecorderWriter::claim_lane() {
  const auto self = static_cast<uint32_t>(::syscall(SYS_gettid));
  for (uint32_t i = 0; i < geometry_.lanes; ++i) {
    Lane& lane = lanes_[i];
    if (load(lane.header->owner) != 0 || !layout::swap_if(lane.header->owner, 0u, self)) continue;
    lane.owner = self;
    lane.head = load(lane.header->head, std::memory_order_acquire);  // goes on where the last owner stopped
    lane.events = load(lane.header->events);
    lane.clock = TickClock();
    lane.slow_samples = 0;
    if (::pthread_setspecific(key_, &lane) == 0) return &lane;
    store(lane.header->owner, 0u, std::memory_order_release);
    break;  // no memory for the thread's key: it would claim again at every record
  }
  // It does not look again, and its records are counted as refused.
  layout::add(header_->lanes_refused);
  ::pthread_setspecific(key_, &no_lane_);
  return &no_lane_;
}

void RecorderWriter::thread_ended(void* value) {
  auto* lane = static_cast<Lane*>(value);
  if (lane->header == nullptr || lane->writer->off()) return;
  if (!layout::swap_if(lane->header->owner, lane->owner, 0u)) lane->writer->switch_off(SwitchOff::kLaneTaken);
}

void RecorderWriter::end_sample(Lane& lane, uint64_t cost_ns) {
  layout::LaneHeader& header = *lane.header;
  size_t bucket = 0;
  while (bucket < kCostBoundsNs.size() && cost_ns > kCostBoundsNs[bucket]) ++bucket;
  // One producer: no addition has to be atomic.
  store(header.cost_buckets[bucket], load(header.cost_buckets[bucket]) + 1);
  store(header.cost_ns, load(header.cost_ns) + cost_ns);
  store(header.cost_worst_ns, std::max(load(header.cost_worst_ns), cost_ns));
  store(header.cost_samples, load(header.cost_samples) + 1);
  // Preemption makes any single call long. Half of a window of calls beyond what any of ours should take is not that.
  constexpr uint64_t kSlowNs = 20'000;
  constexpr uint32_t kSlowWindow = 64;
  if (cost_ns > kSlowNs) lane.slow_samples += 1;
  if (lane.slow_samples > kSlowWindow / 2) return switch_off(SwitchOff::kTooSlow);
  if (header.cost_samples % kSlowWindow == 0) lane.slow_samples = 0;
}

void RecorderWriter::learn_world(int32_t rank, int32_t world_size) {
  const uint64_t known = load(header_->rank_and_world);
  const auto known_size = static_cast<int32_t>(known >> 32);
  if (world_size > known_size) layout::swap_if(header_->rank_and_world, known, rank_word(rank, world_size));
}

bool RecorderWriter::header_intact() const {
  return load(header_->magic) == layout::kMagic && load(header_->pid) == ::getpid() &&
         load(header_->lanes) == geometry_.lanes && load(header_->lane_records) == geometry_.lane_records &&
         load(header_->comms) == geometry_.comms;
}

void RecorderWriter::switch_off(SwitchOff reason) {
  store(header_->switched_off, static_cast<uint64_t>(reason));
  off_reason_.store(reason, std::memory_order_relaxed);
  abandon();
}

namespace {

enum class Opening { kUnopened, kOn, kOff };
constinit std::atomic<Opening> process_opening{Opening::kUnopened};
constinit std::atomic<RecorderWriter*> process_writer{nullptr};
constinit Mutex process_mutex;
std::string* process_fault LOCKSTEP_GUARDED_BY(process_mutex) =
    nullptr;  // never freed, like the writer: a late callback may still ask

void in_forked_child() {
  new (&process_mutex) Mutex;  // a thread that is not in this process may have held it
  RecorderWriter* writer = process_writer.load(std::memory_order_relaxed);
  if (writer == nullptr) return;  // nothing was made: the child may make its own
  writer->abandon();
  process_opening.store(Opening::kOff, std::memory_order_relaxed);
}

std::string make_process_recorder() {
  if (variable({"LOCKSTEP_DISABLE"}) == "1") return "recorder: LOCKSTEP_DISABLE=1";
  if (::pthread_atfork(nullptr, nullptr, in_forked_child) != 0)
    return "recorder: cannot watch for forks; recording is off";
  auto writer = RecorderWriter::open(RecorderWriter::options_from_environment());
  if (!writer) return writer.error();
  process_writer.store(writer->release(), std::memory_order_release);
  return "";
}

void open_process_recorder() {
  const MutexLock lock(process_mutex);
  if (process_opening.load(std::memory_order_relaxed) != Opening::kUnopened) return;
  try {
    if (std::string fault = make_process_recorder(); !fault.empty()) process_fault = new std::string(std::move(fault));
  } catch (...) {  // out of memory: the job has worse to worry about than being recorded
  }
  const bool on = process_writer.load(std::memory_order_relaxed) != nullptr;
  process_opening.store(on ? Opening::kOn : Opening::kOff, std::memory_order_release);
}

}  // namespace

RecorderWriter* process_recorder() {
  const Opening state = process_opening.load(std::memory_order_acquire);
  if (state == Opening::kUnopened) {
    open_process_recorder();
    return process_recorder();
  }
  if (state == Opening::kOff) return nullptr;
  RecorderWriter* writer = process_writer.load(std::memory_order_acquire);
  return writer->off() ? nullptr : writer;
}

std::string process_recorder_fault() {
  const MutexLock lock(process_mutex);
  return process_fault != nullptr ? *process_fault : "";
}

}  // namespace lockstep
