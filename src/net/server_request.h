// What the servers here do with the head of a request: percent-decoding of paths and query parameters, and whether its
// sender is let in.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "net/caller.h"

namespace lockstep {

// nullopt: a '%' without two hex digits, or a NUL.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);

// nullptr: everybody is let in, with all roles.
Admission admitted_by(Gatekeeper* gatekeeper, const ServerRequest& head, const PeerCertificate& peer);
// As counted: unauthenticated, forbidden, throttled.
const char* refusal_reason(const Admission& refusal);
// What says who somebody is has been read by the gatekeeper and is nobody else's business.
void remove_credentials(ServerRequest& request);

}  // namespace lockstep
