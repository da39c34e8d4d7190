#include "backup/manifest.h"

#include <algorithm>
#include <set>

#include "base/characters.h"
#include "base/format_versions.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/sha256.h"
#include "base/text.h"

namespace lockstep::backup {
namespace {

constexpr std::string_view kKind = "lockstep backup";
constexpr uint64_t kFileBytesMax = 1ull << 50;
constexpr size_t kTextBytesMax = 200;  // of an id, a stamp, a version

class Reader {
 public:
  explicit Reader(const char* what) : what_(what) {}

  Result<Manifest> read(const JsonValue& root, bool with_pieces) {
    Manifest manifest;
    if (!root.is_object()) return wrong("it is no object");
    if (!text(root["id"], manifest.id) && !with_pieces) return wrong("it has no id");
    if (!text(root["version"], manifest.lockstep)) return wrong("it does not say which version wrote it");
    const std::optional<int64_t> unix_ns = root["unix_ns"].integer();
    const std::optional<uint64_t> sequence = root["log_sequence"].unsigned_integer();
    if (!unix_ns || !sequence) return wrong("it does not say as of when it is");
    manifest.unix_ns = *unix_ns;
    manifest.log_sequence = *sequence;
    if (with_pieces) manifest.generation = root["generation"].unsigned_integer().value_or(0);
    if (with_pieces && manifest.generation == 0) return wrong("it has no generation");
    for (JsonValue format : root["formats"]) {
      const std::optional<uint64_t> version = format.unsigned_integer();
      std::string name = format.key();
      if (!version || !is_text(name)) return wrong("a format has no name or no version");
      manifest.formats[std::move(name)] = *version;
    }
    if (!root["files"].is_array()) return wrong("it has no list of files");
    std::set<std::string> names;
    for (JsonValue one : root["files"]) {
      if (manifest.files.size() >= kFilesMax) return wrong(lockstep::format("it has more than %zu files", kFilesMax));
      File file = LOCKSTEP_TRY(read_file(one, with_pieces));
      if (!names.insert(file.name).second) return wrong("it has " + file.name + " twice");
      manifest.files.push_back(std::move(file));
    }
    return manifest;
  }

 private:
  Error wrong(const std::string& why) const { return Error{std::string(what_) + " cannot be used: " + why}; }

  // What reads the same once it was written.
  static bool is_text(const std::string& text) {
    return !text.empty() && text.size() <= kTextBytesMax && !has_control_characters(text) && is_utf8(text);
  }
  static bool text(const JsonValue& value, std::string& to) {
    std::optional<std::string> found = value.string();
    if (!found || !is_text(*found)) return false;
    to = std::move(*found);
    return true;
  }

  Result<File> read_file(const JsonValue& from, bool with_pieces) const {
    File file;
    if (!text(from["name"], file.name) || !is_safe_name(file.name)) return wrong("a file's name is not one of ours");
    const std::optional<uint64_t> bytes = from["bytes"].unsigned_integer();
    const std::optional<bool> grows = from["grows"].boolean();
    if (!bytes || *bytes > kFileBytesMax || !grows || !text(from["stamp"], file.stamp))
      return wrong("what it says of " + file.name + " is not complete");
    file.bytes = *bytes;
    file.grows = *grows;
    if (!with_pieces) return file;
    for (JsonValue one : from["pieces"]) {
      std::optional<std::string> piece = one.string();
      if (!piece || !is_sha256(*piece)) return wrong("a piece of " + file.name + " has no SHA-256");
      file.pieces.push_back(std::move(*piece));
    }
    if (file.pieces.size() != pieces_of(file.bytes)) return wrong(file.name + " has not as many pieces as bytes");
    return file;
  }

  const char* what_;
};

Result<Manifest> read_json(std::string_view json, const char* what, bool with_pieces) {
  const Result<JsonDocument> document =
      JsonDocument::parse(json, {.bytes_max = kManifestBytesMax, .values_max = 64'000'000, .depth_max = 8});
  if (!document.ok()) return prefixed(document.failure(), std::string(what) + " cannot be read: ");
  if (with_pieces) {
    const JsonValue root = document->root();
    const std::optional<uint64_t> version = root["manifest"].unsigned_integer();
    if (root["kind"].string() != std::string(kKind) || !version || *version > UINT32_MAX)
      return Error{std::string(what) + " cannot be used: it is none of ours"};
    LOCKSTEP_TRY(formats::check_version(formats::kBackup, what, static_cast<uint32_t>(*version)));
  }
  return Reader(what).read(document->root(), with_pieces);
}

constexpr const char* kManifest = "the backup's manifest";
constexpr std::string_view kChecksum = "sha256 ";

}  // namespace

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const File& file : files) sum += file.bytes;
  return sum;
}

uint64_t pieces_of(uint64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes;
}

uint64_t piece_bytes(const File& file, size_t number) {
  return std::min(kPieceBytes, file.bytes - number * kPieceBytes);
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  const std::vector<std::string_view> segments = split(name, '/');
  return std::all_of(segments.begin(), segments.end(), [](std::string_view segment) {
    return !segment.empty() && segment != "." && segment != ".." &&
           std::all_of(segment.begin(), segment.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                    c == '_' || c == '-';
           });
  });
}

std::string sha256_hex(std::string_view bytes) {
  return to_text(sha256(bytes));
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && is_lower_hex(text);
}

Result<Manifest> read_listing(std::string_view json) {
  return read_json(json, "the server's list of files", false);
}

std::string write_manifest(const Manifest& manifest) {
  JsonWriter json;
  json.begin_object()
      .field("kind", kKind)
      .field("manifest", static_cast<uint64_t>(formats::kBackup.version))
      .field("generation", manifest.generation)
      .field("version", manifest.lockstep)
      .field("unix_ns", manifest.unix_ns)
      .field("log_sequence", manifest.log_sequence)
      .key("formats")
      .begin_object();
  for (const auto& [name, version] : manifest.formats) json.field(name, version);
  json.end_object().key("files").begin_array();
  for (const File& file : manifest.files) {
    json.begin_object()
        .field("name", file.name)
        .field("bytes", file.bytes)
        .field("stamp", file.stamp)
        .field("grows", file.grows)
        .key("pieces")
        .begin_array();
    for (const std::string& piece : file.pieces) json.string(piece);
    json.end_array().end_object();
  }
  json.end_array().end_object();
  std::string text = json.take() + "\n";
  return text + std::string(kChecksum) + sha256_hex(text) + "\n";
}

Result<Manifest> read_manifest(std::string_view text) {
  const size_t end = text.find('\n');
  const std::string_view last = end == std::string_view::npos ? "" : text.substr(end + 1);
  if (!last.starts_with(kChecksum) || !last.ends_with('\n'))
    return Error{std::string(kManifest) + " is not whole: its last line is missing"};
  if (last.substr(kChecksum.size(), last.size() - kChecksum.size() - 1) != sha256_hex(text.substr(0, end + 1)))
    return Error{std::string(kManifest) + " is damaged: its checksum does not match"};
  return read_json(text.substr(0, end), kManifest, true);
}

}  // namespace lockstep::backup
