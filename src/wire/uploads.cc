#include "wire/uploads.h"

#include <algorithm>
#include <optional>

#include "base/characters.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr JsonLimits kLimits{.bytes_max = kUploadBodyBytesMax, .values_max = 100'000, .depth_max = 8};
constexpr uint64_t kBytesMax = 1ull << 50;

Error wrong(const char* name, const char* what) {
  return Error{format("the upload's \"%s\" is no %s", name, what)};
}

Result<std::string> text_of(JsonValue object, const char* name, bool is_needed) {
  const JsonValue value = object[name];
  if (!value.present() && !is_needed) return std::string();
  std::optional<std::string> text = value.string();
  if (!text || text->size() > kUploadTextBytesMax || (is_needed && text->empty())) return wrong(name, "text");
  return std::move(*text);
}

Result<uint64_t> number_of(JsonValue object, const char* name, uint64_t fallback, uint64_t most) {
  const JsonValue value = object[name];
  if (!value.present()) return fallback;
  const std::optional<uint64_t> number = value.unsigned_integer();
  if (!number || *number > most) return wrong(name, "number of ours");
  return *number;
}

Result<uint32_t> part_number_of(JsonValue object, const char* name, uint32_t fallback) {
  const uint64_t number = LOCKSTEP_TRY(number_of(object, name, fallback, kUploadPartsMax));
  if (number == 0) return wrong(name, "number of a part");
  return static_cast<uint32_t>(number);
}

Result<std::string> sum_of(JsonValue object, bool is_needed) {
  std::string sum = LOCKSTEP_TRY(text_of(object, "sha256", is_needed));
  if (!sum.empty() && !is_sha256_text(sum)) return wrong("sha256", "checksum of 64 hex digits in lower case");
  return sum;
}

Result<std::vector<UploadPart>> parts_of(JsonValue object, const char* name, bool is_needed) {
  const JsonValue list = object[name];
  if (!list.present() && !is_needed) return std::vector<UploadPart>();
  if (!list.is_array()) return wrong(name, "list");
  std::vector<UploadPart> parts;
  for (const JsonValue one : list) {
    if (parts.size() >= kUploadPartsMax) return wrong(name, "list that short");
    UploadPart part;
    part.number = LOCKSTEP_TRY(part_number_of(one, "n", 0));
    part.bytes = LOCKSTEP_TRY(number_of(one, "bytes", 0, kBytesMax));
    part.sha256 = LOCKSTEP_TRY(sum_of(one, false));
    part.etag = LOCKSTEP_TRY(text_of(one, "etag", false));
    parts.push_back(std::move(part));
  }
  return parts;
}

void write_parts(JsonWriter& json, const char* name, const std::vector<UploadPart>& parts) {
  json.key(name).begin_array();
  for (const UploadPart& part : parts) {
    json.begin_object().field("n", static_cast<uint64_t>(part.number));
    if (part.bytes > 0) json.field("bytes", part.bytes);
    if (!part.sha256.empty()) json.field("sha256", part.sha256);
    if (!part.etag.empty()) json.field("etag", part.etag);
    json.end_object();
  }
  json.end_array();
}

Result<JsonDocument> document_of(std::string_view json) {
  Result<JsonDocument> document = JsonDocument::parse(json, kLimits);
  if (!document.ok()) return prefixed(document.failure(), "the upload's JSON: ");
  if (!document->root().is_object()) return Error{"the upload's JSON is no object"};
  return document;
}

}  // namespace

bool is_sha256_text(std::string_view text) {
  return text.size() == 64 && is_lower_hex(text);
}

std::string encode(const UploadBegin& begin) {
  JsonWriter json;
  json.begin_object().field("job", begin.job).field("capture", begin.capture).field("file", begin.file);
  json.field("bytes", begin.bytes).field("from_part", static_cast<uint64_t>(begin.from_part)).end_object();
  return json.take();
}

Result<UploadBegin> parse_upload_begin(std::string_view json_untrusted) {
  const JsonDocument document = LOCKSTEP_TRY(document_of(json_untrusted));
  const JsonValue root = document.root();
  UploadBegin begin;
  begin.job = LOCKSTEP_TRY(text_of(root, "job", true));
  begin.capture = LOCKSTEP_TRY(text_of(root, "capture", true));
  begin.file = LOCKSTEP_TRY(text_of(root, "file", true));
  begin.bytes = LOCKSTEP_TRY(number_of(root, "bytes", 0, kBytesMax));
  begin.from_part = LOCKSTEP_TRY(part_number_of(root, "from_part", 1));
  return begin;
}

std::string encode(const UploadBegun& begun) {
  JsonWriter json;
  json.begin_object().field("upload", begun.upload).field("part_bytes", begun.part_bytes);
  write_parts(json, "done_parts", begun.done_parts);
  if (!begun.parts_url.empty()) json.field("parts_url", begun.parts_url);
  if (!begun.parts_urls.empty()) {
    json.field("urls_from", static_cast<uint64_t>(begun.urls_from)).key("parts_urls").begin_array();
    for (const std::string& url : begun.parts_urls) json.string(url);
    json.end_array();
  }
  if (!begun.key.empty()) json.field("key", begun.key).field("bytes", begun.bytes);
  json.end_object();
  return json.take();
}

Result<UploadBegun> parse_upload_begun(std::string_view json_untrusted) {
  const JsonDocument document = LOCKSTEP_TRY(document_of(json_untrusted));
  const JsonValue root = document.root();
  UploadBegun begun;
  begun.upload = LOCKSTEP_TRY(text_of(root, "upload", true));
  begun.part_bytes = LOCKSTEP_TRY(number_of(root, "part_bytes", 0, kBytesMax));
  if (begun.part_bytes == 0) return wrong("part_bytes", "size");
  begun.done_parts = LOCKSTEP_TRY(parts_of(root, "done_parts", false));
  begun.parts_url = LOCKSTEP_TRY(text_of(root, "parts_url", false));
  begun.urls_from = LOCKSTEP_TRY(part_number_of(root, "urls_from", 1));
  for (const JsonValue one : root["parts_urls"]) {
    std::optional<std::string> url = one.string();
    if (!url || url->empty() || url->size() > kUploadTextBytesMax || begun.parts_urls.size() >= kUploadPartsMax)
      return wrong("parts_urls", "list of URLs");
    begun.parts_urls.push_back(std::move(*url));
  }
  if (begun.parts_urls.empty()) begun.urls_from = 1;
  begun.key = LOCKSTEP_TRY(text_of(root, "key", false));
  if (!begun.key.empty()) begun.bytes = LOCKSTEP_TRY(number_of(root, "bytes", 0, kBytesMax));
  return begun;
}

std::string encode(const UploadFinish& finish) {
  JsonWriter json;
  json.begin_object().field("sha256", finish.sha256);
  write_parts(json, "parts", finish.parts);
  json.end_object();
  return json.take();
}

Result<UploadFinish> parse_upload_finish(std::string_view json_untrusted) {
  const JsonDocument document = LOCKSTEP_TRY(document_of(json_untrusted));
  UploadFinish finish;
  finish.sha256 = LOCKSTEP_TRY(sum_of(document.root(), true));
  finish.parts = LOCKSTEP_TRY(parts_of(document.root(), "parts", true));
  return finish;
}

std::string encode(const UploadFinished& finished) {
  JsonWriter json;
  json.begin_object().field("key", finished.key).field("bytes", finished.bytes).end_object();
  return json.take();
}

Result<UploadFinished> parse_upload_finished(std::string_view json_untrusted) {
  const JsonDocument document = LOCKSTEP_TRY(document_of(json_untrusted));
  UploadFinished finished;
  finished.key = LOCKSTEP_TRY(text_of(document.root(), "key", true));
  finished.bytes = LOCKSTEP_TRY(number_of(document.root(), "bytes", 0, kBytesMax));
  return finished;
}

}  // namespace lockstep
