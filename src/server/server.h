// lockstepd without its main: receivers, durable log, stores, diagnosis, API and web UI in one process; or, beyond one
// machine, the part of it that --role names (decision 0025).
//
// Order of start: lock the data folder, open the API (it answers /healthz and "starting"), read the durable log back
// into stores and diagnosis, open the receivers, say "ready"; the other tenants (server/tenants.h) come behind. Order
// of stop follows the data: receivers, diagnosis, API, log.
// Thread rule: Confined; one at a time in a process.
#pragma once

#include <csignal>

#include "base/result.h"
#include "server/options.h"

namespace lockstep {

// Whether run_server() would take these options: reads the files that they name, and opens nothing.
Result<void> check_server_options(const ServerOptions& options);

// Runs until one of SIGTERM and SIGINT comes; SIGHUP reads the files of --scrape and --rules again. signals: these, blocked in every
// thread.
// On error: one line; everything that was opened is closed.
Result<void> run_server(const ServerOptions& options, const sigset_t& signals);

}  // namespace lockstep
