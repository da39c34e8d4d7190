// read_note and incident_from_json: any bytes give a note or an incident within limits, or one line.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "incident/incident_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<std::string> note = incident::read_note(bytes);
  if (note.ok() ? note->size() > incident::kNoteBytesMax : note.error().find('\n') != std::string::npos) std::abort();
  if (incident::markdown_text(bytes).find('\n') != std::string::npos) std::abort();
  Result<incident::Incident> read = incident::incident_from_json(bytes);
  if (!read.ok()) {
    if (read.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  // What was read is written, and read again the same.
  const Result<incident::Incident> again = incident::incident_from_json(to_json(*read));
  if (!again.ok()) std::abort();
  incident::to_markdown({.incident = std::move(*read)});
  return 0;
}
