// Reads with pread, not through a mapping: a file that is cut short under a mapping kills its reader (SIGBUS), and the
// agent reads files of processes it has no reason to trust. Bytes in memory are read through the same small interface.
//
// A copy taken while the producer works may mix old and new. What is believed is what the publish protocol (writer.h)
// proves: a record whose number is the expected one and whose slot was not reached by the producer until after the
// copy; an entry of the table whose tag was the same before, in and after the copy.
#include "recorder/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "base/text.h"
#include "recorder/layout.h"

namespace lockstep {
namespace {

class Bytes {
 public:
  virtual ~Bytes() = default;
  // False where there is less than that. The target is then unspecified.
  virtual bool read(uint64_t offset, void* target, size_t size) const = 0;
  virtual bool held() const { return false; }
  virtual int fd() const { return -1; }
};

class FileBytes final : public Bytes {
 public:
  explicit FileBytes(UniqueFd fd) : fd_(std::move(fd)) {}
  bool read(uint64_t offset, void* target, size_t size) const override {
    auto* at = static_cast<char*>(target);
    while (size > 0) {
      const ssize_t got = ::pread(fd_.get(), at, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      offset += static_cast<uint64_t>(got);
      size -= static_cast<size_t>(got);
    }
    return true;
  }
  bool held() const override {
    struct flock asked {};
    asked.l_type = F_RDLCK;
    asked.l_whence = SEEK_SET;
    asked.l_len = 1;
    return ::fcntl(fd_.get(), F_GETLK, &asked) == 0 && asked.l_type != F_UNLCK;
  }
  int fd() const override { return fd_.get(); }

 private:
  UniqueFd fd_;
};

class MemoryBytes final : public Bytes {
 public:
  MemoryBytes(const void* bytes, size_t size) : bytes_(static_cast<const char*>(bytes)), size_(size) {}
  bool read(uint64_t offset, void* target, size_t size) const override {
    if (offset > size_ || size > size_ - offset) return false;
    std::memcpy(target, bytes_ + offset, size);
    return true;
  }

 private:
  const char* bytes_;
  size_t size_;
};

// Text from a file we did not write: ends within its field, holds nothing that could disturb a terminal or a log line.
template <size_t N>
std::string text_untrusted(const char (&field)[N]) {
  std::string text(field, strnlen(field, N));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

template <typename Enum>
Enum known_or_unknown(Enum value, Enum last) {
  return value <= last ? value : Enum::kUnknown;
}

class Reader final : public RecorderReader {
 public:
  Reader(std::unique_ptr<Bytes> bytes, const layout::FileHeader& header)
      : bytes_(std::move(bytes)),
        geometry_{header.lanes, header.lane_records, header.comms},
        first_header_(header),
        cursors_(header.lanes, 0),
        buffer_(std::min<uint64_t>(header.lane_records, kChunkRecords)) {}

  RecorderHeader header() const override {
    layout::FileHeader now = first_header_;
    // Only the counters and the rank change; what was checked on opening stands.
    layout::FileHeader again;
    if (bytes_->read(0, &again, sizeof again)) {
      now.rank_and_world = again.rank_and_world;
      now.lanes_refused = again.lanes_refused;
      std::copy(std::begin(again.refused), std::end(again.refused), std::begin(now.refused));
      now.switched_off = again.switched_off;
      now.mask = again.mask;
      now.nccl = again.nccl;
      now.control = again.control;
    }
    RecorderHeader header;
    header.pid = now.pid;
    header.process_start_ticks = now.process_start_ticks;
    header.job_id = text_untrusted(now.job_id);
    header.attempt = now.attempt;
    header.rank = static_cast<int32_t>(now.rank_and_world & 0xFFFFFFFF);
    header.world_size = static_cast<int32_t>(now.rank_and_world >> 32);
    header.local_rank = now.local_rank;
    header.host = text_untrusted(now.host);
    header.gpu_uuid = text_untrusted(now.gpu_uuid);
    header.anchor_unix_ns = now.anchor_unix_ns;
    header.anchor_monotonic_ns = now.anchor_monotonic_ns;
    header.lanes_refused = now.lanes_refused;
    std::copy_n(std::begin(now.refused), header.refused.size(), header.refused.begin());
    header.switched_off = now.switched_off;
    header.mask = static_cast<uint32_t>(now.mask);
    header.control = now.control;
    header.nccl_version = static_cast<uint32_t>(now.nccl);
    header.nccl_interface = static_cast<uint32_t>(now.nccl >> 32);
    return header;
  }

  bool held() const override { return bytes_->held(); }
  int fd() const override { return bytes_->fd(); }

  Drained drain(const std::function<void(uint32_t, const Record&)>& sink, uint64_t records_max) override {
    Drained drained;
    const std::vector<layout::LaneHeader> lanes = lane_headers();
    for (size_t i = 0; i < lanes.size() && !drained.more; ++i) {
      const auto lane = static_cast<uint32_t>((first_lane_ + i) % lanes.size());
      drain_lane(lane, lanes[lane].head, sink, records_max, drained);
      if (drained.more) first_lane_ = lane + 1;  // one that is never empty does not keep us from the others
    }
    return drained;
  }

  std::vector<uint32_t> producers() const override {
    std::vector<uint32_t> threads;
    for (const auto& lane : lane_headers()) threads.push_back(lane.owner);
    return threads;
  }

  std::vector<InFlightComm> in_flight() const override {
    std::vector<InFlightComm> comms;
    uint64_t used = 0;
    if (!bytes_->read(offsetof(layout::FileHeader, comm_rows_used), &used, sizeof used)) return comms;
    used = std::min<uint64_t>(used, geometry_.comms);
    for (uint32_t index = 0; index < used; ++index) {
      const uint64_t offset = geometry_.comm_offset() + index * sizeof(layout::CommRow);
      // The second copy is believed where all three agree on whose it is.
      std::array<layout::CommRow, 3> copies;
      bool whole = true;
      for (auto& copy : copies) whole = whole && bytes_->read(offset, &copy, sizeof copy);
      if (!whole) continue;
      const auto state = static_cast<layout::RowState>(copies[1].state & 3);
      const bool settled = state == layout::RowState::kLive || state == layout::RowState::kFinalized;
      if (!settled || copies[0].state >> 2 != copies[1].state >> 2 || copies[2].state >> 2 != copies[1].state >> 2)
        continue;
      if ((copies[0].state & 3) == static_cast<uint64_t>(layout::RowState::kFilling)) continue;
      comms.push_back(comm_of(index, copies));
    }
    return comms;
  }

  RecorderCost cost() const override {
    RecorderCost cost;
    for (const auto& lane : lane_headers()) {
      cost.events += lane.events;
      cost.samples += lane.cost_samples;
      cost.total_ns += lane.cost_ns;
      cost.worst_ns = std::max(cost.worst_ns, lane.cost_worst_ns);
      for (size_t i = 0; i < cost.buckets.size(); ++i) cost.buckets[i] += lane.cost_buckets[i];
    }
    return cost;
  }

  uint64_t last_activity_ns() const override {
    uint64_t newest = 0;
    for (const auto& lane : lane_headers()) newest = std::max(newest, lane.last_ns);
    return newest;
  }

  uint64_t written_total() const override {
    uint64_t total = 0;
    for (const auto& lane : lane_headers()) total += lane.head;
    return total;
  }

 private:
  static constexpr uint64_t kChunkRecords = 1024;  // 64 KiB at a time: drained before the producer comes round again

  // Empty where the file has become too short.
  std::vector<layout::LaneHeader> lane_headers() const {
    std::vector<layout::LaneHeader> lanes(geometry_.lanes);
    if (!bytes_->read(geometry_.lane_header_offset(), lanes.data(), lanes.size() * sizeof(layout::LaneHeader)))
      lanes.clear();
    return lanes;
  }

  void drain_lane(uint32_t lane, uint64_t head, const std::function<void(uint32_t, const Record&)>& sink,
                  uint64_t records_max, Drained& drained) {
    const uint64_t size = geometry_.lane_records;
    uint64_t& cursor = cursors_[lane];
    if (head < cursor) cursor = head;  // no producer does this; the file was tampered with
    drained.fullest = std::max(drained.fullest, static_cast<double>(head - cursor) / static_cast<double>(size));
    if (head - cursor > size) {
      drained.overwritten += head - cursor - size;
      cursor = head - size;
    }
    const uint64_t left = records_max - std::min(records_max, drained.records + drained.torn);
    if (head - cursor > left) {
      head = cursor + left;
      drained.more = true;
    }
    while (cursor < head) {
      const uint64_t slot = cursor % size;
      const uint64_t count = std::min({head - cursor, size - slot, uint64_t{buffer_.size()}});
      uint64_t head_after = 0;
      if (!bytes_->read(slot_offset(lane, slot), buffer_.data(), count * sizeof(Record)) ||
          !bytes_->read(geometry_.lane_header_offset() + lane * sizeof(layout::LaneHeader), &head_after,
                        sizeof head_after)) {
        drained.torn += head - cursor;
        cursor = head;
        return;
      }
      for (uint64_t i = 0; i < count; ++i, ++cursor) {
        if (is_whole(lane, cursor, buffer_[i], head_after)) {
          sanitize(buffer_[i]);
          sink(lane, buffer_[i]);
          drained.records += 1;
        } else {
          drained.torn += 1;
        }
      }
    }
  }

  bool is_whole(uint32_t lane, uint64_t number, const Record& record, uint64_t head_after) const {
    if (record.head.reserved != static_cast<uint32_t>(number + 1)) return false;
    if (record.head.type == RecordType::kInvalid || record.head.type > RecordType::kText) return false;
    if (head_after < number + geometry_.lane_records) return true;
    if (head_after > number + geometry_.lane_records) return false;
    // The producer's next slot is this one. It has not begun while the first word still stands.
    uint64_t first_word = 0;
    return bytes_->read(slot_offset(lane, number % geometry_.lane_records), &first_word, sizeof first_word) &&
           first_word == record.words[0];
  }

  uint64_t slot_offset(uint32_t lane, uint64_t slot) const {
    return geometry_.record_offset() + lane * geometry_.lane_bytes() + slot * sizeof(Record);
  }

  // Values a consumer would index or print with.
  void sanitize(Record& record) const {
    record.head.reserved = 0;
    if (record.head.comm_index >= geometry_.comms) record.head.comm_index = kNoComm;
    switch (record.head.type) {
      case RecordType::kColl:
      case RecordType::kP2p:
        record.op.function = known_or_unknown(record.op.function, Function::kSendRecv);
        record.op.datatype = known_or_unknown(record.op.datatype, Datatype::kFloat8e5m2);
        break;
      case RecordType::kStepBegin:
      case RecordType::kStepEnd:
      case RecordType::kPhaseBegin:
      case RecordType::kPhaseEnd:
      case RecordType::kScalar:
      case RecordType::kCommInit:
      case RecordType::kCommFinalize:
      case RecordType::kShutdown:
        record.mark.name[sizeof record.mark.name - 1] = '\0';
        break;
      case RecordType::kText:
        record.text.bytes = std::min<uint8_t>(record.text.bytes, sizeof record.text.text);
        break;
      default:
        break;
    }
  }

  static InFlightComm comm_of(uint32_t index, const std::array<layout::CommRow, 3>& copies) {
    const layout::CommRow& row = copies[1];
    InFlightComm comm;
    comm.comm_index = static_cast<uint16_t>(index);
    comm.live = (row.state & 3) == static_cast<uint64_t>(layout::RowState::kLive);
    comm.comm_id = row.comm_id;
    comm.size = row.size;
    comm.rank_in_comm = row.rank_in_comm;
    comm.nodes = row.nodes;
    comm.name = text_untrusted(row.name);
    comm.collectives_enqueued = row.collectives_enqueued;
    comm.p2p_enqueued = row.p2p_enqueued;
    // Completions first seen, then enqueued: a live table can be copied so that they cross.
    comm.collectives_completed = std::min(row.collectives_completed, row.collectives_enqueued);
    comm.p2p_completed = std::min(row.p2p_completed, row.p2p_enqueued);
    comm.collective_calls = row.collective_calls;
    comm.p2p_calls = row.p2p_calls;

    std::vector<std::pair<uint64_t, InFlightOp>> ops;
    for (uint32_t i = 0; i < layout::kOpEntries; ++i) {
      const layout::OpEntry& entry = row.ops[i];
      const uint64_t state = entry.tag & 0xFF;
      if (state < static_cast<uint64_t>(InFlightState::kEnqueued) ||
          state > static_cast<uint64_t>(InFlightState::kCompleted))
        continue;
      const uint64_t before = copies[0].ops[i].tag;
      const uint64_t after = copies[2].ops[i].tag;
      if (before >> 8 != entry.tag >> 8 || after >> 8 != entry.tag >> 8 || (before & 0xFF) == layout::kEntryFilling)
        continue;
      InFlightOp op;
      op.state = static_cast<InFlightState>(state);
      op.p2p = (entry.detail >> 48 & 1) != 0;
      op.end_is_seen = (entry.detail >> 49 & 1) == 0;
      op.ordinal = entry.ordinal;
      op.seq = entry.seq;
      op.function = known_or_unknown(static_cast<Function>(entry.detail >> 32 & 0xFF), Function::kSendRecv);
      op.datatype = known_or_unknown(static_cast<Datatype>(entry.detail >> 40 & 0xFF), Datatype::kFloat8e5m2);
      op.bytes = entry.bytes;
      op.peer = static_cast<int32_t>(entry.detail & 0xFFFFFFFF);
      op.enqueued_ns = entry.enqueued_ns;
      op.started_ns = op.state == InFlightState::kEnqueued ? 0 : entry.started_ns;
      ops.emplace_back(entry.position, op);
    }
    std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [position, op] : ops) comm.recent.push_back(op);
    pick_proxy_state(row, comm);
    return comm;
  }

  // Of all that the network side waits for, the wait for somebody else tells more than the wait for the own GPU (which
  // often only waits for the network in turn); among equals, the one that has not moved for longest.
  static void pick_proxy_state(const layout::CommRow& row, InFlightComm& comm) {
    int best_rank = -1;
    for (uint32_t i = 0; i < layout::kProxyCells; ++i) {
      const layout::ProxyCell& cell = row.proxy[i];
      if (cell.count == 0 || cell.count > INT32_MAX) continue;
      const uint8_t state = layout::kProxyStates[i];
      comm.proxy.push_back({state, cell.count, cell.peer, cell.since_ns});
      const int rank = state == 8 || state == 12 ? 0 : 1;
      if (rank < best_rank || (rank == best_rank && cell.since_ns >= comm.proxy_since_ns)) continue;
      best_rank = rank;
      comm.proxy_state = state;
      comm.proxy_peer = cell.peer;
      comm.proxy_send = state == 8 || state == 20 || state == 9;
      comm.proxy_since_ns = cell.since_ns;
    }
  }

  std::unique_ptr<Bytes> bytes_;
  layout::Geometry geometry_;
  layout::FileHeader first_header_;
  std::vector<uint64_t> cursors_;
  size_t first_lane_ = 0;  // of the next drain
  std::vector<Record> buffer_;
};

Result<std::unique_ptr<RecorderReader>> make_reader(std::unique_ptr<Bytes> bytes, uint64_t size,
                                                    const std::string& what, bool allow_short = false) {
  layout::FileHeader header;
  if (size < sizeof header || !bytes->read(0, &header, sizeof header)) {
    return Error{format("recorder: %s: %llu bytes are too short for a flight recorder", what.c_str(),
                        static_cast<unsigned long long>(size))};
  }
  // Offsets that the header makes up do not pass the check below.
  const bool table_whole = size >= header.lane_header_offset;
  if (const char* fault = layout::header_fault(header, allow_short && table_whole ? header.file_bytes : size))
    return Error{"recorder: " + what + ": " + fault};
  return std::unique_ptr<RecorderReader>(std::make_unique<Reader>(std::move(bytes), header));
}

}  // namespace

Result<std::unique_ptr<RecorderReader>> RecorderReader::open(const std::string& path, bool allow_short) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return Error{"recorder: " + path + ": " + std::strerror(errno)};
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return Error{"recorder: " + path + ": not a plain file"};
  return make_reader(std::make_unique<FileBytes>(std::move(fd)), static_cast<uint64_t>(status.st_size), path,
                     allow_short);
}

Result<std::unique_ptr<RecorderReader>> RecorderReader::from(UniqueFd file, const std::string& what) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return Error{"recorder: " + what + ": not a plain file"};
  return make_reader(std::make_unique<FileBytes>(std::move(file)), static_cast<uint64_t>(status.st_size), what);
}

Result<std::unique_ptr<RecorderReader>> RecorderReader::over(const void* bytes, size_t size) {
  return make_reader(std::make_unique<MemoryBytes>(bytes, size), size, "bytes in memory");
}

std::string recorder_directory() {
  const char* reported = std::getenv("LOCKSTEP_RECORDER_DIR");
  if (reported != nullptr && *reported != '\0') return reported;
  return format("/dev/shm/lockstep-%u", static_cast<unsigned>(::geteuid()));
}

}  // namespace lockstep
