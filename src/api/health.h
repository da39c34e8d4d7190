// What /readyz answers, in every role.
#pragma once

#include "api/readiness.h"
#include "net/http_server.h"

namespace lockstep {

HttpResponse readyz_answer(const Readiness::State& state, bool as_json);

}  // namespace lockstep
