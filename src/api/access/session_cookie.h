// The cookie of a session: the page alone sends it (SameSite), no script reads it (HttpOnly), and nobody hears it where
// there is TLS (Secure).
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/context.h"

namespace lockstep {

// seconds: how long it lasts; 0: it is gone.
std::string session_cookie(const ApiContext& context, std::string_view value, int64_t seconds);

}  // namespace lockstep
