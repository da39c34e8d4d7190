// A file of step row groups (docs/formats/step-blocks.md): written once, whole, and never changed.
//
// write() leaves the whole file under its name, synced, or nothing. open() reads the footer alone, which is
// checksummed; tables and row groups are checked when they are read.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Immutable but for its marks (file_marks.h): Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/columns/sealed_file.h"
#include "store/sealed/file_info.h"
#include "store/sealed/file_marks.h"
#include "store/steps/step_columns.h"

namespace lockstep::steps {

// What is in a file, besides its rows.
struct StepFileInfo : sealed::FileInfo {
  uint64_t order = 0;  // of two files with the same row, the one with the higher order has the newer version
  // Every row of records up to this one is in here or in files before; 0: nothing is said. And the latest time that any
  // record had been received by then.
  uint64_t through_sequence = 0;
  int64_t through_unix_ns = 0;

  std::string name() const { return sealed::file_name("steps", *this); }
  static std::optional<StepFileInfo> from_name(std::string_view name);
};

// Where a job's rows are in a file.
struct PartPlace {
  uint32_t group = 0;
  uint32_t part = 0;
  uint32_t first_row = 0;
};

class StepFile : public sealed::FileMarks {
 public:
  static StepWriter start();
  static Result<std::shared_ptr<const StepFile>> write(const std::string& folder, const StepFileInfo& info,
                                                       StepWriter::Written written);
  static Result<std::shared_ptr<const StepFile>> open(const std::string& folder, const StepFileInfo& from_name);
  // The same from bytes, for tests and the fuzzer.
  static Result<std::shared_ptr<const StepFile>> from_bytes(std::string content);

  const StepFileInfo& info() const { return info_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t rows() const { return rows_of(groups_); }
  uint64_t readable_rows() const { return readable_rows_of(groups_); }
  const std::vector<JobInFile>& jobs() const { return jobs_; }  // by (id, attempt)
  // nullopt: it has none of that attempt.
  std::optional<size_t> find_job(std::string_view job_id, int64_t attempt) const;
  const std::vector<PartPlace>& parts_of(size_t job) const { return parts_of_job_[job]; }  // in order of their steps
  size_t groups() const { return groups_.size(); }
  const GroupMeta& group(size_t index) const { return groups_[index]; }

  Result<std::shared_ptr<const StepTables>> read_tables() const;
  Result<std::shared_ptr<const StepColumns>> read_group(size_t index, std::shared_ptr<const StepTables> tables) const;

 private:
  StepFile() = default;
  static Result<std::shared_ptr<const StepFile>> with_footer(std::shared_ptr<StepFile> file, uint64_t size,
                                                             const columns::SectionSource& source);
  bool index_parts();
  Result<std::string> read(const columns::SectionPlace& place) const;

  StepFileInfo info_;
  std::string path_;
  std::string content_;  // of from_bytes()
  uint64_t bytes_ = 0;
  columns::SectionPlace tables_;
  std::vector<JobInFile> jobs_;
  std::vector<GroupMeta> groups_;
  std::vector<std::vector<PartPlace>> parts_of_job_;
};

}  // namespace lockstep::steps
