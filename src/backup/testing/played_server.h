// For tests: a server that is backed up, and files that pass for its own.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "backup/take.h"
#include "base/format_versions.h"
#include "base/json_writer.h"

namespace lockstep::backup {

struct PlayedFile {
  std::string content;
  std::string stamp;
  bool grows = false;
};

class PlayedServer final : public HeldFiles {
 public:
  std::map<std::string, PlayedFile> files;
  uint64_t fails_at_read = UINT64_MAX;
  uint64_t reads = 0;
  int held = 0;
  uint64_t step_version = formats::kStepFile.version;

  Result<std::string> hold() override {
    ++held;
    JsonWriter json;
    json.begin_object().field("id", "7").field("version", "0.1.0").field("unix_ns", int64_t{1'800'000'000'000'000'000});
    json.field("log_sequence", uint64_t{41}).key("formats").begin_object();
    json.field("step file", step_version).end_object().key("files").begin_array();
    for (const auto& [name, file] : files) {
      json.begin_object().field("name", name).field("bytes", static_cast<uint64_t>(file.content.size()));
      json.field("stamp", file.stamp).field("grows", file.grows).end_object();
    }
    return json.end_array().end_object().take();
  }
  Result<std::string> read(const std::string&, const std::string& name, uint64_t from, uint64_t bytes) override {
    if (reads++ == fails_at_read) return Error{"connection reset"};
    return files.at(name).content.substr(from, bytes);
  }
  void release(const std::string&) override { --held; }
};

inline std::string step_file(char fill, size_t bytes) {
  std::string content("LSSTEPS\n\1\0\0\0", 12);
  return content + std::string(bytes - content.size(), fill);
}

inline std::string log_of(size_t bytes) {
  std::string content = "LSR1";
  while (content.size() < bytes) content += std::to_string(content.size());
  return content.substr(0, bytes);
}

inline std::string state_of(uint8_t version) {
  std::string content(4096, '\0');
  content.replace(0, 16, std::string("SQLite format 3\0", 16));
  content[63] = static_cast<char>(version);
  return content;
}

}  // namespace lockstep::backup
