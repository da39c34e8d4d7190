#include "store/steps/step_file.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"

namespace lockstep::steps {

using columns::ByteReader;
using columns::put_bytes;
using columns::put_fixed;
using columns::put_signed;
using columns::put_varint;
using columns::SectionPlace;

namespace {

constexpr columns::SealedFormat kFormat = columns::sealed_format(formats::kStepFile, "LSTE");
constexpr size_t kGroupsMax = 65'536;
constexpr size_t kJobsMax = 1u << 20;

void put_place(std::string& out, const SectionPlace& place) {
  put_varint(out, place.offset);
  put_varint(out, place.bytes);
  put_fixed(out, place.crc);
}

SectionPlace take_place(ByteReader& in) {
  SectionPlace place;
  place.offset = in.varint();
  const uint64_t bytes = in.varint();
  place.crc = in.fixed<uint32_t>();
  if (bytes > UINT32_MAX) in.fail();
  place.bytes = static_cast<uint32_t>(bytes);
  return place;
}

std::string encode_footer(const StepFileInfo& info, const StepWriter::Written& written) {
  std::string out;
  put_varint(out, info.number);
  put_varint(out, info.order);
  put_varint(out, info.first_sequence);
  put_varint(out, info.last_sequence);
  put_varint(out, info.through_sequence);
  put_signed(out, info.through_unix_ns);
  put_signed(out, info.received_unix_ns.least);
  put_signed(out, info.received_unix_ns.most);
  put_varint(out, info.replaces.size());
  for (uint64_t number : info.replaces) put_varint(out, number);
  put_place(out, written.tables);
  put_varint(out, written.jobs.size());
  for (const JobInFile& job : written.jobs) {
    put_bytes(out, job.job_id);
    put_signed(out, job.attempt);
    put_signed(out, job.world_size);
    put_signed(out, job.first_seen_unix_ns);
    put_signed(out, job.last_seen_unix_ns);
    put_signed(out, job.last_step.value());
    put_varint(out, job.ranks);
    put_signed(out, job.records_lost);
  }
  put_varint(out, written.groups.size());
  for (const GroupMeta& group : written.groups) {
    put_varint(out, group.rows);
    put_place(out, group.place);
    put_varint(out, group.parts.size());
    for (const GroupPart& part : group.parts) {
      put_varint(out, part.job);
      put_varint(out, part.rows);
      put_varint(out, part.runs.size());
      for (const StepRun& run : part.runs) {
        put_signed(out, run.first.value());
        put_signed(out, run.last.value());
      }
    }
  }
  return out;
}

void take_job(ByteReader& in, JobInFile& job) {
  job.job_id = in.bytes();
  job.attempt = in.signed_varint();
  const int64_t world_size = in.signed_varint();
  if (world_size < INT32_MIN || world_size > INT32_MAX) in.fail();
  job.world_size = static_cast<int32_t>(world_size);
  job.first_seen_unix_ns = in.signed_varint();
  job.last_seen_unix_ns = in.signed_varint();
  job.last_step = StepNumber{in.signed_varint()};
  const uint64_t ranks = in.varint();
  if (ranks > UINT32_MAX) in.fail();
  job.ranks = static_cast<uint32_t>(ranks);
  job.records_lost = in.signed_varint();
}

void take_group(ByteReader& in, size_t jobs, GroupMeta& group) {
  const uint64_t rows = in.varint();
  if (rows == 0 || rows > kGroupRows) in.fail();
  group.rows = static_cast<uint32_t>(rows);
  group.place = take_place(in);
  group.parts.resize(in.count(5));
  uint64_t sum = 0;
  for (GroupPart& part : group.parts) {
    const uint64_t job = in.varint();
    const uint64_t part_rows = in.varint();
    if (job >= jobs || part_rows == 0 || part_rows > rows) in.fail();
    part.job = static_cast<uint32_t>(job);
    part.rows = static_cast<uint32_t>(part_rows);
    sum += part_rows;
    part.runs.resize(in.count(2));
    if (part.runs.empty() || part.runs.size() > kRunsMax) in.fail();
    for (size_t i = 0; i < part.runs.size() && in.ok(); ++i) {
      part.runs[i].first = StepNumber{in.signed_varint()};
      part.runs[i].last = StepNumber{in.signed_varint()};
      if (part.runs[i].last < part.runs[i].first || (i > 0 && part.runs[i].first <= part.runs[i - 1].last)) in.fail();
    }
    if (!in.ok()) return;
  }
  if (sum != rows) in.fail();
}

}  // namespace

std::optional<StepFileInfo> StepFileInfo::from_name(std::string_view name) {
  StepFileInfo info;
  if (!sealed::parse_file_name("steps", name, info)) return std::nullopt;
  return info;
}

StepWriter StepFile::start() {
  return StepWriter(columns::start_content(kFormat));
}

Result<std::shared_ptr<const StepFile>> StepFile::write(const std::string& folder, const StepFileInfo& info,
                                                        StepWriter::Written written) {
  const std::string footer = encode_footer(info, written);
  uint64_t size = LOCKSTEP_TRY(columns::write_sealed(kFormat, folder, info.name(), std::move(written.content), footer));
  std::shared_ptr<StepFile> file(new StepFile(folder, info));
  file->tables_ = written.tables;
  file->jobs_ = std::move(written.jobs);
  file->groups_ = std::move(written.groups);
  if (!file->index_parts()) return file->unreadable("jobs out of order");
  file->has(size, file->groups_);
  return std::shared_ptr<const StepFile>(std::move(file));
}

Result<std::shared_ptr<const StepFile>> StepFile::open(const std::string& folder, const StepFileInfo& from_name) {
  return read(std::shared_ptr<StepFile>(new StepFile(folder, from_name)));
}

Result<std::shared_ptr<const StepFile>> StepFile::from_bytes(std::string content) {
  return read(std::shared_ptr<StepFile>(new StepFile(std::move(content))));
}

Result<std::shared_ptr<const StepFile>> StepFile::read(std::shared_ptr<StepFile> file) {
  const std::string plain = LOCKSTEP_TRY(file->read_footer(kFormat));
  ByteReader in(plain);
  StepFileInfo& info = file->info_;
  info.number = in.varint();
  info.order = in.varint();
  info.first_sequence = in.varint();
  info.last_sequence = in.varint();
  info.through_sequence = in.varint();
  info.through_unix_ns = in.signed_varint();
  info.received_unix_ns.least = in.signed_varint();
  info.received_unix_ns.most = in.signed_varint();
  info.replaces.resize(in.count());
  for (uint64_t& number : info.replaces) number = in.varint();
  file->tables_ = take_place(in);
  const uint64_t jobs = in.varint();
  if (jobs > kJobsMax) in.fail();
  for (uint64_t i = 0; i < jobs && in.ok(); ++i) take_job(in, file->jobs_.emplace_back());
  const uint64_t groups = in.varint();
  if (groups > kGroupsMax) in.fail();
  for (uint64_t i = 0; i < groups && in.ok(); ++i) take_group(in, file->jobs_.size(), file->groups_.emplace_back());
  if (!in.ok() || !in.at_end() || !file->index_parts()) return file->unreadable("its footer does not make sense");
  file->has(file->bytes(), file->groups_);
  return std::shared_ptr<const StepFile>(std::move(file));
}

bool StepFile::index_parts() {
  for (size_t i = 1; i < jobs_.size(); ++i) {
    if (std::pair(std::string_view(jobs_[i - 1].job_id), jobs_[i - 1].attempt) >=
        std::pair(std::string_view(jobs_[i].job_id), jobs_[i].attempt))
      return false;
  }
  parts_of_job_.resize(jobs_.size());
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    uint32_t row = 0;
    for (uint32_t part = 0; part < groups_[group].parts.size(); ++part) {
      parts_of_job_[groups_[group].parts[part].job].push_back({group, part, row});
      row += groups_[group].parts[part].rows;
    }
  }
  return true;
}

std::optional<size_t> StepFile::find_job(std::string_view job_id, int64_t attempt) const {
  auto found = std::lower_bound(jobs_.begin(), jobs_.end(), std::pair(job_id, attempt),
                                [](const JobInFile& job, const std::pair<std::string_view, int64_t>& wanted) {
                                  return std::pair(std::string_view(job.job_id), job.attempt) < wanted;
                                });
  if (found == jobs_.end() || found->job_id != job_id || found->attempt != attempt) return std::nullopt;
  return static_cast<size_t>(found - jobs_.begin());
}

Result<std::string> StepFile::read_section(const SectionPlace& place) const {
  Result<std::string> bytes = source()->read(place);
  if (bytes.ok() && crc32c(*bytes) != place.crc) return Error{"it has a wrong checksum"};
  return bytes;
}

Result<std::shared_ptr<const StepTables>> StepFile::read_tables() const {
  Result<std::string> bytes = read_section(tables_);
  if (!bytes.ok()) return Error{"tables: " + bytes.error()};
  return StepTables::decode(*bytes);
}

Result<std::shared_ptr<const StepColumns>> StepFile::read_group(size_t index,
                                                                std::shared_ptr<const StepTables> tables) const {
  const GroupMeta& meta = groups_[index];
  std::string bytes = LOCKSTEP_TRY(read_section(meta.place));
  std::shared_ptr<const StepColumns> group = LOCKSTEP_TRY(StepColumns::decode(bytes, meta.rows, std::move(tables)));
  // Whoever merges rows relies on their order.
  size_t row = 0;
  for (const GroupPart& part : meta.parts) {
    const JobInFile& job = jobs_[part.job];
    for (uint32_t i = 0; i < part.rows; ++i, ++row) {
      const Identity& identity = group->identity(row);
      const StepNumber step = group->step(row);
      if (identity.attempt != job.attempt || identity.job_id != job.job_id || step < part.first() || step > part.last())
        return Error{"a row is not of the job or the steps that the footer says"};
      if (i > 0 && std::pair(group->step(row - 1), group->identity(row - 1).rank) >= std::pair(step, identity.rank))
        return Error{"its rows are out of order"};
    }
  }
  return group;
}

}  // namespace lockstep::steps
