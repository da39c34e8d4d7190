// The words a service says to systemd (sd_notify's protocol, without its library): nothing where nobody listens.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=..."; several lines may go together. False: nobody asked to be told.
bool systemd_notify(std::string_view words);
// How often systemd wants WATCHDOG=1 at least, halved as it recommends; 0: it does not want it from this process.
int64_t systemd_watchdog_ns();

}  // namespace lockstep
