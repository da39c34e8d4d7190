// The XML that S3 answers with, read strictly: elements, text, the five names of entities and numbered characters. No
// document types, comments, sections of CDATA or instructions but the first.
//
// It is read as coming from anybody.
// Limits: kXmlBytesMax, 16 elements deep, kPageEntriesMax objects, uploads or parts.
// On error: one line. Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::s3 {

inline constexpr size_t kXmlBytesMax = 8u << 20;
inline constexpr size_t kPageEntriesMax = 10'000;

struct ListEntry {
  std::string name;  // as S3 has it: from the bucket's root
  uint64_t bytes = 0;
  int64_t modified_unix_s = 0;  // 0: it does not say
};
// One answer of ListObjectsV2.
struct ListPage {
  std::vector<ListEntry> entries;
  std::string next;  // where the next page begins; empty: this is the last
};
Result<ListPage> read_list_page(std::string_view xml_untrusted);

// One answer of ListMultipartUploads: what was begun and is not whole.
struct UploadEntry {
  std::string name;
  std::string id;
  int64_t begun_unix_s = 0;
};
struct UploadsPage {
  std::vector<UploadEntry> uploads;
  std::string next_key, next_id;  // where the next page begins; empty: this is the last
};
Result<UploadsPage> read_uploads_page(std::string_view xml_untrusted);

// One answer of ListParts.
struct PartEntry {
  uint32_t number = 0;
  uint64_t bytes = 0;
  std::string etag;
};
struct PartsPage {
  std::vector<PartEntry> parts;
  std::string next;  // number behind which the next page begins; empty: this is the last
};
Result<PartsPage> read_parts_page(std::string_view xml_untrusted);

// The answer to CreateMultipartUpload.
Result<std::string> read_upload_id(std::string_view xml_untrusted);
// CompleteMultipartUpload may answer 200 and yet say that it failed.
bool is_completed(std::string_view xml_untrusted);
// Text as it stands in XML.
std::string xml_text(std::string_view text);
// "2026-11-17T00:00:00.000Z"; 0: it is no time.
int64_t xml_time_unix_s(const std::string& text);

// What an answer that refuses names as its reason: "AccessDenied". Empty: it names none that is a word.
std::string refusal_code(std::string_view xml_untrusted);

}  // namespace lockstep::s3
