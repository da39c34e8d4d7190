// Any bytes may pretend to be a recorder file. Half of the runs take the input as the file; the others take a small
// file with a sound header and let the input change bytes in it, so that the search gets past the header.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "recorder/layout.h"
#include "recorder/reader.h"
#include "testing/damaged_file.h"

namespace {

std::string small_file() {
  const lockstep::layout::Geometry geometry{2, 16, 2};
  lockstep::layout::FileHeader header{};
  header.magic = lockstep::layout::kMagic;
  header.layout_version = lockstep::layout::kLayoutVersion;
  header.header_bytes = sizeof header;
  header.file_bytes = geometry.file_bytes();
  header.lanes = geometry.lanes;
  header.lane_records = geometry.lane_records;
  header.comms = geometry.comms;
  header.comm_offset = geometry.comm_offset();
  header.lane_header_offset = geometry.lane_header_offset();
  header.record_offset = geometry.record_offset();
  header.comm_rows_used = 2;
  std::string bytes(geometry.file_bytes(), '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  const uint64_t head = 20;
  std::memcpy(bytes.data() + geometry.lane_header_offset(), &head, sizeof head);
  for (uint32_t number = 4; number < 20; ++number) {
    const lockstep::RecordHead record{.type = lockstep::RecordType::kColl, .reserved = number + 1};
    std::memcpy(bytes.data() + geometry.record_offset() + (number % 16) * 64, &record, sizeof record);
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string sound = small_file();
  const std::string bytes = lockstep::testing::damaged_file(data, size, sound);
  auto reader = lockstep::RecorderReader::over(bytes.data(), bytes.size());
  if (!reader.ok()) return 0;
  uint64_t given = 0;
  for (int i = 0; i < 2; ++i) {
    const auto drained = (*reader)->drain([&](uint32_t, const lockstep::Record& record) {
      if (record.head.type == lockstep::RecordType::kInvalid || record.head.reserved != 0) std::abort();
      if (record.head.type == lockstep::RecordType::kText && record.text.bytes > sizeof record.text.text) std::abort();
      ++given;
    });
    if (drained.records > uint64_t{lockstep::layout::kLanesMax} * lockstep::layout::kLaneRecordsMax) std::abort();
  }
  for (const auto& comm : (*reader)->in_flight()) {
    if (comm.recent.size() > lockstep::layout::kOpEntries) std::abort();
    if (comm.collectives_completed > comm.collectives_enqueued) std::abort();
  }
  (*reader)->header();
  (*reader)->last_activity_ns();
  (*reader)->written_total();
  return 0;
}
