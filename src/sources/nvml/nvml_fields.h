// Many numbers of one GPU in one call: the list of fields to ask for, which grows shorter as the GPU says what it does
// not have.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sources/gpu/gpu_metrics.h"
#include "sources/nvml/nvml_caller.h"

namespace lockstep::nvml {

struct FieldRow {
  uint32_t field;
  GpuMetric metric;  // kCount: asked for, but not a row of its own
  double scale;      // ours = theirs * scale
  const char* label = nullptr;
  uint32_t scope = 0;
};

// Read at every tick.
extern const std::vector<FieldRow> kFastFields;
// Read at slow ticks.
extern const std::vector<FieldRow> kSlowFields;

double field_number(const FieldValue& value);

class FieldBatch {
 public:
  struct Request {
    FieldRow row;
    int32_t link = -1;
  };
  // What one field of the batch said.
  using Take = std::function<void(const Request& request, double value)>;

  FieldBatch() = default;
  explicit FieldBatch(const std::vector<FieldRow>& rows);
  void add(const FieldRow& row, int32_t link = -1);
  void remove_link(int32_t link);

  // Asks for all of it in one call and hands on what is there. Fields that the GPU does not have leave the batch.
  void read(const Api& api, Caller& caller, const Take& take);

  bool asks_for(uint32_t field) const;
  bool empty() const { return requests_.empty(); }
  size_t size() const { return requests_.size(); }

 private:
  std::vector<Request> requests_;
  std::vector<FieldValue> values_;  // as requests_
  // Shorter only where a library refuses long lists.
  size_t per_call_ = SIZE_MAX;
};

}  // namespace lockstep::nvml
