// The handlers, one file each.
#pragma once

#include "api/routes.h"

namespace lockstep {

HttpResponse get_jobs(const ApiContext&, const ApiRequest&);                       // jobs/jobs.cc
HttpResponse get_job(const ApiContext&, const ApiRequest&);                        // jobs/job.cc
HttpResponse get_why(const ApiContext&, const ApiRequest&);                        // jobs/why.cc
HttpResponse get_cost(const ApiContext&, const ApiRequest&);                       // jobs/cost.cc
HttpResponse get_mfu(const ApiContext&, const ApiRequest&);                        // jobs/mfu.cc
HttpResponse get_steps(const ApiContext&, const ApiRequest&);                      // jobs/steps.cc
HttpResponse get_step(const ApiContext&, const ApiRequest&);                       // jobs/step.cc
HttpResponse get_traced(const ApiContext&, const ApiRequest&);                     // jobs/step.cc
HttpResponse get_comms(const ApiContext&, const ApiRequest&);                      // jobs/comms.cc
HttpResponse get_clocks(const ApiContext&, const ApiRequest&);                     // jobs/clocks.cc
HttpResponse get_slowest(const ApiContext&, const ApiRequest&);                    // jobs/slowest.cc
HttpResponse post_step_detail(const ApiContext&, const ApiRequest&);               // jobs/step_detail_ask.cc
HttpResponse get_stacks(const ApiContext&, const ApiRequest&);                     // jobs/stacks.cc
HttpResponse post_stacks(const ApiContext&, const ApiRequest&);                    // jobs/stacks.cc
HttpResponse get_samples(const ApiContext&, const ApiRequest&);                    // jobs/samples.cc
HttpResponse post_samples(const ApiContext&, const ApiRequest&);                   // jobs/samples.cc
HttpResponse get_ranks(const ApiContext&, const ApiRequest&);                      // jobs/ranks.cc
HttpResponse get_rank(const ApiContext&, const ApiRequest&);                       // jobs/rank.cc
HttpResponse get_coverage(const ApiContext&, const ApiRequest&);                   // jobs/coverage.cc
HttpResponse get_evidence(const ApiContext&, const ApiRequest&);                   // jobs/evidence.cc
HttpResponse get_verdicts(const ApiContext&, const ApiRequest&);                   // jobs/verdicts.cc
HttpResponse get_verdict(const ApiContext&, const ApiRequest&);                    // jobs/verdict.cc
HttpResponse get_warnings(const ApiContext&, const ApiRequest&);                   // warnings.cc
HttpResponse post_verdict_feedback(const ApiContext&, const ApiRequest&);          // jobs/verdict.cc
HttpResponse get_agents(const ApiContext&, const ApiRequest&);                     // agents.cc
HttpResponse get_cardinality(const ApiContext&, const ApiRequest&);                // cardinality.cc
HttpResponse get_metrics(const ApiContext&, const ApiRequest&);                    // metrics.cc
HttpResponse get_signals(const ApiContext&, const ApiRequest&);                    // signals.cc
HttpResponse get_logs(const ApiContext&, const ApiRequest&);                       // logs.cc
HttpResponse get_spans(const ApiContext&, const ApiRequest&);                      // spans.cc
HttpResponse get_timeline(const ApiContext&, const ApiRequest&);                   // jobs/timeline.cc
HttpResponse get_services(const ApiContext&, const ApiRequest&);                   // services.cc
HttpResponse get_service(const ApiContext&, const ApiRequest&);                    // services.cc
HttpResponse get_perfetto(const ApiContext&, const ApiRequest&);                   // jobs/perfetto.cc
HttpResponse get_jaeger_services(const ApiContext&, const ApiRequest&);            // jaeger/jaeger_services.cc
HttpResponse get_jaeger_service_operations(const ApiContext&, const ApiRequest&);  // jaeger/jaeger_services.cc
HttpResponse get_jaeger_operations(const ApiContext&, const ApiRequest&);          // jaeger/jaeger_services.cc
HttpResponse get_jaeger_v3_services(const ApiContext&, const ApiRequest&);         // jaeger/jaeger_services.cc
HttpResponse get_jaeger_v3_operations(const ApiContext&, const ApiRequest&);       // jaeger/jaeger_services.cc
HttpResponse get_jaeger_traces(const ApiContext&, const ApiRequest&);              // jaeger/jaeger_traces.cc
HttpResponse get_jaeger_trace(const ApiContext&, const ApiRequest&);               // jaeger/jaeger_traces.cc
HttpResponse get_jaeger_v3_traces(const ApiContext&, const ApiRequest&);           // jaeger/jaeger_v3.cc
HttpResponse get_jaeger_v3_trace(const ApiContext&, const ApiRequest&);            // jaeger/jaeger_v3.cc
HttpResponse get_jaeger_dependencies(const ApiContext&, const ApiRequest&);        // jaeger/jaeger_dependencies.cc
HttpResponse get_tempo_echo(const ApiContext&, const ApiRequest&);                 // tempo/tempo_status.cc
HttpResponse get_tempo_ready(const ApiContext&, const ApiRequest&);                // tempo/tempo_status.cc
HttpResponse get_tempo_buildinfo(const ApiContext&, const ApiRequest&);            // tempo/tempo_status.cc
HttpResponse get_tempo_metrics(const ApiContext&, const ApiRequest&);              // tempo/tempo_status.cc
HttpResponse get_tempo_trace(const ApiContext&, const ApiRequest&);                // tempo/tempo_traces.cc
HttpResponse get_tempo_v2_trace(const ApiContext&, const ApiRequest&);             // tempo/tempo_traces.cc
HttpResponse get_tempo_search(const ApiContext&, const ApiRequest&);               // tempo/tempo_search.cc
HttpResponse get_tempo_tags(const ApiContext&, const ApiRequest&);                 // tempo/tempo_tags.cc
HttpResponse get_tempo_v2_tags(const ApiContext&, const ApiRequest&);              // tempo/tempo_tags.cc
HttpResponse get_tempo_tag_values(const ApiContext&, const ApiRequest&);           // tempo/tempo_tags.cc
HttpResponse get_tempo_v2_tag_values(const ApiContext&, const ApiRequest&);        // tempo/tempo_tags.cc
HttpResponse prometheus_query(const ApiContext&, const ApiRequest&);               // prometheus/prometheus_query.cc
HttpResponse prometheus_query_range(const ApiContext&, const ApiRequest&);         // prometheus/prometheus_query.cc
HttpResponse prometheus_series(const ApiContext&, const ApiRequest&);              // prometheus/prometheus_series.cc
HttpResponse prometheus_labels(const ApiContext&, const ApiRequest&);              // prometheus/prometheus_series.cc
HttpResponse prometheus_label_values(const ApiContext&, const ApiRequest&);        // prometheus/prometheus_series.cc
HttpResponse prometheus_metadata(const ApiContext&, const ApiRequest&);            // prometheus/prometheus_metadata.cc
HttpResponse prometheus_query_exemplars(const ApiContext&, const ApiRequest&);     // prometheus/prometheus_metadata.cc
HttpResponse prometheus_format_query(const ApiContext&, const ApiRequest&);        // prometheus/prometheus_parse.cc
HttpResponse prometheus_parse_query(const ApiContext&, const ApiRequest&);         // prometheus/prometheus_parse.cc
HttpResponse prometheus_buildinfo(const ApiContext&, const ApiRequest&);           // prometheus/prometheus_status.cc
HttpResponse prometheus_runtimeinfo(const ApiContext&, const ApiRequest&);         // prometheus/prometheus_status.cc
HttpResponse prometheus_flags(const ApiContext&, const ApiRequest&);               // prometheus/prometheus_status.cc
HttpResponse prometheus_config(const ApiContext&, const ApiRequest&);              // prometheus/prometheus_status.cc
HttpResponse prometheus_tsdb(const ApiContext&, const ApiRequest&);                // prometheus/prometheus_status.cc
HttpResponse prometheus_rules(const ApiContext&, const ApiRequest&);               // prometheus/prometheus_rules.cc
HttpResponse prometheus_alerts(const ApiContext&, const ApiRequest&);              // prometheus/prometheus_rules.cc
HttpResponse prometheus_targets(const ApiContext&, const ApiRequest&);             // prometheus/prometheus_targets.cc
HttpResponse prometheus_scrape_pools(const ApiContext&, const ApiRequest&);        // prometheus/prometheus_targets.cc
HttpResponse prometheus_alertmanagers(const ApiContext&, const ApiRequest&);       // prometheus/prometheus_status.cc
HttpResponse prometheus_federate(const ApiContext&, const ApiRequest&);            // prometheus/prometheus_federate.cc
HttpResponse prometheus_delete_series(const ApiContext&, const ApiRequest&);       // prometheus/prometheus_admin.cc
HttpResponse prometheus_clean_tombstones(const ApiContext&, const ApiRequest&);    // prometheus/prometheus_admin.cc
HttpResponse prometheus_snapshot(const ApiContext&, const ApiRequest&);            // prometheus/prometheus_admin.cc
HttpResponse post_backup(const ApiContext&, const ApiRequest&);                    // backup.cc
HttpResponse get_backup_file(const ApiContext&, const ApiRequest&);                // backup.cc
HttpResponse post_backup_release(const ApiContext&, const ApiRequest&);            // backup.cc
HttpResponse get_tokens(const ApiContext&, const ApiRequest&);                     // access/tokens.cc
HttpResponse post_tokens(const ApiContext&, const ApiRequest&);                    // access/tokens.cc
HttpResponse post_token_revoke(const ApiContext&, const ApiRequest&);              // access/tokens.cc
HttpResponse get_session(const ApiContext&, const ApiRequest&);                    // access/session.cc
HttpResponse post_session(const ApiContext&, const ApiRequest&);                   // access/session.cc
HttpResponse get_session_oidc(const ApiContext&, const ApiRequest&);               // access/oidc.cc
HttpResponse get_session_oidc_callback(const ApiContext&, const ApiRequest&);      // access/oidc.cc
HttpResponse post_session_end(const ApiContext&, const ApiRequest&);               // access/session.cc
HttpResponse get_audit(const ApiContext&, const ApiRequest&);                      // access/audit.cc
HttpResponse get_owners(const ApiContext&, const ApiRequest&);                     // access/owners.cc
HttpResponse post_owner_takeover(const ApiContext&, const ApiRequest&);            // access/owners.cc
HttpResponse get_own_metrics(const ApiContext&, const ApiRequest&);                // own_metrics.cc
HttpResponse get_healthz(const ApiContext&, const ApiRequest&);                    // health.cc
HttpResponse get_readyz(const ApiContext&, const ApiRequest&);                     // health.cc
HttpResponse get_web_file(const ApiContext&, const std::string& path);  // web.cc: everything that is no route

}  // namespace lockstep
