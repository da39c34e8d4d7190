#include "sources/gpu/snapshot_json.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "sources/gpu/gpu_metrics.h"

namespace lockstep {
namespace {

constexpr size_t kNotedNamesMax = 64;
// Everything above, with room: a value costs the reader about 24 bytes.
constexpr JsonLimits kJsonLimits{.bytes_max = kGpuLineBytesMax, .values_max = 400'000, .depth_max = 8};

std::string_view cut(std::string_view text) {
  return text.substr(0, kGpuLineTextMax);
}

Error bad(const char* what) {
  return Error{format("gpu line: %s; line refused", what)};
}

// The text, if it is there, is a text, and can stand in a label or a log line.
std::optional<std::string> plain_text(const JsonValue& json) {
  std::optional<std::string> text = json.string();
  if (!text || text->size() > kGpuLineTextMax || has_control_characters(*text)) return std::nullopt;
  return text;
}

void write_info(JsonWriter& json, const GpuInfo& info) {
  json.key("info").begin_object();
  json.field("index", int64_t{info.index}).field("vendor", cut(info.vendor)).field("model", cut(info.model));
  json.field("pci", cut(info.pci)).field("serial", cut(info.serial)).field("driver", cut(info.driver));
  json.field("minor", int64_t{info.minor});
  if (!info.parent_uuid.empty()) json.field("parent", cut(info.parent_uuid));
  json.end_object();
}

// In the table's order, in which rows of one name are neighbours: labelled ones become one object.
void write_values(JsonWriter& json, const std::vector<GpuValue>& values) {
  std::vector<const GpuValue*> sorted;
  sorted.reserve(values.size());
  for (const GpuValue& value : values) {
    if (value.metric != nullptr && std::isfinite(value.value)) sorted.push_back(&value);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const GpuValue* a, const GpuValue* b) { return std::less<>()(a->metric, b->metric); });
  json.key("values").begin_object();
  std::string_view open;
  for (const GpuValue* value : sorted) {
    const std::string_view name = value->metric->name;
    if (!open.empty() && name != open) {
      json.end_object();
      open = {};
    }
    if (value->label.empty()) {
      json.field(name, value->value);
      continue;
    }
    if (open.empty()) json.key(name).begin_object();
    open = name;
    json.field(cut(value->label), value->value);
  }
  if (!open.empty()) json.end_object();
  json.end_object();
}

Result<GpuInfo> read_info(const JsonValue& json, const std::string& uuid) {
  GpuInfo info;
  info.uuid = uuid;
  const std::pair<const char*, std::string*> texts[] = {{"vendor", &info.vendor}, {"model", &info.model},
                                                        {"pci", &info.pci},       {"serial", &info.serial},
                                                        {"driver", &info.driver}, {"parent", &info.parent_uuid}};
  for (const auto& [key, target] : texts) {
    if (!json[key].present()) continue;
    std::optional<std::string> text = plain_text(json[key]);
    if (!text) return bad("a GPU's info has a bad text");
    *target = std::move(*text);
  }
  const std::pair<const char*, int32_t*> numbers[] = {{"index", &info.index}, {"minor", &info.minor}};
  for (const auto& [key, target] : numbers) {
    if (!json[key].present()) continue;
    const std::optional<int64_t> number = json[key].integer();
    if (!number || *number < -1 || *number > std::numeric_limits<int32_t>::max())
      return bad("a GPU's info has a bad number");
    *target = static_cast<int32_t>(*number);
  }
  return info;
}

Result<GpuProcess> read_process(const JsonValue& json) {
  GpuProcess process;
  std::vector<JsonValue> parts;
  for (const JsonValue part : json) {
    if (parts.size() == 3) return bad("a process has more than three parts");
    parts.push_back(part);
  }
  if (!json.is_array() || parts.size() != 3) return bad("a process is not [pid, uuid, bytes]");
  const std::optional<int64_t> pid = parts[0].integer();
  std::optional<std::string> uuid = plain_text(parts[1]);
  const std::optional<uint64_t> bytes = parts[2].unsigned_integer();
  if (!pid || *pid <= 0 || *pid > std::numeric_limits<int32_t>::max() || !uuid || !bytes)
    return bad("a process has a bad part");
  process.pid = static_cast<int32_t>(*pid);
  process.gpu_uuid = std::move(*uuid);
  process.memory_bytes = *bytes;
  return process;
}

Result<GpuEvent> read_event(const JsonValue& json) {
  GpuEvent event;
  std::optional<std::string> uuid = plain_text(json["uuid"]), kind = plain_text(json["kind"]);
  const std::optional<int64_t> code = json["code"].integer(), unix_ns = json["unix_ns"].integer();
  if (!uuid || !kind || kind->empty() || !code || !unix_ns) return bad("an event has a bad part");
  event.gpu_uuid = std::move(*uuid);
  event.kind = std::move(*kind);
  event.code = *code;
  event.unix_ns = *unix_ns;
  return event;
}

// "slow=1" -> true; nullopt if that is not what stands there.
std::optional<bool> switch_of(std::string_view word, std::string_view name) {
  if (word.size() != name.size() + 2 || !word.starts_with(name) || word[name.size()] != '=') return std::nullopt;
  if (word.back() != '0' && word.back() != '1') return std::nullopt;
  return word.back() == '1';
}

}  // namespace

std::string to_line(const GpuRequest& request) {
  return format("read %llu slow=%d processes=%d\n", static_cast<unsigned long long>(request.number),
                request.slow ? 1 : 0, request.processes ? 1 : 0);
}

Result<GpuRequest> parse_gpu_request(std::string_view line) {
  const std::vector<std::string_view> words = split(line, ' ');
  if (words.size() == 4 && words[0] == "read") {
    const std::optional<uint64_t> number = parse_uint(words[1]);
    const std::optional<bool> slow = switch_of(words[2], "slow"), processes = switch_of(words[3], "processes");
    if (number && slow && processes) return GpuRequest{*number, *slow, *processes};
  }
  return Error{"gpu reader: a request is \"read NUMBER slow=0|1 processes=0|1\"; not understood"};
}

std::string gpu_ready_line(std::string_view what) {
  JsonWriter json;
  json.begin_object().field("ready", cut(what)).end_object();
  return json.take();
}

std::string gpu_error_line(std::string_view why, bool absent) {
  JsonWriter json;
  json.begin_object().field("error", cut(why)).field("absent", absent).end_object();
  return json.take();
}

std::string GpuSnapshotWriter::line(uint64_t request, const GpuSnapshot& snapshot) {
  std::map<std::string, GpuInfo> reported;
  JsonWriter json;
  json.begin_object().field("request", request).field("unix_ns", snapshot.unix_ns);
  json.key("gpus").begin_array();
  for (const GpuState& gpu : snapshot.gpus) {
    json.begin_object().field("uuid", cut(gpu.info.uuid));
    if (gpu.lost) json.field("lost", true);
    auto before = reported_.find(gpu.info.uuid);
    if (before == reported_.end() || before->second != gpu.info) write_info(json, gpu.info);
    reported.emplace(gpu.info.uuid, gpu.info);
    write_values(json, gpu.values);
    json.end_object();
  }
  json.end_array();
  reported_ = std::move(reported);
  if (snapshot.processes_read) {
    json.key("processes").begin_array();
    for (const GpuProcess& process : snapshot.processes) {
      json.begin_array().number(int64_t{process.pid}).string(cut(process.gpu_uuid)).number(process.memory_bytes);
      json.end_array();
    }
    json.end_array();
  }
  if (!snapshot.events.empty()) {
    json.key("events").begin_array();
    for (const GpuEvent& event : snapshot.events) {
      json.begin_object().field("uuid", cut(event.gpu_uuid)).field("kind", cut(event.kind));
      json.field("code", event.code).field("unix_ns", event.unix_ns).end_object();
    }
    json.end_array();
  }
  if (!snapshot.notes.empty()) {
    json.key("notes").begin_array();
    for (const std::string& note : snapshot.notes) json.string(cut(note));
    json.end_array();
  }
  json.end_object();
  return json.take();
}

GpuLineReader::GpuLineReader() {
  for (size_t i = 0; i < kGpuMetrics.size(); ++i)
    rows_[kGpuMetrics[i].name].push_back({kGpuLabelValues[i], &kGpuMetrics[i]});
}

Result<GpuLine> GpuLineReader::read(std::string_view text) {
  const Result<JsonDocument> document = JsonDocument::parse(text, kJsonLimits);
  if (!document.ok()) return prefixed(document.failure(), "gpu line: ");
  const JsonValue root = document->root();
  GpuLine line;
  for (const char* key : {"ready", "error"}) {
    if (!root[key].present()) continue;
    std::optional<std::string> said = plain_text(root[key]);
    if (!said) return bad("\"ready\" or \"error\" is not a line of text");
    line.kind = key[0] == 'r' ? GpuLine::Kind::kReady : GpuLine::Kind::kError;
    line.text = std::move(*said);
    line.absent = root["absent"].boolean().value_or(false);
    return line;
  }
  const std::optional<uint64_t> request = root["request"].unsigned_integer();
  if (!request) return bad("no request number");
  GpuSnapshot snapshot = LOCKSTEP_TRY(read_snapshot(root));
  line.kind = GpuLine::Kind::kSnapshot;
  line.request = *request;
  line.snapshot = std::move(snapshot);
  return line;
}

Result<GpuSnapshot> GpuLineReader::read_snapshot(const JsonValue& root) {
  GpuSnapshot snapshot;
  const std::optional<int64_t> unix_ns = root["unix_ns"].integer();
  if (!unix_ns || *unix_ns < 0) return bad("no time");
  snapshot.unix_ns = *unix_ns;
  if (!root["gpus"].is_array()) return bad("no list of GPUs");
  for (const JsonValue json : root["gpus"]) {
    if (snapshot.gpus.size() == kGpuLineGpusMax) return bad("too many GPUs");
    GpuState gpu = LOCKSTEP_TRY(read_gpu(json, snapshot));
    snapshot.gpus.push_back(std::move(gpu));
  }
  snapshot.processes_read = root["processes"].is_array();
  for (const JsonValue json : root["processes"]) {
    if (snapshot.processes.size() == kGpuLineProcessesMax) return bad("too many processes");
    GpuProcess process = LOCKSTEP_TRY(read_process(json));
    snapshot.processes.push_back(std::move(process));
  }
  for (const JsonValue json : root["events"]) {
    if (snapshot.events.size() == kGpuLineEventsMax) return bad("too many events");
    GpuEvent event = LOCKSTEP_TRY(read_event(json));
    snapshot.events.push_back(std::move(event));
  }
  for (const JsonValue json : root["notes"]) {
    if (snapshot.notes.size() == kGpuLineNotesMax) return bad("too many notes");
    std::optional<std::string> note = plain_text(json);
    if (!note) return bad("a note is not a line of text");
    snapshot.notes.push_back(std::move(*note));
  }
  std::map<std::string, GpuInfo> reported;
  for (const GpuState& gpu : snapshot.gpus) {
    if (!reported.emplace(gpu.info.uuid, gpu.info).second) return bad("a GPU stands there twice");
  }
  reported_ = std::move(reported);
  return snapshot;
}

Result<GpuState> GpuLineReader::read_gpu(const JsonValue& json, GpuSnapshot& snapshot) {
  GpuState gpu;
  std::optional<std::string> uuid = plain_text(json["uuid"]);
  if (!uuid || uuid->empty()) return bad("a GPU without a uuid");
  if (json["info"].present()) {
    gpu.info = LOCKSTEP_TRY(read_info(json["info"], *uuid));
  } else {
    auto reported = reported_.find(*uuid);
    if (reported == reported_.end()) return bad("a GPU that was never described");
    gpu.info = reported->second;
  }
  gpu.lost = json["lost"].boolean().value_or(false);
  LOCKSTEP_TRY(read_values(json["values"], gpu, snapshot));
  return gpu;
}

Result<void> GpuLineReader::read_values(const JsonValue& json, GpuState& gpu, GpuSnapshot& snapshot) {
  for (const JsonValue member : json) {
    const std::string name = member.key();
    auto rows = rows_.find(name);
    if (rows == rows_.end()) {
      refuse(name, snapshot);
      continue;
    }
    auto add = [&](std::string label, const JsonValue& number) -> Result<void> {
      const std::optional<double> value = number.number();
      if (!value || !std::isfinite(*value)) return bad("a value is not a number");
      if (gpu.values.size() == kGpuLineValuesMax) return bad("too many values of one GPU");
      const MetricDescriptor* metric = nullptr;
      for (const Row& row : rows->second) {
        if (row.label == label || (row.label == kLabelByReader && !label.empty() && metric == nullptr))
          metric = row.metric;
        if (row.label == label) break;
      }
      if (metric == nullptr) {
        refuse(name + "{" + label + "}", snapshot);
        return {};
      }
      gpu.values.push_back({metric, std::move(label), *value});
      return {};
    };
    if (!member.is_object()) {
      LOCKSTEP_TRY(add("", member));
      continue;
    }
    for (const JsonValue labelled : member) {
      std::string label = labelled.key();
      if (label.empty() || label.size() > kGpuLineTextMax || has_control_characters(label))
        return bad("a value has a bad label");
      LOCKSTEP_TRY(add(std::move(label), labelled));
    }
  }
  return {};
}

void GpuLineReader::refuse(const std::string& name, GpuSnapshot& snapshot) {
  ++unknown_metrics_;
  if (unknown_names_.size() == kNotedNamesMax || snapshot.notes.size() == kGpuLineNotesMax) return;
  if (has_control_characters(name) || !unknown_names_.insert(name.substr(0, kGpuLineTextMax)).second) return;
  snapshot.notes.push_back(format("metric %.200s is not in the table; left out", name.c_str()));
}

}  // namespace lockstep
