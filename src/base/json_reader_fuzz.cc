// What the reader accepts, written again, is accepted again and reads the same.
#include <cstdlib>

#include "base/json_reader.h"
#include "base/json_writer.h"

namespace {

using namespace lockstep;

void write(JsonWriter& writer, const JsonValue& value) {
  if (value.is_object()) {
    writer.begin_object();
    for (JsonValue member : value) {
      writer.key(member.key());
      write(writer, member);
    }
    writer.end_object();
  } else if (value.is_array()) {
    writer.begin_array();
    for (JsonValue item : value) write(writer, item);
    writer.end_array();
  } else if (auto text = value.string()) {
    writer.string(*text);
  } else {
    writer.raw(value.json());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Result<JsonDocument> document = JsonDocument::parse({reinterpret_cast<const char*>(data), size});
  if (!document) return 0;
  JsonWriter once;
  write(once, document->root());
  Result<JsonDocument> again = JsonDocument::parse(once.text());
  if (!again) std::abort();
  JsonWriter twice;
  write(twice, again->root());
  if (once.text() != twice.text()) std::abort();
  (void)document->root()["rank"].integer();
  (void)document->root().number();
  return 0;
}
