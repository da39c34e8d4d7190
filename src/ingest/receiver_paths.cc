#include "ingest/receiver_paths.h"

#include <algorithm>
#include <iterator>

#include "ingest/prometheus/remote_write_receiver.h"
#include "net/server_ports.h"
#include "wire/commands.h"
#include "wire/uploads.h"

namespace lockstep {
namespace {

constexpr ReceiverPath kReceiverPaths[] = {
    {"/v1/metrics", "POST", Role::kIngest},
    {"/v1/logs", "POST", Role::kIngest},
    {"/v1/traces", "POST", Role::kIngest},
    {kCommandsPath, "GET", Role::kIngest},
    {kUploadsPath, "POST", Role::kIngest, true},
    {kRemoteWritePath, "POST", Role::kIngest},
    {kServerPortsPath, "GET", Role::kAnyone},
    {kServerPortsMethod, "POST", Role::kAnyone},
    {"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "POST", Role::kIngest},
    {"/opentelemetry.proto.collector.logs.v1.LogsService/Export", "POST", Role::kIngest},
    {"/opentelemetry.proto.collector.trace.v1.TraceService/Export", "POST", Role::kIngest},
};
// All but the ports of the listeners, which whoever has only one of them needs to find the others.
static_assert(std::all_of(std::begin(kReceiverPaths), std::end(kReceiverPaths), [](const ReceiverPath& row) {
  const bool is_ports = row.path == kServerPortsPath || row.path == kServerPortsMethod;
  return row.role == (is_ports ? Role::kAnyone : Role::kIngest);
}));

}  // namespace

std::span<const ReceiverPath> receiver_paths() {
  return kReceiverPaths;
}

const ReceiverPath* find_receiver(std::string_view path) {
  const auto found = std::find_if(std::begin(kReceiverPaths), std::end(kReceiverPaths), [&](const ReceiverPath& row) {
    return row.path == path || (row.has_below && path.starts_with(row.path) && path[row.path.size()] == '/');
  });
  return found == std::end(kReceiverPaths) ? nullptr : found;
}

}  // namespace lockstep
