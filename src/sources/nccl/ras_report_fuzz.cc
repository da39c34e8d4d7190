// Whatever is accepted keeps to the limits that the header promises.
#include <cstdlib>

#include "base/text.h"
#include "sources/nccl/ras_report.h"

namespace {

using namespace lockstep;

void check(bool holds) {
  if (!holds) std::abort();
}

void check_peer(const RasPeer& peer, const RasComm& comm) {
  check(peer.rank_in_comm >= 0 && peer.rank_in_comm < (comm.size > 0 ? comm.size : kRasCommSizeMax));
  check(peer.pid >= -1 && peer.host.size() <= kRasStringMax && !has_control_characters(peer.host));
}

void check_report(const Result<RasReport>& report) {
  if (!report) {
    check(!report.error().empty() && !has_control_characters(report.error()));
    return;
  }
  check(report->comms.size() <= kRasCommsMax && report->comms_count >= static_cast<int64_t>(report->comms.size()));
  size_t ranks_count = 0;
  for (const RasComm& comm : report->comms) {
    check(comm.size <= kRasCommSizeMax);
    ranks_count += comm.ranks.size() + comm.missing.size();
    for (const RasRank& rank : comm.ranks) check_peer(rank, comm);
    for (const RasMissingRank& rank : comm.missing) check_peer(rank, comm);
    for (const RasMismatch& mismatch : comm.mismatches) {
      for (size_t i = 1; i < mismatch.groups.size(); ++i)
        check(mismatch.groups[i - 1].launched <= mismatch.groups[i].launched);
    }
  }
  check(ranks_count <= kRasRanksMax);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  check_report(parse_ras_json(text));
  check_report(parse_ras_text(text));
  // Past the check of the first line, where nearly every mutation would end.
  check_report(parse_ras_text("NCCL version 2.27.7\n" + std::string(text) + "\nWarnings\n"));
  return 0;
}
