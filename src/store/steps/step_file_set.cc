// The files of ColumnarStepStore: found at the start, added by a seal, put together where they are small, dropped by
// age and limits. The list is copied, changed and exchanged in one go; questions work on the one they found.
#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "model/attempt.h"
#include "store/sealed/found_files.h"
#include "store/sealed/lifecycle.h"
#include "store/steps/columnar_step_store.h"

namespace lockstep {

using steps::GroupPart;
using steps::JobInFile;
using steps::PartPlace;
using steps::RankSeen;
using steps::StepFile;
using steps::StepFileInfo;
using steps::StepMerge;
using steps::StepTables;
using steps::StepWriter;

namespace {

constexpr int64_t kDayNs = 24ll * 3600 * 1'000'000'000;
// A file with less than this is small; so many in a row become one.
constexpr uint64_t kSmallFileRows = 65'536;
constexpr uint64_t kSmallFileBytes = 16u << 20;
constexpr size_t kSmallFilesMax = 8;

bool is_small(const StepFile& file) {
  return file.rows() < kSmallFileRows && file.bytes() < kSmallFileBytes;
}

}  // namespace

Result<void> ColumnarStepStore::load_files() {
  MutexLock one_at_a_time(seal_mutex_);
  MutexLock lock(mutex_);
  LOCKSTEP_TRY(make_directories(options_.folder));
  auto refuse = [&](const std::string& error, const StepFileInfo& info) LOCKSTEP_REQUIRES(mutex_) {
    LOCKSTEP_LOG_ERROR("steps", "%s; kept out", error.c_str());
    counters_.add("lockstep_step_files_refused_total");
    lost_.add(info);
  };
  sealed::Found<StepFileInfo> names =
      LOCKSTEP_TRY(sealed::find_files<StepFileInfo>({options_.folder, formats::kStepFile, "steps"}));
  next_number_ = names.next_number;
  Files found;
  for (const auto& [name, info] : names.files) {
    Result<File> file = StepFile::open(options_.folder, info);
    if (file.ok()) {
      found.push_back(*file);
    } else {
      refuse(file.error(), info);
    }
  }
  sealed::drop_replaced(found);
  std::sort(found.begin(), found.end(), [](const File& a, const File& b) {
    return std::pair(a->info().order, a->info().number) < std::pair(b->info().order, b->info().number);
  });

  auto files = std::make_shared<Files>();
  std::map<std::string, std::pair<int64_t, size_t>> known;
  for (size_t i = found.size(); i-- > 0;) {  // newest first: it knows best who the ranks are
    const StepFile& file = *found[i];
    if (!restore_jobs(file, known)) {
      refuse(file.path() + ": its tables cannot be read", file.info());
      continue;
    }
    const int64_t rows = static_cast<int64_t>(file.rows());
    received_.fetch_add(rows);  // so that received = held + ... also holds for what was received before this process
    held_.fetch_add(rows);
    const Through through{file.info().through_sequence, file.info().through_unix_ns};
    const bool says_more = std::none_of(through_.begin(), through_.end(), [&](const Through& other) {
      return other.sequence >= through.sequence && other.unix_ns >= through.unix_ns;
    });
    if (through.sequence > 0 && says_more) through_.push_back(through);
    for (size_t job = 0; job < file.jobs().size(); ++job) {
      if (!attempt_may_be(file.jobs()[job].attempt)) continue;  // taken before such were refused
      for (const PartPlace& place : file.parts_of(job)) {
        const GroupPart& part = file.group(place.group).parts[place.part];
        note_on_disk(file.jobs()[job].job_id, file.jobs()[job].attempt, part.first(), part.last());
      }
    }
    files->push_back(found[i]);
  }
  std::reverse(files->begin(), files->end());
  set_files(std::move(files));
  return {};
}

bool ColumnarStepStore::restore_jobs(const StepFile& file, std::map<std::string, std::pair<int64_t, size_t>>& known) {
  // Most files of a job name the same ranks: tables are read only where they may say something new.
  bool is_news = false;
  for (const JobInFile& job : file.jobs()) {
    auto found = known.find(job.job_id);
    is_news |= found == known.end() || job.attempt > found->second.first ||
               (job.attempt == found->second.first && (job.ranks > found->second.second || job.records_lost != 0));
  }
  std::map<std::pair<std::string_view, int64_t>, std::vector<RankInfo>> ranks;
  std::shared_ptr<const StepTables> tables;
  if (is_news) {
    Result<std::shared_ptr<const StepTables>> read = file.read_tables();
    if (!read.ok()) return false;
    tables = *read;
    for (const RankSeen& seen : tables->ranks) {
      RankInfo rank;
      rank.identity = seen.identity;
      rank.last_seen_unix_ns = seen.last_seen_unix_ns;
      rank.last_step = seen.last_step;
      rank.ended = seen.ended;
      rank.ended_cleanly = seen.ended_cleanly;
      rank.records_lost = seen.records_lost;
      ranks[{seen.identity.job_id, seen.identity.attempt}].push_back(std::move(rank));
    }
  }
  for (const JobInFile& job : file.jobs()) {
    if (!attempt_may_be(job.attempt)) continue;
    JobInfo info;
    info.job_id = job.job_id;
    info.attempt = job.attempt;
    info.world_size = job.world_size;
    info.first_seen_unix_ns = job.first_seen_unix_ns;
    info.last_seen_unix_ns = job.last_seen_unix_ns;
    info.last_step = job.last_step;
    if (auto found = ranks.find({job.job_id, job.attempt}); found != ranks.end()) info.ranks = std::move(found->second);
    memory_.restore(info);
    auto& [attempt, count] = known.try_emplace(job.job_id, job.attempt, 0).first->second;
    if (job.attempt > attempt) {
      attempt = job.attempt;
      count = 0;
    }
    if (job.attempt == attempt) count = std::max<size_t>(count, job.ranks);
  }
  return true;
}

std::shared_ptr<const ColumnarStepStore::Files> ColumnarStepStore::files() const {
  SharedLock lock(mutex_);
  return files_;
}

void ColumnarStepStore::set_files(std::shared_ptr<const Files> files) {
  uint64_t bytes = 0;
  for (const File& file : *files) bytes += file->bytes();
  counters_.set("lockstep_step_files", "", static_cast<int64_t>(files->size()));
  counters_.set("lockstep_step_file_bytes", "", static_cast<int64_t>(bytes));
  files_ = std::move(files);
}

void ColumnarStepStore::add_file(const File& file) {
  MutexLock lock(mutex_);
  auto files = std::make_shared<Files>(*files_);
  files->push_back(file);
  set_files(std::move(files));
}

void ColumnarStepStore::exchange(const Files& old, const File& joined) {
  {
    // In one go, so that no question sees a row twice or not at all. The new one takes the place of the last.
    MutexLock lock(mutex_);
    auto files = std::make_shared<Files>();
    for (const File& file : *files_) {
      if (std::find(old.begin(), old.end(), file) == old.end()) files->push_back(file);
      if (joined != nullptr && file == old.back()) files->push_back(joined);
    }
    set_files(std::move(files));
  }
  sealed::remove_files(old);
}

void ColumnarStepStore::drop_expired() {
  const int64_t now_ns = options_.witness != nullptr ? options_.witness->now().earliest_unix_ns : clock_.unix_ns();
  const std::shared_ptr<const Files> all = files();
  const int64_t cutoff_ns = sealed::cutoff_of(*all, pace_, now_ns, options_.days * kDayNs, clock_.monotonic_ns());
  const sealed::Limits limits{options_.bytes_max, options_.rows_max,
                              static_cast<uint64_t>(std::max<int64_t>(0, held_.load()))};
  const Files expired = sealed::expired_files(*all, cutoff_ns, limits,
                                              [&](const char* reason, uint64_t rows) { drop_count(reason, rows); });
  if (!expired.empty()) exchange(expired, nullptr);
}

// Neighbours in time that are small become one file, and what is twice in them once.
bool ColumnarStepStore::join_small_files() {
  const std::shared_ptr<const Files> all = files();
  const Files small = sealed::small_neighbours(*all, kSmallFilesMax, is_small);
  if (small.empty()) return false;

  StepFileInfo info;
  std::map<std::pair<std::string, int64_t>, JobInFile> jobs;
  for (const File& file : small) {
    const StepFileInfo& old = file->info();
    info.replaces.push_back(old.number);
    info.order = std::max(info.order, old.order);
    if (old.first_sequence != 0 && (info.first_sequence == 0 || old.first_sequence < info.first_sequence))
      info.first_sequence = old.first_sequence;
    info.last_sequence = std::max(info.last_sequence, old.last_sequence);
    if (old.through_unix_ns >= info.through_unix_ns) {  // of a newer log, where there are two
      info.through_sequence = old.through_sequence;
      info.through_unix_ns = old.through_unix_ns;
    }
    info.received_unix_ns.add(old.received_unix_ns);
    for (const JobInFile& job : file->jobs()) {
      JobInFile& joined = jobs.try_emplace({job.job_id, job.attempt}, job).first->second;
      joined.world_size = std::max(joined.world_size, job.world_size);
      joined.first_seen_unix_ns = std::min(joined.first_seen_unix_ns, job.first_seen_unix_ns);
      joined.last_seen_unix_ns = std::max(joined.last_seen_unix_ns, job.last_seen_unix_ns);
    }
  }
  StepWriter writer = StepFile::start();
  StepSummary row;
  size_t twice = 0;
  for (const auto& [key, job] : jobs) {
    writer.begin_job(job);
    StepMerge merge(parts_of(small, key.first, key.second, StepNumber{INT64_MIN}, kLastStep), cache_);
    std::optional<StepNumber> step = merge.next(StepNumber{INT64_MIN});
    while (step) {
      for (const StepMerge::Row& at : merge.rows_of(*step)) {
        at.columns->get(at.row, row);
        while (!writer.add(at.columns->seen(at.row), row)) writer.write_group();
      }
      if (*step == kLastStep) break;
      step = merge.next(*step + 1);
    }
    twice += merge.twice();
  }
  info.number = next_number_++;
  Result<File> file = StepFile::write(options_.folder, info, writer.finish());
  if (!file.ok()) {
    LOCKSTEP_LOG_WARN("steps", "small files not put together: %s", file.error().c_str());
    return false;
  }
  replaced_.fetch_add(static_cast<int64_t>(twice));
  held_.fetch_sub(static_cast<int64_t>(twice));
  exchange(small, *file);
  return true;
}

void ColumnarStepStore::maintain() {
  MutexLock one_at_a_time(seal_mutex_);
  drop_expired();
  while (join_small_files()) {
  }
}

Result<std::vector<HeldFile>> ColumnarStepStore::hold(const std::string& folder) {
  MutexLock one_at_a_time(seal_mutex_);
  return sealed::hold_files(*files(), folder);
}

void ColumnarStepStore::spoil(const StepFile& file, size_t group, const std::string& error) const {
  if (!file.spoil(group)) return;
  LOCKSTEP_LOG_ERROR("steps", "%s: row group %zu of %zu: %s; its %u rows are kept out", file.path().c_str(), group,
                     file.groups(), error.c_str(), file.group(group).rows);
  counters_.add("lockstep_step_row_groups_corrupt_total");
  drop_count("corrupt", file.group(group).rows);
}

}  // namespace lockstep
