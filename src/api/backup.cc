// /api/backup: everything the server keeps, as files, for `lockstep backup`.
#include <optional>

#include "api/answer.h"
#include "api/backup_source.h"
#include "api/endpoints.h"
#include "base/crc32c.h"
#include "base/format_versions.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kFileBytesMax = 1ll << 50;

// It has the data of all tenants.
std::optional<HttpResponse> not_for(const ApiContext& context, const ApiRequest& request) {
  if (context.backup == nullptr) return error_answer(404, "backups are not served here");
  if (request.http.caller.is_operator()) return std::nullopt;
  return error_answer(403, "a backup is of all tenants: it needs a token for all of them (--tenant '*')");
}

HttpResponse failed(const Error& error) {
  return error_answer(error.code == ErrorCode::kNotFound ? 404 : 503, error.message);
}

}  // namespace

HttpResponse post_backup(const ApiContext& context, const ApiRequest& request) {
  if (std::optional<HttpResponse> refused = not_for(context, request)) return std::move(*refused);
  const Result<HeldBackup> held = context.backup->hold();
  if (!held.ok()) return failed(held.failure());
  JsonWriter json;
  json.begin_object()
      .field("id", held->id)
      .field("version", LOCKSTEP_VERSION)
      .field("unix_ns", held->unix_ns)
      .field("log_sequence", held->log_sequence)
      .field("lease_s", BackupSource::kLeaseNs / 1'000'000'000)
      .key("formats")
      .begin_object();
  for (const formats::Format* format : formats::kAll) json.field(format->name, static_cast<uint64_t>(format->version));
  json.end_object().key("files").begin_array();
  for (const HeldBackup::File& file : held->files) {
    json.begin_object()
        .field("name", file.name)
        .field("bytes", file.bytes)
        .field("stamp", file.stamp)
        .field("grows", file.grows)
        .end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse get_backup_file(const ApiContext& context, const ApiRequest& request) {
  if (std::optional<HttpResponse> refused = not_for(context, request)) return std::move(*refused);
  const Result<int64_t> from = int_parameter(request.http, "from", 0, 0, kFileBytesMax);
  if (!from.ok()) return error_answer(400, from.error());
  constexpr int64_t kMost = static_cast<int64_t>(BackupSource::kReadBytesMax);
  const Result<int64_t> bytes = int_parameter(request.http, "bytes", kMost, 1, kMost);
  if (!bytes.ok()) return error_answer(400, bytes.error());
  Result<std::string> read = context.backup->read(request.http.parameter("id"), request.http.parameter("name"),
                                                  static_cast<uint64_t>(*from), static_cast<uint64_t>(*bytes));
  if (!read.ok()) return failed(read.failure());
  const std::string checksum = format("%08x", crc32c(*read));
  HttpResponse response = text_answer(200, "application/octet-stream", std::move(*read));
  response.headers.emplace_back("x-lockstep-crc32c", checksum);
  return response;
}

HttpResponse post_backup_release(const ApiContext& context, const ApiRequest& request) {
  if (std::optional<HttpResponse> refused = not_for(context, request)) return std::move(*refused);
  const Result<void> released = context.backup->release(request.http.parameter("id"));
  if (!released.ok()) return failed(released.failure());
  JsonWriter json;
  json.begin_object().field("released", true).end_object();
  return json_answer(json);
}

}  // namespace lockstep
