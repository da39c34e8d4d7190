#include "server/scrape_file.h"

#include "base/files.h"
#include "base/log.h"

namespace lockstep {

Result<ScrapeConfig> read_scrape_file(const std::string& path) {
  if (path.empty()) return ScrapeConfig{};
  Result<std::string> text = read_file(path, 16 << 20);
  if (!text.ok()) return prefixed(text.failure(), "--scrape: ");
  Result<ScrapeConfig> read = parse_scrape_config(*text);
  if (!read.ok()) return prefixed(read.failure(), "--scrape " + path + ": ");
  return read;
}

std::optional<ScrapeConfig> reread_scrape_file(const std::string& path, Counters& counters) {
  Result<ScrapeConfig> read = read_scrape_file(path);
  counters.add("lockstep_scrape_config_loads_total", read.ok() ? "result=\"read\"" : "result=\"refused\"");
  if (!read.ok()) {
    LOCKSTEP_LOG_WARN("server", "%s; what was scraped before still is", read.error().c_str());
    return std::nullopt;
  }
  LOCKSTEP_LOG_INFO("server", "%s read again: %zu jobs", path.c_str(), read->jobs.size());
  return std::move(*read);
}

}  // namespace lockstep
