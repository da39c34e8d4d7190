// The file of --scrape.
//
// On error: one line that names the file.
// Thread rule: Confined.
#pragma once

#include <optional>
#include <string>

#include "base/counters.h"
#include "base/result.h"
#include "ingest/scrape/scraper.h"

namespace lockstep {

// An empty path: nothing is scraped.
Result<ScrapeConfig> read_scrape_file(const std::string& path);

// Asked for by SIGHUP. Nothing where the file is wrong: then everything stays as it was.
std::optional<ScrapeConfig> reread_scrape_file(const std::string& path, Counters& counters);

}  // namespace lockstep
