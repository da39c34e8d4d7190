// The handlers, one file each.
#pragma once

#include "api/routes.h"

namespace lockstep {

HttpResponse get_jobs(const ApiContext&, const ApiRequest&);            // jobs.cc
HttpResponse get_job(const ApiContext&, const ApiRequest&);             // job.cc
HttpResponse get_why(const ApiContext&, const ApiRequest&);             // why.cc
HttpResponse get_steps(const ApiContext&, const ApiRequest&);           // steps.cc
HttpResponse get_ranks(const ApiContext&, const ApiRequest&);           // ranks.cc
HttpResponse get_rank(const ApiContext&, const ApiRequest&);            // rank.cc
HttpResponse get_verdicts(const ApiContext&, const ApiRequest&);        // verdicts.cc
HttpResponse get_agents(const ApiContext&, const ApiRequest&);          // agents.cc
HttpResponse get_metrics(const ApiContext&, const ApiRequest&);         // metrics.cc
HttpResponse get_logs(const ApiContext&, const ApiRequest&);            // logs.cc
HttpResponse get_spans(const ApiContext&, const ApiRequest&);           // spans.cc
HttpResponse get_own_metrics(const ApiContext&, const ApiRequest&);     // own_metrics.cc
HttpResponse get_healthz(const ApiContext&, const ApiRequest&);         // health.cc
HttpResponse get_readyz(const ApiContext&, const ApiRequest&);          // health.cc
HttpResponse get_web_file(const ApiContext&, const std::string& path);  // web.cc: everything that is no route

}  // namespace lockstep
