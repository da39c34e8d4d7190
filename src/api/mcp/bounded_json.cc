#include "api/mcp/bounded_json.h"

#include <iterator>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::mcp {
namespace {

// From the mildest on.
struct Measure {
  size_t items, text_bytes;
};
constexpr Measure kMeasures[] = {{1000, 4000}, {200, 2000}, {60, 1000}, {20, 600},
                                 {10, 400},    {5, 300},    {3, 200},   {1, 120}};
constexpr size_t kPathBytesMax = 120;

class Shortened {
 public:
  Shortened(Measure measure, size_t bytes_max) : measure_(measure), bytes_max_(bytes_max) {}

  // False: it is longer than it may be.
  bool write(const JsonValue& value, const std::string& path) {
    if (json_.text().size() > bytes_max_) return false;
    if (value.is_object()) return write_object(value, path);
    if (value.is_array()) return write_array(value, path);
    const std::optional<std::string> text = value.string();
    if (!text) {
      json_.raw(value.json());
    } else if (text->size() <= measure_.text_bytes) {
      json_.string(*text);
    } else {
      report_cut(path, format("%zu of %zu bytes", measure_.text_bytes, text->size()));
      json_.string(std::string(utf8_prefix(*text, measure_.text_bytes)) + "...");
    }
    return true;
  }
  BoundedJson take() { return {json_.take(), std::move(cut_), cut_count_}; }
  size_t bytes() const { return json_.text().size(); }

 private:
  bool write_object(const JsonValue& value, const std::string& path) {
    json_.begin_object();
    for (const JsonValue field : value) {
      const std::string key = field.key();
      json_.key(key);
      if (!write(field, path.size() > kPathBytesMax ? path : path + (path.empty() ? "" : ".") + key)) return false;
    }
    json_.end_object();
    return true;
  }
  bool write_array(const JsonValue& value, const std::string& path) {
    size_t count = 0, shown = 0;
    for (auto at = value.begin(); at != value.end(); ++at) ++count;
    json_.begin_array();
    for (const JsonValue item : value) {
      if (shown == measure_.items) break;
      if (!write(item, path.size() > kPathBytesMax ? path : path + format("[%zu]", shown))) return false;
      ++shown;
    }
    json_.end_array();
    if (shown < count) report_cut(path, format("%zu of %zu", shown, count));
    return true;
  }
  void report_cut(const std::string& path, const std::string& what) {
    if (++cut_count_ <= kCutsReportedMax)
      cut_.push_back((path.empty() ? "the answer" : as_one_line(path)) + ": " + what);
  }

  const Measure measure_;
  const size_t bytes_max_;
  JsonWriter json_;
  std::vector<std::string> cut_;
  size_t cut_count_ = 0;
};

}  // namespace

Result<BoundedJson> bounded_json(std::string_view json, size_t bytes_max) {
  const Result<JsonDocument> document =
      JsonDocument::parse(json, {.bytes_max = kAnswerBytesMax, .values_max = kAnswerValuesMax, .depth_max = 64});
  if (!document.ok())
    return Error{format("the answer has %zu bytes and cannot be shortened; ask for less of it", json.size()),
                 ErrorCode::kTooLarge};
  for (const Measure& measure : kMeasures) {
    Shortened shortened(measure, bytes_max);
    if (shortened.write(document->root(), "") && shortened.bytes() <= bytes_max) return shortened.take();
  }
  return Error{
      format("the answer has %zu bytes, and more than %zu however short it is made; ask for less of it, or give "
             "a larger max_bytes",
             json.size(), bytes_max),
      ErrorCode::kTooLarge};
}

}  // namespace lockstep::mcp
