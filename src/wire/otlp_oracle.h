// libprotobuf as a second opinion on OTLP, from testdata/otlp_subset.proto. For the fuzzer and the benchmark only; the
// product never links libprotobuf.
//
// Thread rule: Confined.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/coded_stream.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "model/telemetry.h"

namespace lockstep::otlp {

class Oracle {
 public:
  Oracle() {
    std::ifstream file(OTLP_SUBSET_DESCRIPTOR, std::ios::binary);
    google::protobuf::FileDescriptorSet files;
    if (!files.ParseFromIstream(&file) || files.file_size() != 1 || pool_.BuildFile(files.file(0)) == nullptr) {
      std::fprintf(stderr, "otlp_oracle: cannot read %s\n", OTLP_SUBSET_DESCRIPTOR);
      std::abort();
    }
  }

  const google::protobuf::Descriptor* request_type(Signal signal) const {
    return pool_.FindMessageTypeByName(signal == Signal::kLogs    ? "lockstep.oracle.LogsRequest"
                                       : signal == Signal::kSpans ? "lockstep.oracle.SpansRequest"
                                                                  : "lockstep.oracle.MetricsRequest");
  }

  // nullptr where libprotobuf refuses the bytes.
  std::unique_ptr<google::protobuf::Message> parse(Signal signal, std::string_view bytes) {
    std::unique_ptr<google::protobuf::Message> message(factory_.GetPrototype(request_type(signal))->New());
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                              static_cast<int>(bytes.size()));
    in.SetRecursionLimit(1000);  // deeper than we go, so that the limits met are ours
    if (!message->ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) return nullptr;
    return message;
  }

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
};

}  // namespace lockstep::otlp
