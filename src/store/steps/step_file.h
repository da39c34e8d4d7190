// A file of step row groups (docs/formats/step-blocks.md): written once, whole, and never changed.
//
// write() leaves the whole file under its name, synced, or nothing. open() reads the footer alone, which is
// checksummed; tables and row groups are checked when they are read.
// On error: a file that is torn, foreign or of another version is one clear line.
// Thread rule: Immutable but for its marks (sealed/file.h): Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "store/columns/sealed_file.h"
#include "store/sealed/file.h"
#include "store/sealed/file_info.h"
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

class StepFile final : public sealed::File {
 public:
  static StepWriter start();
  static Result<std::shared_ptr<const StepFile>> write(const std::string& folder, const StepFileInfo& info,
                                                       StepWriter::Written written);
  static Result<std::shared_ptr<const StepFile>> open(const std::string& folder, const StepFileInfo& from_name);
  // The same from bytes, for tests and the fuzzer.
  static Result<std::shared_ptr<const StepFile>> from_bytes(std::string content);

  const StepFileInfo& info() const override { return info_; }
  const std::vector<JobInFile>& jobs() const { return jobs_; }  // by (id, attempt)
  // nullopt: it has none of that attempt.
  std::optional<size_t> find_job(std::string_view job_id, int64_t attempt) const;
  const std::vector<PartPlace>& parts_of(size_t job) const { return parts_of_job_[job]; }  // in order of their steps
  const GroupMeta& group(size_t index) const { return groups_[index]; }

  Result<std::shared_ptr<const StepTables>> read_tables() const;
  Result<std::shared_ptr<const StepColumns>> read_group(size_t index, std::shared_ptr<const StepTables> tables) const;

 private:
  explicit StepFile(std::string content) : File(Bytes{std::move(content)}) {}
  StepFile(const std::string& folder, const StepFileInfo& info) : File(folder + "/" + info.name()), info_(info) {}
  static Result<std::shared_ptr<const StepFile>> read(std::shared_ptr<StepFile> file);
  bool index_parts();
  Result<std::string> read_section(const columns::SectionPlace& place) const;

  StepFileInfo info_;
  columns::SectionPlace tables_;
  std::vector<JobInFile> jobs_;
  std::vector<GroupMeta> groups_;
  std::vector<std::vector<PartPlace>> parts_of_job_;
};

}  // namespace lockstep::steps
