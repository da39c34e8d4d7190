// libprotobuf's opinion on OTLP, from testdata/otlp_subset.proto.
//
// Thread rule: Confined.
#pragma once

#include "model/telemetry.h"
#include "wire/protobuf_oracle.h"

namespace lockstep::otlp {

class Oracle {
 public:
  const google::protobuf::Descriptor* request_type(Signal signal) const {
    return oracle_.type(signal == Signal::kLogs    ? "LogsRequest"
                        : signal == Signal::kSpans ? "SpansRequest"
                                                   : "MetricsRequest");
  }
  std::unique_ptr<google::protobuf::Message> parse(Signal signal, std::string_view bytes) {
    return oracle_.parse(request_type(signal), bytes);
  }

 private:
  ProtobufOracle oracle_{OTLP_SUBSET_DESCRIPTOR};
};

}  // namespace lockstep::otlp
