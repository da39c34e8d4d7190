// The XML that S3 answers with, read strictly: elements, text, the five names of entities and numbered characters. No
// document types, comments, sections of CDATA or instructions but the first.
//
// It is read as coming from anybody.
// Limits: kXmlBytesMax, 16 elements deep, kPageEntriesMax objects.
// On error: one line. Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backup/objects.h"
#include "base/result.h"

namespace lockstep::backup {

inline constexpr size_t kXmlBytesMax = 8u << 20;
inline constexpr size_t kPageEntriesMax = 10'000;

// One answer of ListObjectsV2.
struct ListPage {
  std::vector<Objects::Entry> entries;  // names as S3 has them: from the bucket's root
  std::string next;                     // where the next page begins; empty: this is the last
};
Result<ListPage> read_list_page(std::string_view xml_untrusted);

// What an answer that refuses names as its reason: "AccessDenied". Empty: it names none that is a word.
std::string refusal_code(std::string_view xml_untrusted);

}  // namespace lockstep::backup
