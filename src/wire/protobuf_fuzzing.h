// For fuzzers that judge a decoder by libprotobuf: messages read by name, and requests made from a recipe of bytes.
//
// Thread rule: Confined.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "base/protobuf_wire.h"

namespace lockstep::protobuf_fuzzing {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Reads a message by the field names of its description.
class View {
 public:
  explicit View(const Message& message) : message_(&message), reflection_(message.GetReflection()) {}

  bool has(const char* name) const { return reflection_->HasField(*message_, field(name)); }
  std::string text(const char* name) const { return reflection_->GetString(*message_, field(name)); }
  bool flag(const char* name) const { return reflection_->GetBool(*message_, field(name)); }
  double real(const char* name) const { return reflection_->GetDouble(*message_, field(name)); }
  int32_t int32(const char* name) const { return reflection_->GetInt32(*message_, field(name)); }
  uint32_t uint32(const char* name) const { return reflection_->GetUInt32(*message_, field(name)); }
  int64_t int64(const char* name) const { return reflection_->GetInt64(*message_, field(name)); }
  uint64_t uint64(const char* name) const { return reflection_->GetUInt64(*message_, field(name)); }
  int64_t time(const char* name) const {
    return static_cast<int64_t>(std::min<uint64_t>(uint64(name), std::numeric_limits<int64_t>::max()));
  }
  View message(const char* name) const { return View(reflection_->GetMessage(*message_, field(name))); }

  template <typename Visit>
  void each(const char* name, Visit&& visit) const {
    const FieldDescriptor* repeated = field(name);
    for (int i = 0; i < reflection_->FieldSize(*message_, repeated); ++i) {
      visit(View(reflection_->GetRepeatedMessage(*message_, repeated, i)));
    }
  }
  std::vector<uint64_t> counts(const char* name) const {
    std::vector<uint64_t> numbers;
    for (int i = 0; i < reflection_->FieldSize(*message_, field(name)); ++i) {
      numbers.push_back(reflection_->GetRepeatedUInt64(*message_, field(name), i));
    }
    return numbers;
  }
  std::vector<double> reals(const char* name) const {
    std::vector<double> numbers;
    for (int i = 0; i < reflection_->FieldSize(*message_, field(name)); ++i) {
      numbers.push_back(reflection_->GetRepeatedDouble(*message_, field(name), i));
    }
    return numbers;
  }
  std::vector<int64_t> int64s(const char* name) const {
    std::vector<int64_t> numbers;
    for (int i = 0; i < reflection_->FieldSize(*message_, field(name)); ++i) {
      numbers.push_back(reflection_->GetRepeatedInt64(*message_, field(name), i));
    }
    return numbers;
  }
  std::vector<uint32_t> uint32s(const char* name) const {
    std::vector<uint32_t> numbers;
    for (int i = 0; i < reflection_->FieldSize(*message_, field(name)); ++i) {
      numbers.push_back(reflection_->GetRepeatedUInt32(*message_, field(name), i));
    }
    return numbers;
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> texts;
    for (int i = 0; i < reflection_->FieldSize(*message_, field(name)); ++i) {
      texts.push_back(reflection_->GetRepeatedString(*message_, field(name), i));
    }
    return texts;
  }
  template <size_t kSize>
  void id(const char* name, std::array<uint8_t, kSize>& id) const {
    std::string bytes = text(name);
    if (bytes.size() == kSize) std::copy(bytes.begin(), bytes.end(), id.begin());
  }

 private:
  const FieldDescriptor* field(const char* name) const { return message_->GetDescriptor()->FindFieldByName(name); }
  const Message* message_;
  const google::protobuf::Reflection* reflection_;
};

// Fields that come twice, in pieces, out of order, packed and unpacked, or under a wrong type.
class RequestBuilder {
 public:
  RequestBuilder(const uint8_t* data, size_t size) : recipe_(data, size) {}

  std::string message(const google::protobuf::Descriptor* type, int depth) {
    std::string bytes;
    protobuf::WireWriter out(bytes);
    const FieldDescriptor* field = nullptr;
    for (int fields = recipe_.ConsumeIntegralInRange(1, 6); fields > 0 && recipe_.remaining_bytes() > 0; --fields) {
      // The same field again, often: that is where merging shows. The way down to the records is the last field.
      if (depth < 3 && recipe_.ConsumeBool()) {
        field = type->field(type->field_count() - 1);
      } else if (field == nullptr || recipe_.ConsumeBool()) {
        field = type->field(recipe_.ConsumeIntegralInRange(0, type->field_count() - 1));
      }
      const uint32_t number = static_cast<uint32_t>(field->number());
      const int oddity = recipe_.ConsumeIntegralInRange(0, 31);
      if (oddity == 0) {
        stray(out, bytes, number);
      } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
        if (depth < 24) out.bytes(number, message(field->message_type(), depth + 1));
      } else if (field->type() == FieldDescriptor::TYPE_BYTES) {
        static constexpr size_t kLengths[] = {0, 1, 3, 8, 8, 16, 16, 16};
        out.bytes(number, recipe_.ConsumeBytesAsString(recipe_.PickValueInArray(kLengths)));
      } else if (field->is_repeated() && recipe_.ConsumeBool()) {
        size_t began = out.begin(number);
        for (int i = recipe_.ConsumeIntegralInRange(0, 3); i > 0; --i) scalar(out, field);
        if (oddity == 1) bytes.push_back('\x80');
        out.end(began);
      } else {
        out.raw_varint(tag_of(field));
        scalar(out, field);
      }
    }
    return bytes;
  }

 private:
  // A field that the message does not know, or knows otherwise.
  void stray(protobuf::WireWriter& out, std::string& bytes, uint32_t number) {
    if (recipe_.ConsumeBool()) number = recipe_.ConsumeIntegralInRange<uint32_t>(0, 2000);
    switch (recipe_.ConsumeIntegralInRange(0, 6)) {
      case 0:
        return out.varint(number, recipe_.ConsumeIntegral<uint64_t>());
      case 1:
        return out.fixed64(number, 1);
      case 2:
        return out.fixed32(number, 1);
      case 3:
        return out.bytes(number, "stray");
      case 4:
        out.raw_varint(protobuf::tag_of(number, protobuf::kGroupBegin));
        out.varint(1, 1);
        return out.raw_varint(protobuf::tag_of(number, protobuf::kGroupEnd));
      default:
        bytes += recipe_.ConsumeBytesAsString(2);
    }
  }

  static uint32_t tag_of(const FieldDescriptor* field) {
    switch (field->type()) {
      case FieldDescriptor::TYPE_DOUBLE:
      case FieldDescriptor::TYPE_FIXED64:
      case FieldDescriptor::TYPE_SFIXED64:
        return protobuf::tag_of(static_cast<uint32_t>(field->number()), protobuf::kFixed64);
      case FieldDescriptor::TYPE_FIXED32:
        return protobuf::tag_of(static_cast<uint32_t>(field->number()), protobuf::kFixed32);
      default:
        return protobuf::tag_of(static_cast<uint32_t>(field->number()), protobuf::kVarint);
    }
  }

  void scalar(protobuf::WireWriter& out, const FieldDescriptor* field) {
    uint64_t value =
        recipe_.ConsumeBool() ? recipe_.ConsumeIntegralInRange<uint64_t>(0, 3) : recipe_.ConsumeIntegral<uint64_t>();
    switch (tag_of(field) & 7) {
      case protobuf::kFixed64:
        return out.raw_fixed(value);
      case protobuf::kFixed32:
        return out.raw_fixed(static_cast<uint32_t>(value));
      default:
        return out.raw_varint(value);
    }
  }

  FuzzedDataProvider recipe_;
};

}  // namespace lockstep::protobuf_fuzzing
