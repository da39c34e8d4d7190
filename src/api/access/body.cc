#include "api/access/body.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace lockstep {

Result<JsonDocument> read_object(std::string_view body, std::initializer_list<std::string_view> fields) {
  Result<JsonDocument> document =
      JsonDocument::parse(body, {.bytes_max = kAccessBodyBytesMax, .values_max = 256, .depth_max = 3});
  // The reader's own line may quote the text.
  if (!document.ok()) return Error{format("the body is no JSON of at most %zu bytes", kAccessBodyBytesMax)};
  std::string known;
  for (std::string_view field : fields) known += (known.empty() ? "" : ", ") + std::string(field);
  if (!document->root().is_object()) return Error{"the body must be a JSON object with " + known};
  for (const JsonValue field : document->root()) {
    if (std::find(fields.begin(), fields.end(), field.key()) == fields.end())
      return Error{"the body has a field that is not known here; known: " + known};
  }
  return document;
}

}  // namespace lockstep
