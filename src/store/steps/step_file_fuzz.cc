// Any bytes as a step file: an error of one line or row groups that can be read, merged and given out, never a crash.
//
// Random bytes never pass the checksums, so the input is also taken as the parts of a file whose checksums are right,
// and as changes to parts that are whole.
#include <cstdlib>
#include <cstring>

#include "store/steps/step_file.h"
#include "store/steps/step_merge.h"

namespace {

using namespace lockstep;
using namespace lockstep::steps;

void expect_one_line(const std::string& error) {
  if (error.empty() || error.find('\n') != std::string::npos) std::abort();
}

void read_all(const StepTables& tables, const StepColumns& columns) {
  StepSummary summary;
  size_t seen = 0;
  for (size_t row = 0; row < columns.rows(); ++row) {
    columns.get(row, summary);
    seen += columns.identity(row).host.size() + summary.comms.size();
  }
  if (seen > (size_t{1} << 40) || tables.memory_bytes() == 0) std::abort();
}

void read_parts(std::string_view table_bytes, std::string_view group_bytes, size_t rows) {
  Result<std::shared_ptr<const StepTables>> tables = StepTables::decode(table_bytes);
  if (!tables.ok()) return expect_one_line(tables.error());
  Result<std::shared_ptr<const StepColumns>> columns = StepColumns::decode(group_bytes, rows, *tables);
  if (!columns.ok()) return expect_one_line(columns.error());
  read_all(**tables, **columns);
}

void read_file(const std::shared_ptr<const StepFile>& file) {
  std::vector<PartRef> parts;
  for (size_t job = 0; job < file->jobs().size(); ++job) {
    for (const PartPlace& place : file->parts_of(job)) parts.push_back({file, place});
  }
  GroupCache cache(1 << 20, [](const StepFile& corrupt, size_t group, const std::string& error) {
    corrupt.spoil(group);
    expect_one_line(error);
  });
  StepMerge merge(std::move(parts), cache);
  StepSummary summary;
  std::optional<StepNumber> step = merge.next(StepNumber{INT64_MIN});
  for (int i = 0; step && i < 100'000; ++i) {
    for (const StepMerge::Row& row : merge.rows_of(*step)) row.columns->get(row.row, summary);
    if (*step == kLastStep) break;
    step = merge.next(*step + 1);
  }
}

struct Whole {
  std::string tables;
  std::string group;
  size_t rows = 0;
};

Whole some_steps() {
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "j", .world_size = 3});
  for (StepNumber step = 0_step; step < 20_step; ++step) {
    for (Rank rank : all_ranks(3)) {
      RankSeen seen;
      seen.identity = {.job_id = "j",
                       .attempt = 0,
                       .rank = rank,
                       .world_size = 3,
                       .local_rank = rank.value(),
                       .host = "h",
                       .gpu_uuid = "g"};
      StepSummary summary;
      summary.step = step;
      summary.start_unix_ns = 1000 + step.value() * 100 + rank.value() * 7;
      summary.duration_ns = 90 + step.value() * rank.value() % 11;
      summary.self_ns = 40 + rank.value();
      summary.scalars = {{"loss", 0.5 * static_cast<double>(step.value())}};
      summary.comms.resize(index_of(rank) + 1);
      for (CommStep& comm : summary.comms) comm.gpu_ns = step.value() * 31 % 17;
      summary.flows.resize(step % 3 == 0 ? 2 : 0);
      writer.add(seen, summary);
    }
  }
  StepWriter::Written written = writer.finish();
  auto part = [&](const columns::SectionPlace& place) { return written.content.substr(place.offset, place.bytes); };
  return {part(written.tables), part(written.groups.at(0).place), written.groups.at(0).rows};
}

// Pairs: where, what; nothing where the byte is zero, from there on.
std::string changed(std::string bytes, const uint8_t* data, size_t size) {
  for (size_t i = 0; i + 2 < size && !bytes.empty(); i += 3) {
    const size_t at = (data[i] * 256u + data[i + 1]) % bytes.size();
    if (data[i + 2] == 0) {
      bytes.resize(at);
    } else {
      bytes[at] = static_cast<char>(data[i + 2]);
    }
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Whole whole = some_steps();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Result<std::shared_ptr<const StepFile>> file = StepFile::from_bytes(std::string(bytes));
  if (file.ok()) {
    read_file(*file);
  } else {
    expect_one_line(file.error());
  }
  read_parts(bytes, whole.group, whole.rows);
  read_parts(whole.tables, bytes, size % 100);
  read_parts(changed(whole.tables, data, size), whole.group, whole.rows);
  read_parts(whole.tables, changed(whole.group, data, size), whole.rows);
  return 0;
}
