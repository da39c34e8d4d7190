#include "ingest/uploads/upload_receiver.h"

#include <algorithm>

#include "base/base64.h"
#include "base/sha256.h"
#include "base/text.h"
#include "model/capture_results.h"
#include "wire/uploads.h"

namespace lockstep {
namespace {

constexpr size_t kUploadIdBytesMax = 2048;

HttpResponse line_answer(int status, const std::string& line) {
  return {status, {{"content-type", "text/plain; charset=utf-8"}}, as_one_line(line) + "\n"};
}

HttpResponse later_answer(int status, const std::string& line, const char* retry_after_s) {
  HttpResponse answer = line_answer(status, line);
  answer.headers.emplace_back("retry-after", retry_after_s);
  return answer;
}

HttpResponse json_answer(std::string body) {
  return {200, {{"content-type", "application/json"}}, std::move(body)};
}

UploadPart on_the_wire(const BlobPart& part) {
  return {part.number, part.bytes, part.sha256, part.etag};
}

}  // namespace

// What the path says.
struct UploadReceiver::Asked {
  enum class What { kBegin, kPart, kFinish, kNothing } what = What::kNothing;
  std::string_view id = {};
  uint32_t part = 0;

  static Asked of(std::string_view path) {
    path.remove_prefix(kUploadsPath.size());
    if (path.empty()) return {What::kBegin};
    const std::vector<std::string_view> words = split(path.substr(1), '/');
    if (words.size() == 2 && words[1] == "finish") return {What::kFinish, words[0]};
    if (words.size() != 3 || words[1] != "parts") return {};
    const std::optional<uint64_t> number = parse_uint(words[2]);
    if (!number || *number == 0 || *number > kBlobPartsMax) return {};
    return {What::kPart, words[0], static_cast<uint32_t>(*number)};
  }
  const char* name() const {
    constexpr const char* kNames[] = {"begin", "part", "finish", "nothing"};
    return kNames[static_cast<int>(what)];
  }
};

bool UploadReceiver::is_for(const ServerRequest& request) {
  const std::string_view path = request.path;
  return path.starts_with(kUploadsPath) && (path.size() == kUploadsPath.size() || path[kUploadsPath.size()] == '/');
}

HttpResponse UploadReceiver::handle(const ServerRequest& request) {
  const Asked asked = Asked::of(request.path);
  HttpResponse response;
  if (slots_.take()) {
    struct Slot {
      UploadSlots& slots;
      ~Slot() { slots.give_back(); }
    } slot{slots_};
    response = answer(request, asked);
  } else {
    response = later_answer(503, "too many uploads at a time, try again", "1");
  }
  counters_.add("lockstep_upload_requests_total", format("what=\"%s\",code=\"%d\"", asked.name(), response.status));
  return response;
}

HttpResponse UploadReceiver::answer(const ServerRequest& request, const Asked& asked) {
  if (asked.what == Asked::What::kNothing) return line_answer(404, "no such path");
  const char* method = asked.what == Asked::What::kPart ? "PUT" : "POST";
  if (request.method != method) {
    HttpResponse refused = line_answer(405, format("only %s is answered here", method));
    refused.headers.emplace_back("allow", method);
    return refused;
  }
  if (asked.what == Asked::What::kBegin) return begin(request);
  const std::optional<std::string> path =
      asked.id.size() <= kUploadIdBytesMax ? decode_base64url(asked.id) : std::nullopt;
  const Result<BlobKey> key = parse_blob_path(path.value_or(""));
  if (!key.ok() || key->file.starts_with(kResultPrefix)) return line_answer(404, "that is no upload of ours");
  if (owners_ != nullptr) {
    if (const Result<void> may = owners_->check(request.caller, OwnedKind::kJob, key->job); !may.ok())
      return line_answer(403, may.error());
  }
  return asked.what == Asked::What::kPart ? put_part(request, asked, *key) : finish(request, *key);
}

// Where the server keeps things and what is wrong there is the operator's: the log says it.
HttpResponse UploadReceiver::failed(const Error& error) {
  if (error.code == ErrorCode::kNotFound) return line_answer(404, error.message);
  if (error.code == ErrorCode::kTooLarge) return line_answer(413, error.message);
  log_.warn("failed", "a file of a capture cannot be taken: " + error.message);
  if (store_.is_full()) return later_answer(507, "the server has no room for files of captures; try again later", "60");
  return later_answer(503, "the server cannot take files of captures now, its log says why; try again later", "5");
}

HttpResponse UploadReceiver::begin(const ServerRequest& request) {
  const Result<UploadBegin> wanted = parse_upload_begin(request.body);
  if (!wanted.ok()) return line_answer(400, wanted.error());
  const BlobKey key{wanted->job, wanted->capture, wanted->file};
  if (const Result<void> checked = check_blob_key(key); !checked.ok()) return line_answer(400, checked.error());
  if (key.file.starts_with(kResultPrefix))
    return line_answer(400, format("a file whose name begins with %s is the server's own", kResultPrefix.data()));
  if (owners_ != nullptr) {
    if (const Result<void> may = owners_->check(request.caller, OwnedKind::kJob, key.job); !may.ok())
      return line_answer(403, may.error());
  }
  const Result<BlobUpload> upload = store_.begin(key, wanted->from_part);
  if (!upload.ok()) return failed(upload.failure());
  UploadBegun begun;
  begun.upload = base64url(blob_path(key));
  begun.part_bytes = kBlobPartBytes;
  std::transform(upload->done.begin(), upload->done.end(), std::back_inserter(begun.done_parts), on_the_wire);
  begun.urls_from = upload->urls_from;
  begun.parts_urls = upload->urls;
  if (upload->stored) {
    begun.key = full_key(upload->stored->path);
    begun.bytes = upload->stored->bytes;
  } else if (upload->urls.empty()) {
    begun.parts_url = std::string(kUploadsPath) + "/" + begun.upload + "/parts";
  }
  return json_answer(encode(begun));
}

void UploadReceiver::count_part(const char* result) {
  counters_.add("lockstep_blob_parts_total", format("result=\"%s\"", result));
}

HttpResponse UploadReceiver::put_part(const ServerRequest& request, const Asked& asked, const BlobKey& key) {
  const std::string sum(request.header(kPartSumHeader));
  if (!is_sha256_text(sum) || to_text(sha256(request.body)) != sum) {
    count_part("mismatch");
    return line_answer(400, format("the part's bytes are not those of the header %s: send it again", kPartSumHeader));
  }
  const Result<BlobPart> part = store_.put_part(key, asked.part, request.body, sum);
  if (part.ok()) return {200, {{"content-type", "application/json"}}, "{}"};
  HttpResponse refused = failed(part.failure());
  count_part(refused.status == 404   ? "unknown"
             : refused.status == 413 ? "too_large"
             : refused.status == 507 ? "full"
                                     : "failed");
  return refused;
}

HttpResponse UploadReceiver::finish(const ServerRequest& request, const BlobKey& key) {
  const Result<UploadFinish> wanted = parse_upload_finish(request.body);
  if (!wanted.ok()) return line_answer(400, wanted.error());
  std::vector<BlobPart> parts;
  for (const UploadPart& part : wanted->parts) parts.push_back({part.number, part.bytes, part.sha256, part.etag});
  const Result<BlobFinish> finished = store_.finish(key, wanted->sha256, parts);
  if (!finished.ok()) return failed(finished.failure());
  if (finished->state != BlobFinish::State::kStored) return line_answer(409, finished->line);
  return json_answer(encode(UploadFinished{full_key(finished->info.path), finished->info.bytes}));
}

}  // namespace lockstep
