// Where every rank of a job stands, read from flight recorders alone: what `lockstep hang` (running processes) and
// `lockstep postmortem` (saved files) show. Needs no server and no agent; the judge is the server's hang detector.
//
// What a recording cannot prove is not claimed: an operation whose end NCCL does not tell (InFlightOp::end_is_seen)
// counts as unfinished only while some member has not entered it; a recorder that switched itself off is no evidence; a
// stall inside an operation is nobody's fault while members of its communicator cannot be seen.
//
// Thread rule: Confined.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnosis/finding.h"
#include "recorder/reader.h"
#include "sources/nccl/rank_assembler.h"

namespace lockstep::cli {

enum class ProcessWord { kRunning, kInKernel, kStopped, kGone, kUnknown };
const char* to_text(ProcessWord process);  // "running", "in kernel", "stopped", "gone", "dead or unknown"

struct LaneView {
  uint64_t records = 0;  // that could be read
  uint64_t last_ns = 0;
  RecordType last = RecordType::kInvalid;
};

// One process, as its recorder tells.
struct Recording {
  std::string file;
  RecorderHeader header;
  ProcessWord process = ProcessWord::kUnknown;
  std::vector<InFlightComm> comms;  // those not finalized
  bool all_finalized = false;       // there were some, and none is left
  uint64_t last_call_ns = 0;        // its own monotonic clock; 0: none
  uint64_t now_ns = 0;              // the same clock at the moment of looking; saved files: the job's last callback
  RecorderReader::Drained drained;
  std::map<uint32_t, LaneView> lanes;
  std::vector<StepSummary> steps;
  const RankAssembler* assembler = nullptr;
  RankStatus status;  // filled in by judge()

  int64_t unix_of(uint64_t own_ns) const {
    return static_cast<int64_t>(own_ns) + header.anchor_unix_ns - header.anchor_monotonic_ns;
  }
  // How long ago; 0 for what is not in the past.
  double age_ns(uint64_t own_ns) const { return own_ns < now_ns ? static_cast<double>(now_ns - own_ns) : 0; }
};

struct Skipped {
  std::string file;
  std::string error;
};

// Files that are looked at again and again.
class RecorderSet {
 public:
  // saved: the processes are of another time or place, and files may be cut.
  RecorderSet(bool saved, const Clock& clock) : saved_(saved), clock_(clock) {}

  // Files as they are, folders with all recorder files in and below them. What cannot be read is in skipped().
  // A recording is good until the next poll.
  std::vector<Recording> poll(const std::vector<std::string>& paths);
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  struct Source {
    std::unique_ptr<RecorderReader> reader;
    std::unique_ptr<RankAssembler> assembler;
    Recording recording;
  };
  void add(const std::string& file);
  void read(Source& source);

  bool saved_;
  const Clock& clock_;
  std::map<std::string, Source> sources_;
  std::vector<Skipped> skipped_;
};

// One rank in one communicator.
struct Position {
  const Recording* rank = nullptr;
  InFlightComm comm;
  uint64_t collectives_started = 0;
  uint64_t p2p_started = 0;
  std::optional<InFlightOp> open;  // the oldest unfinished operation
  bool open_is_certain = true;     // false: the last operation, whose end cannot be seen
  bool behind = false;             // has not entered a collective that another member is in
  bool counts_tell = true;         // false: ends are not seen, so the count of completed operations is too small
};

struct CommView {
  CommId comm_id;
  int32_t size = 0;
  std::string name;
  std::vector<Position> positions;  // those behind first, then by rank
  std::vector<int> unseen_members;  // by rank in the communicator; at most kMembersMax
  bool waiting = false;             // somebody is certainly inside an operation
  double longest_ns = 0;            // for so long

  static constexpr int kMembersMax = 100'000;
};

enum class Outcome { kHang, kSuspected, kUnknown, kClear };
const char* to_text(Outcome outcome);  // "hang", "suspected", "unknown", "clear"

struct JobView {
  std::string job_id;
  int64_t attempt = 0;
  int32_t world_size = 0;
  int64_t last_call_unix_ns = 0;  // newest callback of all
  std::vector<const Recording*> ranks;
  std::vector<CommView> comms;  // with unfinished operations first, longest first
  Outcome outcome = Outcome::kUnknown;
  std::string sentence;
  std::optional<Finding> finding;
  std::vector<std::string> notes;
};

struct View {
  bool live = true;
  int64_t time_unix_ns = 0;
  std::vector<JobView> jobs;  // worst first
};

// The recordings must outlive the view. They are completed: status, and now_ns of saved ones.
View judge(std::vector<Recording>& recordings, bool live, int64_t now_unix_ns);

// What the network side of a position waits for; empty: nothing, or not told. `peer_text` names the peer.
std::string network_wait(const InFlightComm& comm, const std::string& peer_text);
std::string rank_text(const CommView& comm, int32_t member);  // "rank 12", "member 3" where its rank is not known
std::string operation_text(const CommView& comm, const InFlightOp& op);  // "AllReduce 104 (#105)", "Send #12 to rank 3"

// in_flight_print.cc
struct PrintOptions {
  bool all = false;    // also communicators without unfinished operations
  size_t last = 0;     // last operations of each rank in each communicator
  bool lanes = false;  // the last record of each thread
};
std::string to_text(const View& view, const PrintOptions& options);
std::string to_json(const View& view, const std::vector<Skipped>& skipped, const PrintOptions& options);
std::string time_text(int64_t unix_ns);  // "2026-08-02 03:14:07.123 CEST"

}  // namespace lockstep::cli
