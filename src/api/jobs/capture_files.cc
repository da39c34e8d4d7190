// /api/jobs/{job}/profiles/{capture}/files: what ranks have sent of a capture, and one file of it, whole or in part.
// POST /api/jobs/{job}/profiles/{capture}/remove: its files go.
#include <algorithm>
#include <optional>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "store/blobs/blob_store.h"

namespace lockstep {
namespace {

HttpResponse failed(const Error& error) {
  return error_answer(error.code == ErrorCode::kNotFound ? 404 : 503, error.message);
}

// file: any, where only the capture is meant.
std::optional<HttpResponse> wrong_key(const ApiContext& context, const BlobKey& key) {
  if (context.blobs == nullptr) return error_answer(404, "files of captures are not kept here");
  if (const Result<void> checked = check_blob_key(key); !checked.ok()) return error_answer(400, checked.error());
  return std::nullopt;
}

std::string capture_prefix(const ApiRequest& request) {
  return blob_job_part(request.job) + "/" + request.capture + "/";
}

struct Range {
  uint64_t from = 0;
  uint64_t bytes = 0;
};

// "bytes=0-99", "bytes=100-", "bytes=-100". Nothing: there is none that we serve, and the whole is the answer (RFC 9110
// leaves that to us). An empty range: none of it is there.
std::optional<Range> range_of(std::string_view header, uint64_t all) {
  if (!header.starts_with("bytes=")) return std::nullopt;
  header.remove_prefix(6);
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos || header.find(',') != std::string_view::npos) return std::nullopt;
  const std::string_view from = trim(header.substr(0, dash)), to = trim(header.substr(dash + 1));
  const std::optional<uint64_t> first = parse_uint(from), last = parse_uint(to);
  if (from.empty()) {
    if (!last) return std::nullopt;
    const uint64_t bytes = std::min(*last, all);
    return Range{all - bytes, bytes};
  }
  if (!first || (!last && !to.empty()) || (last && *last < *first)) return std::nullopt;
  if (*first >= all) return Range{};
  return Range{*first, std::min(last.value_or(all - 1), all - 1) - *first + 1};
}

class BlobSource final : public BodySource {
 public:
  BlobSource(std::unique_ptr<BlobReader> reader, Range range) : reader_(std::move(reader)), range_(range) {}
  uint64_t bytes() const override { return range_.bytes; }
  Result<std::string> read(uint64_t from, size_t bytes_max) override {
    return reader_->read(range_.from + from, std::min<uint64_t>(bytes_max, range_.bytes - from));
  }

 private:
  const std::unique_ptr<BlobReader> reader_;
  const Range range_;
};

}  // namespace

HttpResponse get_capture_file(const ApiContext& context, const ApiRequest& request) {
  const BlobKey key{request.job, request.capture, request.file};
  if (std::optional<HttpResponse> refused = wrong_key(context, key)) return std::move(*refused);
  Result<std::unique_ptr<BlobReader>> reader = context.blobs->open(key);
  if (!reader.ok()) return failed(reader.failure());
  const uint64_t all = (*reader)->bytes();
  const std::optional<Range> range = range_of(request.http.header("range"), all);
  const auto number = [](uint64_t value) { return std::to_string(value); };
  if (range && range->bytes == 0) {
    HttpResponse refused = error_answer(416, "the file has " + number(all) + " bytes, and none of that range");
    refused.headers.emplace_back("content-range", "bytes */" + number(all));
    return refused;
  }
  HttpResponse response{range ? 206 : 200,
                        {{"content-type", key.file.ends_with(".gz") ? "application/gzip" : "application/octet-stream"},
                         {"accept-ranges", "bytes"},
                         {"content-disposition", "attachment; filename=\"" + key.file + "\""}},
                        ""};
  if (range)
    response.headers.emplace_back("content-range", "bytes " + number(range->from) + "-" +
                                                       number(range->from + range->bytes - 1) + "/" + number(all));
  response.source = std::make_shared<BlobSource>(std::move(*reader), range.value_or(Range{0, all}));
  return response;
}

HttpResponse get_capture_files(const ApiContext& context, const ApiRequest& request) {
  if (std::optional<HttpResponse> refused = wrong_key(context, {request.job, request.capture, "any"}))
    return std::move(*refused);
  const Result<std::vector<BlobInfo>> found = context.blobs->list(capture_prefix(request));
  if (!found.ok()) return failed(found.failure());
  JsonWriter json;
  json.begin_object().key("files").begin_array();
  for (const BlobInfo& info : *found) {
    json.begin_object()
        .field("file", std::string_view(info.path).substr(info.path.rfind('/') + 1))
        .field("bytes", info.bytes)
        .field("stored_unix_ns", info.stored_unix_ns)
        .end_object();
  }
  return list_answer(json, found->size(), found->size());
}

HttpResponse post_capture_remove(const ApiContext& context, const ApiRequest& request) {
  if (std::optional<HttpResponse> refused = wrong_key(context, {request.job, request.capture, "any"}))
    return std::move(*refused);
  const Result<std::vector<BlobInfo>> found = context.blobs->list(capture_prefix(request));
  if (!found.ok()) return failed(found.failure());
  uint64_t removed = 0, bytes = 0;
  for (const BlobInfo& info : *found) {
    const Result<BlobKey> key = parse_blob_path(info.path);
    const Result<void> gone = key.ok() ? context.blobs->remove(*key) : key.failure();
    if (!gone.ok() && gone.code() != ErrorCode::kNotFound) return failed(gone.failure());
    ++removed;
    bytes += info.bytes;
  }
  JsonWriter json;
  json.begin_object().field("removed", removed).field("bytes", bytes).end_object();
  return json_answer(json);
}

}  // namespace lockstep
