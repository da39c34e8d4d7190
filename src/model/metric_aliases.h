// What other tools call our metrics: one table for the agent's page (--names dcgm), for queries by either name
// (query/alias_reader.h) and for what arrives under their names (ingest/alias_feed.h). docs/guide/metric-names.md is
// checked against it.
//
// A row says: other = ours{label="value"} x scale. A name of others stands in one row; one of ours may stand in
// several, one for each value of a label. Labels are renamed by the tool (label_aliases()).
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

enum class MetricTool : uint8_t { kDcgm, kInspector, kMosaic, kOpenConfig, kSnmp };
const char* to_text(MetricTool tool);  // "dcgm-exporter", "NCCL Inspector", ...

struct MetricAlias {
  MetricTool tool;
  const char* other;  // as Prometheus stores it
  const char* ours;   // likewise (docs/decisions/0009)
  const char* label;  // "": any series of that name
  const char* value;
  double scale;
  // As agents send it by OTLP, where it is stored under another name.
  const char* sent_as = nullptr;
  const char* sent_label = nullptr;

  const char* sent() const { return sent_as != nullptr ? sent_as : ours; }
  const char* label_sent() const { return sent_label != nullptr ? sent_label : label; }
};

struct LabelAlias {
  const char* other;
  const char* ours;
};

std::span<const MetricAlias> metric_aliases();
// Labels that mean the same. The first says whose it is, a GPU's or a node's: who has both has the same twice.
std::span<const LabelAlias> label_aliases(MetricTool tool);

// nullptr: no such name of others.
const MetricAlias* alias_of_other(std::string_view other);
// Rows of a name of ours; they stand together.
std::span<const MetricAlias* const> aliases_of_ours(std::string_view ours);
// Every name of others begins so.
bool may_be_other_name(std::string_view name);
// A PCI address as dcgm-exporter writes it: 00000000:1B:00.0
std::string dcgm_bus_id(std::string_view pci);

}  // namespace lockstep
