// libprotobuf as a second opinion on the wire, from a description in our own words (testdata/*.proto). For fuzzers and
// benchmarks only; the product never links libprotobuf.
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
#include <string>
#include <string_view>

namespace lockstep {

class ProtobufOracle {
 public:
  explicit ProtobufOracle(const char* descriptor_file) {
    std::ifstream file(descriptor_file, std::ios::binary);
    google::protobuf::FileDescriptorSet files;
    if (!files.ParseFromIstream(&file) || files.file_size() != 1 || pool_.BuildFile(files.file(0)) == nullptr) {
      std::fprintf(stderr, "oracle: cannot read %s\n", descriptor_file);
      std::abort();
    }
  }

  const google::protobuf::Descriptor* type(const char* name) const {
    return pool_.FindMessageTypeByName(std::string("lockstep.oracle.") + name);
  }

  // nullptr where libprotobuf refuses the bytes.
  std::unique_ptr<google::protobuf::Message> parse(const google::protobuf::Descriptor* type, std::string_view bytes) {
    std::unique_ptr<google::protobuf::Message> message(factory_.GetPrototype(type)->New());
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

}  // namespace lockstep
