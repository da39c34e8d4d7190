// Steps of ranks as columns: what a row group of a step file holds (docs/formats/step-blocks.md), made of summaries,
// written, read back and given out as summaries again, every field exactly as it was.
//
// What repeats from step to step lies in tables that the row groups of a file share: who a rank is, and the *shapes* of
// its rows, that is which communicators, which flows and which scalars it tells of, in their order. A row is then a
// number in each table and its measured numbers.
//
// Limits: kGroupRows rows in a row group; fewer where they have more than kGroupCellsMax communicators, flows or
//   scalars together.
// On error: reading takes nothing on trust. Bytes that are no tables or no row group are an error of one line, never a
//   crash, and never more memory than the limits allow.
// Thread rule: StepWriter is Confined; StepTables and StepColumns are Immutable once made.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "store/columns/sealed_file.h"
#include "store/step_store.h"

namespace lockstep::steps {

inline constexpr size_t kGroupRows = 8'192;
inline constexpr size_t kGroupCellsMax = 1u << 20;  // of each kind; the row that reaches it is the group's last

// A rank as a file knows it: who, and how it stood when the file was written.
struct RankSeen {
  Identity identity;
  int64_t last_seen_unix_ns = 0;
  StepNumber last_step = kNoStep;  // of its rows in the file
  int64_t records_lost = 0;        // sum over its rows in the file
  bool ended = false;
  bool ended_cleanly = false;
};
RankSeen seen_of(const RankInfo& rank);

struct CommKey {
  CommId comm_id;
  int32_t size = 0;
  int32_t rank_in_comm = 0;
  bool p2p = false;
};
struct FlowKey {
  CommId comm_id;
  int32_t peer = 0;
  bool send = false;
};

// Lists, each kept once, by number. List 0 is the empty one.
template <typename Key>
struct Shapes {
  std::vector<size_t> ends{0};  // of each list in `keys`
  std::vector<Key> keys;
  size_t size() const { return ends.size(); }
  std::span<const Key> operator[](size_t id) const {
    const size_t begin = id == 0 ? 0 : ends[id - 1];
    return std::span<const Key>(keys).subspan(begin, ends[id] - begin);
  }
};

struct StepTables {
  std::vector<RankSeen> ranks;
  Shapes<CommKey> comms;
  Shapes<FlowKey> flows;
  Shapes<std::string> scalars;

  size_t memory_bytes() const;
  std::string encode() const;
  static Result<std::shared_ptr<const StepTables>> decode(std::string_view bytes);
};

// Columns of numbers, in the order in which they are written: part of the format.
enum class RowColumn : size_t {
  kRank = 0,  // number in StepTables::ranks
  kCommShape,
  kFlowShape,
  kScalarShape,
  kStep,
  kStart,
  kDuration,
  kPhase0,
  kSelf = kPhase0 + kPhaseCount,
  kComm,
  kQueue,
  kQuiet,
  kQuietFrom,
  kFlags,
  kRecordsLost,
  kUnseen,
  kSplit0,
  kCount = kSplit0 + kTimePartCount,
};
enum class CommColumn : size_t { kCount = 0, kBytes, kGpu, kLongest, kShortest, kFirst, kLast, kQueue, kUnseen, kEnd };
enum class FlowColumn : size_t { kTransfers = 0, kBytes, kWire, kOwnGpu, kPeer, kWireLongest, kOwnGpuLongest, kEnd };
inline constexpr size_t kRowColumns = static_cast<size_t>(RowColumn::kCount);
inline constexpr size_t kCommColumns = static_cast<size_t>(CommColumn::kEnd);
inline constexpr size_t kFlowColumns = static_cast<size_t>(FlowColumn::kEnd);

// A row group in memory.
class StepColumns {
 public:
  // The bytes of `rows` rows, whose tables these are.
  static Result<std::shared_ptr<const StepColumns>> decode(std::string_view bytes, size_t rows,
                                                           std::shared_ptr<const StepTables> tables);

  size_t rows() const { return rows_; }
  StepNumber step(size_t row) const { return StepNumber{at(RowColumn::kStep, row)}; }
  const RankSeen& seen(size_t row) const { return tables_->ranks[static_cast<size_t>(at(RowColumn::kRank, row))]; }
  const Identity& identity(size_t row) const { return seen(row).identity; }
  // Uses what `summary` has allocated already.
  void get(size_t row, StepSummary& summary) const;
  size_t memory_bytes() const;

 private:
  friend class StepWriter;  // fills one
  int64_t at(RowColumn column, size_t row) const { return row_[static_cast<size_t>(column)][row]; }
  void get_comms(size_t row, int64_t start, std::vector<CommStep>& out) const;
  void get_flows(size_t row, std::vector<FlowStep>& out) const;
  void get_scalars(size_t row, std::vector<StepScalar>& out) const;
  std::string encode() const;
  void clear();

  size_t rows_ = 0;
  std::shared_ptr<const StepTables> tables_;
  std::array<std::vector<int64_t>, kRowColumns> row_;
  // Cells of each row one after the other; where each row's end.
  std::vector<size_t> comm_ends_;
  std::vector<size_t> flow_ends_;
  std::vector<size_t> scalar_ends_;
  std::array<std::vector<int64_t>, kCommColumns> comm_;
  std::array<std::vector<int64_t>, kFlowColumns> flow_;
  std::vector<int64_t> scalar_;  // bits of the doubles
};

// Steps of one job within a row group, first to last without a hole; where there are too many holes, with them.
struct StepRun {
  StepNumber first;
  StepNumber last;
};
inline constexpr size_t kRunsMax = 32;

// The rows of one job and attempt in a row group. Parts follow one another.
struct GroupPart {
  uint32_t job = 0;  // number in the file's jobs
  uint32_t rows = 0;
  std::vector<StepRun> runs;  // sorted
  StepNumber first() const { return runs.front().first; }
  StepNumber last() const { return runs.back().last; }
};

struct GroupMeta {
  uint32_t rows = 0;
  columns::SectionPlace place;
  std::vector<GroupPart> parts;
};

// A job as a file knows it. One attempt each.
struct JobInFile {
  std::string job_id;
  int64_t attempt = 0;
  int32_t world_size = 0;
  int64_t first_seen_unix_ns = 0;
  int64_t last_seen_unix_ns = 0;
  StepNumber last_step = kNoStep;  // in the file
  uint32_t ranks = 0;              // in the file
  int64_t records_lost = 0;        // sum over its rows in the file
};

// Makes the content of a file: row groups, then the tables.
class StepWriter {
 public:
  // `start`: what the file begins with.
  explicit StepWriter(std::string start) { written_.content = std::move(start); }
  // Jobs come by (id, attempt), rows of a job by (step, rank), each once.
  void begin_job(const JobInFile& job);
  // false: the row group is full, and the row was not taken; write_group() first.
  bool add(const RankSeen& rank, const StepSummary& summary);
  void write_group();
  // No more should be added than what belongs together.
  bool is_full() const;
  size_t rows() const { return rows_; }

  struct Written {
    std::string content;
    columns::SectionPlace tables;
    std::vector<JobInFile> jobs;
    std::vector<GroupMeta> groups;
  };
  Written finish();

 private:
  struct Usual {  // shapes of a rank's last row
    uint32_t comms = 0;
    uint32_t flows = 0;
    uint32_t scalars = 0;
  };
  uint32_t rank_number(const RankSeen& rank);
  void note_progress(RankSeen& seen, const RankSeen& rank, const StepSummary& summary);
  void put_row(uint32_t rank, const StepSummary& summary);
  void put_cells(const StepSummary& summary);  // communicators, flows and scalars

  StepTables tables_;
  std::vector<Usual> usual_;                               // by number of the rank
  std::unordered_map<Rank, uint32_t> rank_numbers_;        // of the job at hand
  std::unordered_map<std::string, uint32_t> comm_shapes_;  // by content
  std::unordered_map<std::string, uint32_t> flow_shapes_;
  std::unordered_map<std::string, uint32_t> scalar_shapes_;
  StepColumns open_;  // the row group at hand
  std::vector<GroupPart> open_parts_;
  Written written_;
  size_t rows_ = 0;
};

}  // namespace lockstep::steps
