// The files of the ledger: read back at the start, and a new snapshot now and then.
#include <algorithm>

#include "base/disk.h"
#include "base/files.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/text.h"
#include "model/ids.h"
#include "sle/ledger.h"
#include "sle/ledger_records.h"

namespace lockstep::sle {
namespace {

constexpr int64_t kMinuteMost = 100'000'000;  // the year 2160

std::vector<metrics::WalFileName> files_in(const std::vector<std::string>& names) {
  std::vector<metrics::WalFileName> files;
  for (const std::string& name : names) {
    metrics::WalFileName file;
    if (metrics::WalFileName::parse(name, file) && file.shard == 0) files.push_back(file);
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::pair(a.generation, a.segment) < std::pair(b.generation, b.segment);
  });
  return files;
}

// A number of at most `most`; more is damage.
int64_t bounded(columns::ByteReader& in, int64_t most) {
  const uint64_t value = in.varint();
  if (value > static_cast<uint64_t>(most)) {
    in.fail();
    return 0;
  }
  return static_cast<int64_t>(value);
}

// The next row of a table, or one that is there.
template <typename Table>
size_t row_in(columns::ByteReader& in, const Table& table, bool may_be_next) {
  return static_cast<size_t>(bounded(in, static_cast<int64_t>(table.size()) - (may_be_next ? 0 : 1)));
}

bool read_baselines(columns::ByteReader& in, Baselines& to) {
  to = {};
  const size_t known = in.count(7);
  for (size_t i = 0; i < known && in.ok(); ++i) {
    const auto sle = static_cast<size_t>(in.fixed<uint8_t>());
    if (sle >= kSles) return false;
    to[sle].value = in.fixed<float>();
    to[sle].learned = static_cast<uint16_t>(bounded(in, UINT16_MAX));
    to[sle].bad = static_cast<uint16_t>(bounded(in, UINT16_MAX));
  }
  return in.ok();
}

}  // namespace

Result<void> Ledger::read_back() {
  LOCKSTEP_TRY(make_directories(options_.folder));
  const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(options_.folder));
  const std::vector<metrics::WalFileName> files = files_in(names);
  uint64_t newest_snapshot = 0;
  for (const metrics::WalFileName& file : files)
    if (file.segment == 0) newest_snapshot = std::max(newest_snapshot, file.generation);
  // Before anything is read or written: what cannot be read would be replaced.
  for (const metrics::WalFileName& file : files)
    LOCKSTEP_TRY(formats::check_file(formats::kMetricLog, options_.folder + "/" + file.text()));
  for (const metrics::WalFileName& file : files) {
    {
      MutexLock lock(mutex_);
      generation_ = std::max(generation_, file.generation);
    }
    if (file.generation < newest_snapshot) continue;
    const std::string path = options_.folder + "/" + file.text();
    metrics::WalReadOutcome read =
        LOCKSTEP_TRY(metrics::read_wal_file(path, [this](std::string_view record) { return restore_record(record); }));
    if (foreign_version_ != 0) return formats::check_version(formats::kSleLedger, path, foreign_version_);
    if (read.torn && file.segment == 0) read.damage = "cut off";  // a snapshot appears whole or not at all
    if (read.torn && file.segment != 0)
      LOCKSTEP_LOG_WARN("sle", "%s: cut at byte %llu, where a crash ended it", path.c_str(),
                        static_cast<unsigned long long>(read.bytes_good));
    if (read.damage.empty()) continue;
    counters_.add("lockstep_sle_files_damaged_total");
    LOCKSTEP_LOG_ERROR("sle", "%s: %s; what follows in this file is lost", path.c_str(), read.damage.c_str());
  }
  MutexLock lock(mutex_);
  wal_ = std::make_unique<metrics::Wal>(options_.folder, 0, generation_, options_.log_bytes_max);
  return begin_snapshot();
}

Ledger::Numbering Ledger::used_rows() const {
  Numbering rows;
  rows.jobs.assign(jobs_.size(), Numbering::kGone);
  rows.owners.assign(owners_.size(), Numbering::kGone);
  rows.cells.assign(cells_.size(), Numbering::kGone);
  rows.placements.assign(placements_.size(), Numbering::kGone);
  for (size_t i = 0; i < jobs_.size(); ++i) {
    bool used = !jobs_[i]->recent.empty();
    for (const MinuteRuns& track : jobs_[i]->tracks) {
      used = used || !track.empty();
      for (const MinuteRun& run : track.runs()) rows.cells[run.value] = 0;
    }
    for (const MinuteRun& run : jobs_[i]->placements.runs()) rows.placements[run.value] = 0;
    if (used) rows.jobs[i] = 0;
  }
  rows.cells[0] = rows.placements[0] = rows.owners[kUnexplained] = 0;
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (rows.cells[i] == Numbering::kGone) continue;
    for (const RankRun& run : cells_[i])
      if (run.cell.is_degraded()) rows.owners[run.cell.owner()] = 0;
  }
  for (std::vector<uint32_t>* table : {&rows.jobs, &rows.owners, &rows.cells, &rows.placements}) {
    uint32_t next = 0;
    for (uint32_t& row : *table)
      if (row != Numbering::kGone) row = next++;
  }
  return rows;
}

size_t Ledger::weight_of(const Numbering& rows) const {
  size_t weight = 0;
  for (size_t i = 1; i < cells_.size(); ++i)
    if (rows.cells[i] != Numbering::kGone) weight += cells_[i].size();
  for (size_t i = 1; i < placements_.size(); ++i)
    if (rows.placements[i] != Numbering::kGone) weight += placements_[i]->gpus.size();
  return weight;
}

std::vector<std::string> Ledger::snapshot(const Numbering& rows) const {
  std::vector<std::string> out = {records::version()};
  for (size_t i = 1; i < owners_.size(); ++i)
    if (rows.owners[i] != Numbering::kGone) out.push_back(records::owner(rows.owners[i], owners_[i]));
  for (size_t i = 1; i < placements_.size(); ++i)
    if (rows.placements[i] != Numbering::kGone) out.push_back(records::placement(rows.placements[i], *placements_[i]));
  for (size_t i = 1; i < cells_.size(); ++i) {
    if (rows.cells[i] == Numbering::kGone) continue;
    out.push_back(records::cells(rows.cells[i], renumbered(cells_[i], rows.owners)));
  }
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const uint32_t row = rows.jobs[i];
    if (row == Numbering::kGone) continue;
    const Job& job = *jobs_[i];
    out.push_back(records::job(row, job.job_id));
    const auto put_runs = [&](uint8_t track, const MinuteRuns& runs, const std::vector<uint32_t>& table) {
      if (runs.empty()) return;
      MinuteRuns other = runs;
      other.renumber([&](uint32_t value) { return table[value]; });
      out.push_back(records::runs(row, track, other.runs()));
    };
    for (size_t t = 0; t < kSles; ++t) put_runs(static_cast<uint8_t>(t), job.tracks[t], rows.cells);
    put_runs(records::kPlacementTrack, job.placements, rows.placements);
    std::string recent(1, static_cast<char>(records::Kind::kRecent));
    columns::put_varint(recent, row);
    columns::put_varint(recent, job.recent.size());
    for (const Recent& one : job.recent) {
      columns::put_varint(recent, static_cast<uint64_t>(one.minute));
      columns::put_varint(recent, one.evidence);
    }
    records::put_baselines(recent, job.baselines);
    out.push_back(std::move(recent));
  }
  return out;
}

RankCells Ledger::renumbered(const RankCells& cells, const std::vector<uint32_t>& owners) {
  RankCells out;
  for (const RankRun& run : cells) {
    Cell cell = run.cell;
    if (cell.is_degraded()) cell = Cell::degraded(cell.owner() < owners.size() ? owners[cell.owner()] : kUnexplained);
    append(out, run.first, run.ranks, cell);
  }
  return out;
}

void Ledger::adopt(const Numbering& rows) {
  const size_t weight = weight_of(rows);
  const auto keep = [](auto& table, const std::vector<uint32_t>& numbers) {
    size_t kept = 0;
    for (size_t i = 0; i < table.size(); ++i) {
      if (numbers[i] == Numbering::kGone) continue;
      if (kept != i) table[kept] = std::move(table[i]);
      ++kept;
    }
    table.resize(kept);
  };
  keep(jobs_, rows.jobs);
  keep(owners_, rows.owners);
  keep(cells_, rows.cells);
  keep(placements_, rows.placements);
  weight_ = weight;
  job_rows_.clear();
  owner_rows_.clear();
  cells_rows_.clear();
  for (uint32_t i = 0; i < jobs_.size(); ++i) {
    Job& job = *jobs_[i];
    job.row = i;
    job_rows_.emplace(job.job_id, i);
    for (MinuteRuns& track : job.tracks) track.renumber([&](uint32_t value) { return rows.cells[value]; });
    job.placements.renumber([&](uint32_t value) { return rows.placements[value]; });
  }
  for (uint32_t i = 0; i < owners_.size(); ++i) owner_rows_.emplace(owners_[i].key, i);
  for (uint32_t i = 1; i < cells_.size(); ++i) {
    cells_[i] = renumbered(cells_[i], rows.owners);
    cells_rows_.emplace(hash_of(cells_[i]), i);
  }
  table_bytes_ = bytes_of_tables();
  settle_memory();
}

Result<void> Ledger::begin_snapshot() {
  const uint64_t next = generation_ + 1;
  Numbering rows = used_rows();
  while (weight_of(rows) > options_.runs_max && drop_oldest_day()) rows = used_rows();
  if (!wal_) {
    adopt(rows);
    return {};
  }
  const std::string path = options_.folder + "/" + metrics::WalFileName{0, next, 0}.text();
  if (const Result<void> written = metrics::write_wal_file(path, snapshot(rows)); !written.ok()) {
    // It may be there all the same, and a start would read it and nothing of the log that goes on.
    is_ahead_of_log_ = disk::exists(path) && (disk::unlink(path) != 0 || disk::sync_folder(options_.folder) != 0);
    return written;
  }
  is_ahead_of_log_ = false;
  adopt(rows);
  generation_ = next;
  logged_ = 0;
  wal_->begin_generation(next);
  wal_->restated(next);
  const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(options_.folder));
  for (const metrics::WalFileName& file : files_in(names))
    if (file.generation < next) disk::unlink(options_.folder + "/" + file.text());
  return {};
}

Result<std::vector<HeldFile>> Ledger::hold(const std::string& folder) {
  MutexLock lock(mutex_);
  std::vector<HeldFile> held;
  if (!wal_) return held;
  LOCKSTEP_TRY(begin_snapshot());
  const std::string name = metrics::WalFileName{0, generation_, 0}.text();
  HeldFile file = LOCKSTEP_TRY(hold_file(options_.folder + "/" + name, folder, name));
  held.push_back(std::move(file));
  return held;
}

bool Ledger::restore_record(std::string_view record) {
  MutexLock lock(mutex_);
  columns::ByteReader in(record);
  const auto kind = static_cast<records::Kind>(in.fixed<uint8_t>());
  bool understood = false;
  if (kind == records::Kind::kVersion) {
    const uint64_t version = in.varint();
    understood = version >= formats::kSleLedger.oldest && version <= formats::kSleLedger.version;
    if (!understood && in.ok()) foreign_version_ = static_cast<uint32_t>(version);
  } else if (kind == records::Kind::kJob) {
    understood = restore_job(in);
  } else if (kind == records::Kind::kOwner) {
    understood = restore_owner(in);
  } else if (kind == records::Kind::kPlacement) {
    understood = restore_placement(in);
  } else if (kind == records::Kind::kCells) {
    understood = restore_cells(in);
  } else if (kind == records::Kind::kMinute) {
    understood = restore_minute(in);
  } else if (kind == records::Kind::kRuns) {
    understood = restore_runs(in);
  } else if (kind == records::Kind::kRecent) {
    understood = restore_recent(in);
  }
  return understood && in.ok() && in.at_end();
}

bool Ledger::restore_job(columns::ByteReader& in) {
  const size_t row = row_in(in, jobs_, true);
  std::string job_id(in.bytes());
  if (!in.ok() || row != jobs_.size() || job_rows_.contains(job_id)) return false;
  jobs_.push_back(std::make_unique<Job>());
  jobs_.back()->job_id = job_id;
  jobs_.back()->row = static_cast<uint32_t>(row);
  job_rows_.emplace(std::move(job_id), static_cast<uint32_t>(row));
  return true;
}

bool Ledger::restore_owner(columns::ByteReader& in) {
  const size_t row = row_in(in, owners_, true);
  Owner owner;
  for (std::string* text : {&owner.key, &owner.classifier, &owner.sub, &owner.culprit, &owner.host, &owner.gpu_uuid,
                            &owner.verdict_id, &owner.job_id})
    *text = std::string(in.bytes());
  const auto kind = in.fixed<uint8_t>();
  owner.weight = in.fixed<float>();
  if (!in.at_end()) owner.place = std::string(in.bytes());  // version 1 has none
  if (!in.ok() || kind > static_cast<uint8_t>(CulpritKind::kSwitch) || row == kUnexplained) return false;
  owner.kind = static_cast<CulpritKind>(kind);
  const auto known = owner_rows_.find(owner.key);
  if (known != owner_rows_.end() && known->second != row) return false;
  if (row < owners_.size()) {
    if (owners_[row].key != owner.key) return false;
    owners_[row] = std::move(owner);
    return true;
  }
  owner_rows_.emplace(owner.key, static_cast<uint32_t>(row));
  owners_.push_back(std::move(owner));
  return true;
}

bool Ledger::restore_placement(columns::ByteReader& in) {
  const size_t row = row_in(in, placements_, true);
  auto placement = std::make_shared<Placement>();
  placement->gpu_model = std::string(in.bytes());
  int64_t end = 0;
  const size_t hosts = in.count(3);
  for (size_t i = 0; i < hosts && in.ok(); ++i) {
    Placement::HostRun run;
    run.first = Rank{static_cast<int32_t>(bounded(in, kRanksMost))};
    run.ranks = static_cast<int32_t>(bounded(in, kRanksMost));
    run.host = std::string(in.bytes());
    if (run.first.value() < end || run.ranks <= 0) return false;
    end = run.end().value();
    placement->hosts.push_back(std::move(run));
  }
  const size_t gpus = in.count(1);
  if (!in.ok() || row != placements_.size() || end > static_cast<int64_t>(gpus)) return false;
  for (size_t i = 0; i < gpus; ++i) placement->gpus.emplace_back(in.bytes());
  weight_ += gpus;
  placements_.push_back(std::move(placement));
  return in.ok();
}

bool Ledger::restore_cells(columns::ByteReader& in) {
  const size_t row = row_in(in, cells_, true);
  const size_t runs = in.count(3);
  RankCells cells;
  int64_t end = 0;
  for (size_t i = 0; i < runs && in.ok(); ++i) {
    const int64_t first = end + bounded(in, kRanksMost);
    const int64_t ranks = bounded(in, kRanksMost);
    const Cell cell = Cell::of_code(static_cast<uint32_t>(bounded(in, INT32_MAX)));
    end = first + ranks;
    const bool owned = !cell.is_degraded() || cell.owner() < owners_.size();
    if (!in.ok() || ranks == 0 || end > kRanksMost || cell == Cell() || !owned) return false;
    cells.push_back({Rank{static_cast<int32_t>(first)}, static_cast<int32_t>(ranks), cell});
  }
  if (!in.ok() || row != cells_.size() || cells.empty()) return false;
  cells_rows_.emplace(hash_of(cells), static_cast<uint32_t>(row));
  weight_ += cells.size();
  cells_.push_back(std::move(cells));
  return true;
}

bool Ledger::restore_minute(columns::ByteReader& in) {
  const size_t row = row_in(in, jobs_, false);
  const auto minute = static_cast<int32_t>(bounded(in, kMinuteMost));
  const uint64_t evidence = in.varint();
  const size_t placement = row_in(in, placements_, false);
  const size_t changes = in.count(2);
  if (!in.ok() || row >= jobs_.size()) return false;
  Job& job = *jobs_[row];
  for (size_t i = 0; i < changes; ++i) {
    const auto sle = static_cast<size_t>(in.fixed<uint8_t>());
    const size_t cells = row_in(in, cells_, false);
    if (!in.ok() || sle >= kSles) return false;
    set(job.tracks[sle], minute, static_cast<uint32_t>(cells));
  }
  set(job.placements, minute, static_cast<uint32_t>(placement));
  note_recent(job, minute, evidence);
  return read_baselines(in, job.baselines);
}

bool Ledger::restore_runs(columns::ByteReader& in) {
  const size_t row = row_in(in, jobs_, false);
  const auto track = in.fixed<uint8_t>();
  const size_t count = in.count(3);
  const bool placements = track == records::kPlacementTrack;
  if (!in.ok() || row >= jobs_.size() || (!placements && track >= kSles)) return false;
  MinuteRuns& runs = placements ? jobs_[row]->placements : jobs_[row]->tracks[track];
  const auto most = static_cast<int64_t>(placements ? placements_.size() : cells_.size()) - 1;
  int64_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t first = end + bounded(in, kMinuteMost);
    end = first + bounded(in, kMinuteMost);
    const int64_t value = bounded(in, most);
    if (!in.ok() || end > kMinuteMost) return false;
    const size_t before = runs.size();
    if (!runs.append({static_cast<int32_t>(first), static_cast<int32_t>(end), static_cast<uint32_t>(value)}))
      return false;
    runs_ += runs.size() - before;
  }
  return true;
}

bool Ledger::restore_recent(columns::ByteReader& in) {
  const size_t row = row_in(in, jobs_, false);
  const size_t count = in.count(2);
  if (!in.ok() || row >= jobs_.size() || count > static_cast<size_t>(kOpenMinutes)) return false;
  for (size_t i = 0; i < count && in.ok(); ++i) {
    const auto minute = static_cast<int32_t>(bounded(in, kMinuteMost));
    const uint64_t evidence = in.varint();
    if (in.ok()) note_recent(*jobs_[row], minute, evidence);
  }
  return in.ok() && read_baselines(in, jobs_[row]->baselines);
}

}  // namespace lockstep::sle
