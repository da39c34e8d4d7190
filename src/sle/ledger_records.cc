#include "sle/ledger_records.h"

#include "base/format_versions.h"

namespace lockstep::sle::records {

using columns::put_bytes;
using columns::put_fixed;
using columns::put_varint;

namespace {

std::string begin(Kind kind) {
  return std::string(1, static_cast<char>(kind));
}

}  // namespace

std::string version() {
  std::string out = begin(Kind::kVersion);
  put_varint(out, formats::kSleLedger.version);
  return out;
}

std::string job(uint32_t row, const std::string& job_id) {
  std::string out = begin(Kind::kJob);
  put_varint(out, row);
  put_bytes(out, job_id);
  return out;
}

std::string owner(uint32_t row, const Owner& owner) {
  std::string out = begin(Kind::kOwner);
  put_varint(out, row);
  for (const std::string* text : {&owner.key, &owner.classifier, &owner.sub, &owner.culprit, &owner.host,
                                  &owner.gpu_uuid, &owner.verdict_id, &owner.job_id})
    put_bytes(out, *text);
  out.push_back(static_cast<char>(owner.kind));
  put_fixed(out, owner.weight);
  put_bytes(out, owner.place);
  return out;
}

std::string placement(uint32_t row, const Placement& placement) {
  std::string out = begin(Kind::kPlacement);
  put_varint(out, row);
  put_bytes(out, placement.gpu_model);
  put_varint(out, placement.hosts.size());
  for (const Placement::HostRun& run : placement.hosts) {
    put_varint(out, static_cast<uint64_t>(run.first.value()));
    put_varint(out, static_cast<uint64_t>(run.ranks));
    put_bytes(out, run.host);
  }
  put_varint(out, placement.gpus.size());
  for (const std::string& gpu : placement.gpus) put_bytes(out, gpu);
  return out;
}

std::string cells(uint32_t row, const RankCells& cells) {
  std::string out = begin(Kind::kCells);
  put_varint(out, row);
  put_varint(out, cells.size());
  Rank end{0};
  for (const RankRun& run : cells) {
    put_varint(out, static_cast<uint64_t>(run.first - end));
    put_varint(out, static_cast<uint64_t>(run.ranks));
    put_varint(out, run.cell.code());
    end = run.end();
  }
  return out;
}

void put_baselines(std::string& out, const Baselines& baselines) {
  size_t known = 0;
  for (const Baseline& one : baselines) known += one.learned > 0 ? 1 : 0;
  put_varint(out, known);
  for (size_t i = 0; i < kSles; ++i) {
    if (baselines[i].learned == 0) continue;
    out.push_back(static_cast<char>(i));
    put_fixed(out, baselines[i].value);
    put_varint(out, baselines[i].learned);
    put_varint(out, baselines[i].bad);
  }
}

std::string minute(const Minute& minute, const Baselines& baselines) {
  std::string out = begin(Kind::kMinute);
  put_varint(out, minute.job);
  put_varint(out, static_cast<uint64_t>(minute.minute));
  put_varint(out, minute.evidence);
  put_varint(out, minute.placement);
  put_varint(out, minute.cells.size());
  for (const auto& [sle, row] : minute.cells) {
    out.push_back(static_cast<char>(sle));
    put_varint(out, row);
  }
  put_baselines(out, baselines);
  return out;
}

std::string runs(uint32_t job, uint8_t track, std::span<const MinuteRun> runs) {
  std::string out = begin(Kind::kRuns);
  put_varint(out, job);
  out.push_back(static_cast<char>(track));
  put_varint(out, runs.size());
  int32_t end = 0;
  for (const MinuteRun& run : runs) {
    put_varint(out, static_cast<uint64_t>(run.first - end));
    put_varint(out, static_cast<uint64_t>(run.end - run.first));
    put_varint(out, run.value);
    end = run.end;
  }
  return out;
}

}  // namespace lockstep::sle::records
