// What an endpoint says that has asked agents for something: how many of them, or that they are asked too much.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>

#include "base/json_writer.h"
#include "control/detail_requester.h"
#include "net/http_server.h"

namespace lockstep {

// 429 where every host that was meant is asked for too much already; nullopt: somebody was asked.
std::optional<HttpResponse> refuse_asked(const DetailAsked& asked);

// 202 with whom it went to, as the end of the object that `json` is in: what was asked for arrives within seconds.
HttpResponse asked_answer(JsonWriter& json, const DetailAsked& asked);

}  // namespace lockstep
