#include "api/jobs/asked.h"

#include "api/answer.h"

namespace lockstep {

std::optional<HttpResponse> refuse_asked(const DetailAsked& asked) {
  if (asked.hosts > 0 || asked.ranks_refused == 0) return std::nullopt;
  HttpResponse later = error_answer(429, "these hosts are asked for too much already; try again in a minute");
  later.headers.emplace_back("retry-after", "60");
  return later;
}

HttpResponse asked_answer(JsonWriter& json, const DetailAsked& asked) {
  json.field("hosts_asked", asked.hosts)
      .field("ranks_asked", asked.ranks)
      .field("ranks_refused", asked.ranks_refused)
      .field("ranks_unknown", asked.ranks_unknown)
      .end_object();
  HttpResponse answer = json_answer(json);
  answer.status = 202;
  return answer;
}

}  // namespace lockstep
