// What the operator is told of all tenants: a table of its own, because the other one (ingest/counters_table.h) is also
// the default tenant's, whose people are not the operator.
//
// Thread rule: Immutable.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kTenantCounters[] = {
    {"lockstep_tenants", "gauge", Severity::kNotice,
     "Tenants besides the default one, by state: open, opening, failed (/readyz says which, and why)."},
    {"lockstep_tenant_series", "gauge", Severity::kInfo, "Series of a tenant written to lately, by tenant."},
    {"lockstep_tenant_file_bytes", "gauge", Severity::kInfo,
     "Bytes of a tenant's files of metrics, steps and spans on disk, by tenant."},
    {"lockstep_tenant_log_bytes", "gauge", Severity::kInfo, "Size of a tenant's durable log on disk, by tenant."},
};

}  // namespace lockstep
