// How an agent sends a file to the server, as it travels (docs/formats/blobs.md): the bodies of the requests and answers
// around its parts, in JSON. The parts themselves are bytes.
//
// Each is read as coming from anybody: what is not of its kind, too long or too many is refused. Members that are not
// known are from a newer peer, and skipped.
// Limits: kUploadBodyBytesMax, kUploadPartsMax parts and URLs, texts of kUploadTextBytesMax.
// On error: one line. Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

inline constexpr std::string_view kUploadsPath = "/v1/lockstep/uploads";
inline constexpr const char* kPartSumHeader = "x-lockstep-sha256";
inline constexpr size_t kUploadBodyBytesMax = 4u << 20;
inline constexpr size_t kUploadPartsMax = 10'000;
inline constexpr size_t kUploadTextBytesMax = 8192;

// POST /v1/lockstep/uploads
struct UploadBegin {
  std::string job;
  std::string capture;
  std::string file;
  uint64_t bytes = 0;      // at most, as far as its sender knows; 0: it does not
  uint32_t from_part = 1;  // of which on URLs are wanted
  bool operator==(const UploadBegin&) const = default;
};
std::string encode(const UploadBegin& begin);
Result<UploadBegin> parse_upload_begin(std::string_view json_untrusted);

struct UploadPart {
  uint32_t number = 0;      // from 1
  uint64_t bytes = 0;       // of a part that is there
  std::string sha256 = {};  // 64 digits, or empty
  std::string etag = {};    // of a bucket
  bool operator==(const UploadPart&) const = default;
};

// Its answer.
struct UploadBegun {
  std::string upload;  // for the paths that follow
  uint64_t part_bytes = 0;
  std::vector<UploadPart> done_parts = {};
  std::string parts_url = {};                // where parts go, on the same server; empty where there are URLs
  uint32_t urls_from = 1;                    // the part that the first URL is for
  std::vector<std::string> parts_urls = {};  // of a bucket
  std::string key = {};                      // not empty: it is stored already, and nothing is to be sent
  uint64_t bytes = 0;                        // then: as stored
  bool operator==(const UploadBegun&) const = default;
};
std::string encode(const UploadBegun& begun);
Result<UploadBegun> parse_upload_begun(std::string_view json_untrusted);

// POST /v1/lockstep/uploads/ID/finish
struct UploadFinish {
  std::string sha256;
  std::vector<UploadPart> parts;  // 1, 2, 3, ...; with their sums, or etags where a bucket gave some
  bool operator==(const UploadFinish&) const = default;
};
std::string encode(const UploadFinish& finish);
Result<UploadFinish> parse_upload_finish(std::string_view json_untrusted);

// Its answer.
struct UploadFinished {
  std::string key;  // "default/llama-70b/p-0123456789ab/rank-17.json.gz"
  uint64_t bytes = 0;
  bool operator==(const UploadFinished&) const = default;
};
std::string encode(const UploadFinished& finished);
Result<UploadFinished> parse_upload_finished(std::string_view json_untrusted);

// 64 hex digits in lower case.
bool is_sha256_text(std::string_view text);

}  // namespace lockstep
