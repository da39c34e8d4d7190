// An address of the server may be that of another listener than the one that takes what is sent: the page's, or gRPC's
// instead of HTTP's. The server tells where the right one is (net/server_ports.h), so that any of its addresses will do.
//
// Asked only after something was refused or not understood, and with 2 s at most: a right address costs nothing.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>

#include "agent/export/otlp_target.h"

namespace lockstep {

// The same target at the right port. nullopt: it is there already, or nobody can tell; `why` then has a line where the
// server said that the address will not do.
std::optional<OtlpTarget> at_right_port(const OtlpTarget& target, std::string& why);

}  // namespace lockstep
