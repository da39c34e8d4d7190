// Reads a flight recorder file of this or any other process, alive or dead. Never trusts the file: every offset, index,
// length and count is checked; a record that was overwritten or torn while being read is counted and left out.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "recorder/records.h"

namespace lockstep {

class RecorderReader {
 public:
  // Fails with one line for a file that is not a recorder, is of an unknown version, is too short or contradicts
  // itself.
  // allow_short: for saved files; one that was cut is taken as long as its table of operations in flight is whole, and
  // the records that are not there count as torn.
  static Result<std::unique_ptr<RecorderReader>> open(const std::string& path, bool allow_short = false);
  // The same over a file that is open for reading already; `what` names it in errors.
  static Result<std::unique_ptr<RecorderReader>> from(UniqueFd file, const std::string& what);
  // The same over bytes in memory (tests, fuzzing, saved files). The bytes must outlive the reader.
  static Result<std::unique_ptr<RecorderReader>> over(const void* bytes, size_t size);
  virtual ~RecorderReader() = default;

  virtual RecorderHeader header() const = 0;

  // The file that is read; -1: bytes in memory. For whoever needs the very same file for something else.
  virtual int fd() const = 0;

  // Another process still has the file open for writing, wherever it runs: its lock is held. False where that cannot be
  // told; the pid in the header then has to do.
  virtual bool held() const = 0;

  struct Drained {
    uint64_t records = 0;      // given to the callback
    uint64_t overwritten = 0;  // lost before they were read: a gap
    uint64_t torn = 0;         // overwritten while being read, or never finished (writer died in the middle)
    double fullest = 0;        // of the lanes: what was new in it, as a share of its ring
    bool more = false;         // records_max was reached: the next drain goes on from there
  };
  // Gives every record that is new since the last drain, lane by lane, each lane in its order. Bounded: at most one
  // ring's worth per lane and call, and records_max in all, read or lost while being read.
  virtual Drained drain(const std::function<void(uint32_t lane, const Record& record)>& sink,
                        uint64_t records_max = UINT64_MAX) = 0;

  // Thread id (as its process numbers it) of each lane's producer; 0: the lane is free.
  virtual std::vector<uint32_t> producers() const = 0;

  // The operations-in-flight table as it is now.
  virtual std::vector<InFlightComm> in_flight() const = 0;

  virtual RecorderCost cost() const = 0;

  // Monotonic time (of the writer) of the newest callback on any lane; 0: none yet. Cheap: the agent asks often.
  virtual uint64_t last_activity_ns() const = 0;
  // Total records ever written on all lanes; moves when the process makes callbacks.
  virtual uint64_t written_total() const = 0;
};

// How the process that writes a recorder is doing; nullopt: it is gone. Its pid means nothing in another container:
// there its lock tells that it lives, and no more is known of it.
std::optional<ProcessState> writer_state(const RecorderReader& reader, const RecorderHeader& header);

// Folder in which processes of this user make their recorders: $LOCKSTEP_RECORDER_DIR, else /dev/shm/lockstep-<uid>.
std::string recorder_directory();
inline constexpr const char* kRecorderSuffix = ".lsfr";  // <pid>-<start ticks>.lsfr

}  // namespace lockstep
