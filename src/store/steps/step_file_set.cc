// The files of ColumnarStepStore: what it learns from those found at the start, and how small ones become one.
#include <algorithm>

#include "model/attempt.h"
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

Result<sealed::FilePointer> ColumnarStepStore::open_file(std::string_view name) const {
  sealed::FilePointer file = LOCKSTEP_TRY(StepFile::open(folder(), *StepFileInfo::from_name(name)));
  return file;
}

void ColumnarStepStore::adopt(sealed::Files& files) {
  std::vector<std::shared_ptr<const StepFile>> found;
  for (const sealed::FilePointer& file : files) found.push_back(std::static_pointer_cast<const StepFile>(file));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a->info().order, a->info().number) < std::pair(b->info().order, b->info().number);
  });
  files.clear();
  std::map<std::string, std::pair<int64_t, size_t>> known;
  for (size_t i = found.size(); i-- > 0;) {  // newest first: it knows best who the ranks are
    const StepFile& file = *found[i];
    if (!restore_jobs(file, known)) {
      refuse(file.info(), file.path() + ": its tables cannot be read");
      continue;
    }
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
    files.push_back(found[i]);
  }
  std::reverse(files.begin(), files.end());
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

Result<sealed::FileStore::Joined> ColumnarStepStore::join(const sealed::Files& small, uint64_t number) {
  StepFileInfo info;
  info.number = number;
  std::map<std::pair<std::string, int64_t>, JobInFile> jobs;
  for (const sealed::FilePointer& pointer : small) {
    const StepFile& file = static_cast<const StepFile&>(*pointer);
    const StepFileInfo& old = file.info();
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
    for (const JobInFile& job : file.jobs()) {
      JobInFile& joined = jobs.try_emplace({job.job_id, job.attempt}, job).first->second;
      joined.world_size = std::max(joined.world_size, job.world_size);
      joined.first_seen_unix_ns = std::min(joined.first_seen_unix_ns, job.first_seen_unix_ns);
      joined.last_seen_unix_ns = std::max(joined.last_seen_unix_ns, job.last_seen_unix_ns);
    }
  }
  StepWriter writer = StepFile::start();
  StepSummary row;
  Joined joined;
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
    joined.twice += merge.twice();
  }
  joined.file = LOCKSTEP_TRY(StepFile::write(folder(), info, writer.finish()));
  return joined;
}

}  // namespace lockstep
