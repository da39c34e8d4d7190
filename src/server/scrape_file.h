// The file of --scrape.
//
// On error: one line that names the file.
// Thread rule: Confined.
#pragma once

#include <string>

#include "base/counters.h"
#include "base/result.h"
#include "ingest/scrape/scraper.h"

namespace lockstep {

// An empty path: nothing is scraped.
Result<ScrapeConfig> read_scrape_file(const std::string& path);

// Asked for by SIGHUP. A file that is wrong leaves everything as it was.
void reload_scrape_file(const std::string& path, Scraper& scraper, Counters& counters);

}  // namespace lockstep
