#include "profile/baseline/baseline_file.h"

#include <cmath>
#include <optional>
#include <set>

#include "base/format_versions.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr std::string_view kKind = "lockstep baseline";
constexpr double kNumberMax = 1e18;  // of nanoseconds: 30 years
constexpr uint64_t kRanksMax = 10'000'000;
constexpr size_t kWordBytesMax = 300;  // of a device, a version
constexpr size_t kWordsMax = 64;       // devices, versions

// --- writing

void write_time(JsonWriter& json, double ns, double count) {
  json.field("ns", ns).field("count", count);
}

std::string run_json(const RunSummary& run) {
  JsonWriter json;
  json.begin_object().field("ranks", run.ranks).field("world_size", run.world_size).field("gpu", run.has_gpu);
  json.field("shapes", run.has_shapes).field("step_marks", to_text(run.step_marks)).field("steps", run.steps);
  json.key("devices").begin_array();
  for (const std::string& device : run.devices) json.string(device);
  json.end_array().key("versions").begin_object();
  for (const auto& [what, version] : run.versions) json.field(what, version);
  json.end_object().end_object();
  return json.take();
}

std::string step_json(const RunSummary& run) {
  JsonWriter json;
  json.begin_object().field("ns", run.step_ns).field("noise_ns", run.noise_ns).field("busy_ns", run.busy_ns);
  json.field("idle_ns", run.idle_ns).field("exposed_communication_ns", run.exposed_ns).field("calls", run.calls);
  json.end_object();
  return json.take();
}

std::string row_json(const KernelTime& kernel) {
  JsonWriter json;
  json.begin_object().field("name", kernel.name).field("class", to_text(kernel.kernel_class));
  if (!kernel.op.empty()) json.field("op", kernel.op);
  write_time(json, kernel.ns, kernel.count);
  if (!kernel.shapes.empty()) {
    json.key("shapes").begin_array();
    for (const ShapeTime& shape : kernel.shapes) {
      json.begin_array().string(shape.shape).number(shape.ns).number(shape.count).end_array();
    }
    json.end_array();
  }
  json.end_object();
  return json.take();
}

std::string row_json(const GapTime& gap) {
  JsonWriter json;
  json.begin_object().field("what", gap.what).field("cause", to_text(gap.cause));
  write_time(json, gap.ns, gap.count);
  json.end_object();
  return json.take();
}

std::string row_json(const OperatorWork& work) {
  JsonWriter json;
  json.begin_object().field("name", work.name).field("calls", work.calls).field("flops", work.flops);
  json.field("bytes", work.bytes).end_object();
  return json.take();
}

// A row is a line, so that a change of a baseline that is kept beside the code can be read.
template <typename Row>
void add_rows(std::string& text, const char* name, const std::vector<Row>& rows) {
  text += format(",\n\"%s\":[", name);
  for (const Row& row : rows) text += (&row == rows.data() ? "\n" : ",\n") + row_json(row);
  text += "]";
}

// --- reading

Error wrong(const std::string& why) {
  return Error{"this is no baseline that can be used: " + why};
}

bool read(const JsonValue& value, size_t bytes_max, std::string& to) {
  std::optional<std::string> text = value.string();
  if (!text || text->size() > bytes_max || has_control_characters(*text) || !is_utf8(*text)) return false;
  to = std::move(*text);
  return true;
}
bool read(const JsonValue& value, double most, double& to) {
  const std::optional<double> number = value.number();
  if (!number || !std::isfinite(*number) || *number < 0 || *number > most) return false;
  to = *number;
  return true;
}
bool read(const JsonValue& value, bool& to) {
  const std::optional<bool> answer = value.boolean();
  if (answer) to = *answer;
  return answer.has_value();
}
template <typename Value>
bool read_named(const JsonValue& value, size_t count, Value& to) {
  const std::optional<std::string> text = value.string();
  for (size_t i = 0; text && i < count; ++i) {
    if (*text != to_text(static_cast<Value>(i))) continue;
    to = static_cast<Value>(i);
    return true;
  }
  return false;
}

Result<void> read_run(const JsonValue& from, RunSummary& run) {
  const std::optional<uint64_t> ranks = from["ranks"].unsigned_integer(),
                                world_size = from["world_size"].unsigned_integer();
  if (!ranks || *ranks == 0 || *ranks > kRanksMax || !world_size || *world_size > kRanksMax)
    return wrong("it does not say of how many ranks it is");
  run.ranks = *ranks;
  run.world_size = static_cast<int64_t>(*world_size);
  if (!read(from["gpu"], run.has_gpu) || !read(from["shapes"], run.has_shapes) ||
      !read_named(from["step_marks"], 3, run.step_marks) || !read(from["steps"], kNumberMax, run.steps))
    return wrong("it does not say what was recorded");
  for (const JsonValue device : from["devices"]) {
    if (run.devices.size() == kWordsMax || !read(device, kWordBytesMax, run.devices.emplace_back()))
      return wrong("its devices are not as they are written");
  }
  for (const JsonValue version : from["versions"]) {
    const std::string what = version.key();
    if (run.versions.size() == kWordsMax || what.size() > kWordBytesMax || has_control_characters(what) ||
        !is_utf8(what) || !read(version, kWordBytesMax, run.versions[what]))
      return wrong("its versions are not as they are written");
  }
  return {};
}

Result<void> read_step(const JsonValue& from, RunSummary& run) {
  if (read(from["ns"], kNumberMax, run.step_ns) && read(from["noise_ns"], kNumberMax, run.noise_ns) &&
      read(from["busy_ns"], kNumberMax, run.busy_ns) && read(from["idle_ns"], kNumberMax, run.idle_ns) &&
      read(from["exposed_communication_ns"], kNumberMax, run.exposed_ns) && read(from["calls"], kNumberMax, run.calls))
    return {};
  return wrong("it does not say what a step takes");
}

bool read_time(const JsonValue& from, double& ns, double& count) {
  return read(from["ns"], kNumberMax, ns) && read(from["count"], kNumberMax, count);
}

bool read_shape(const JsonValue& from, ShapeTime& shape) {
  JsonValue parts[3];
  size_t count = 0;
  for (const JsonValue part : from) {
    if (count == 3) return false;
    parts[count++] = part;
  }
  return from.is_array() && count == 3 && read(parts[0], kShapeBytesMax, shape.shape) &&
         read(parts[1], kNumberMax, shape.ns) && read(parts[2], kNumberMax, shape.count);
}

bool read_row(const JsonValue& from, KernelTime& kernel) {
  if (!read(from["name"], kNameBytesMax, kernel.name) ||
      !read_named(from["class"], kKernelClasses, kernel.kernel_class))
    return false;
  if (from["op"].present() && !read(from["op"], kNameBytesMax, kernel.op)) return false;
  for (const JsonValue shape : from["shapes"]) {
    if (kernel.shapes.size() == kShapesMax || !read_shape(shape, kernel.shapes.emplace_back())) return false;
  }
  return read_time(from, kernel.ns, kernel.count);
}
bool read_row(const JsonValue& from, GapTime& gap) {
  return read(from["what"], kNameBytesMax, gap.what) && read_named(from["cause"], kGapCauses, gap.cause) &&
         read_time(from, gap.ns, gap.count);
}
bool read_row(const JsonValue& from, OperatorWork& work) {
  return read(from["name"], kNameBytesMax, work.name) && read(from["calls"], kNumberMax, work.calls) &&
         read(from["flops"], kWorkMax, work.flops) && read(from["bytes"], kWorkMax, work.bytes);
}

template <typename Row>
Result<void> read_rows(const JsonValue& from, const char* name, size_t most, std::string Row::*key,
                       std::vector<Row>& to) {
  if (!from.is_array()) return wrong(format("it has no list of %s", name));
  std::set<std::string> seen;
  for (const JsonValue one : from) {
    if (to.size() == most) return wrong(format("it has more than %zu %s", most, name));
    Row& row = to.emplace_back();
    if (!read_row(one, row)) return wrong(format("row %zu of its %s is not as it is written", to.size(), name));
    if (!seen.insert(row.*key).second) return wrong(format("row %zu of its %s is there twice", to.size(), name));
  }
  return {};
}

}  // namespace

Result<std::string> baseline_text(const Baseline& baseline) {
  JsonWriter head;
  head.begin_object().field("kind", kKind).field("version", uint64_t{formats::kBaseline.version});
  head.field("written_by", baseline.written_by).field("saved_unix_ms", baseline.saved_unix_ms);
  std::string text = head.take();  // an object that goes on
  text += ",\n\"run\":" + run_json(baseline.run) + ",\n\"step\":" + step_json(baseline.run) +
          format(",\n\"kernels_left_out\":%llu", static_cast<unsigned long long>(baseline.run.kernels_left_out));
  add_rows(text, "kernels", baseline.run.kernels);
  add_rows(text, "gaps", baseline.run.gaps);
  add_rows(text, "operators", baseline.run.operators);
  text += "}\n";
  if (text.size() > kBaselineBytesMax)
    return Error{format("a baseline of %zu bytes is more than the limit of %zu: nothing was written", text.size(),
                        kBaselineBytesMax),
                 ErrorCode::kTooLarge};
  // Its traces may have been written by anybody, too.
  if (const Result<Baseline> again = parse_baseline_untrusted(text); !again.ok())
    return prefixed(again.failure(), "nothing was written, because it could not be read: ");
  return text;
}

Result<Baseline> parse_baseline_untrusted(std::string_view text) {
  const Result<JsonDocument> document =
      JsonDocument::parse(text, {.bytes_max = kBaselineBytesMax, .values_max = 1'000'000, .depth_max = 8});
  if (!document.ok()) return wrong(document.error());
  const JsonValue root = document->root();
  const std::optional<uint64_t> version = root["version"].unsigned_integer();
  if (root["kind"].string() != std::string(kKind) || !version) return wrong("it is another file");
  if (*version < formats::kBaseline.oldest || *version > formats::kBaseline.version) {
    return wrong(
        format("it is of format version %llu, and this lockstep reads version %u: save it anew, or use the "
               "release that wrote it",
               static_cast<unsigned long long>(*version), formats::kBaseline.version));
  }
  Baseline baseline;
  const std::optional<int64_t> saved = root["saved_unix_ms"].integer();
  const std::optional<uint64_t> left_out = root["kernels_left_out"].unsigned_integer();
  if (!saved || *saved < 0 || *saved > kNumberMax || !left_out || *left_out > UINT32_MAX ||
      !read(root["written_by"], kWordBytesMax, baseline.written_by))
    return wrong("it does not say when and by what it was written");
  baseline.saved_unix_ms = *saved;
  RunSummary& run = baseline.run;
  run.kernels_left_out = *left_out;
  LOCKSTEP_TRY(read_run(root["run"], run));
  LOCKSTEP_TRY(read_step(root["step"], run));
  LOCKSTEP_TRY(read_rows(root["kernels"], "kernels", kKernelsMax, &KernelTime::name, run.kernels));
  LOCKSTEP_TRY(read_rows(root["gaps"], "gaps", kGapsMax, &GapTime::what, run.gaps));
  LOCKSTEP_TRY(read_rows(root["operators"], "operators", kOperatorsMax, &OperatorWork::name, run.operators));
  return baseline;
}

}  // namespace lockstep::profile
