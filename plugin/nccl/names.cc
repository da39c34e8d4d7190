#include "plugin/nccl/names.h"

#include <cstddef>

namespace lockstep::nccl {
namespace {

struct Name {
  const char* text;
  uint8_t value;
};

// The usual ones first: the search stops at the first hit.
constexpr Name kFunctions[] = {
    {"AllReduce", static_cast<uint8_t>(Function::kAllReduce)},
    {"AllGather", static_cast<uint8_t>(Function::kAllGather)},
    {"ReduceScatter", static_cast<uint8_t>(Function::kReduceScatter)},
    {"Send", static_cast<uint8_t>(Function::kSend)},
    {"Recv", static_cast<uint8_t>(Function::kRecv)},
    {"Broadcast", static_cast<uint8_t>(Function::kBroadcast)},
    {"Reduce", static_cast<uint8_t>(Function::kReduce)},
    {"AlltoAll", static_cast<uint8_t>(Function::kAlltoAll)},
    {"Gather", static_cast<uint8_t>(Function::kGather)},
    {"Scatter", static_cast<uint8_t>(Function::kScatter)},
    {"SendRecv", static_cast<uint8_t>(Function::kSendRecv)},
};
// After "nccl".
constexpr Name kDatatypes[] = {
    {"Bfloat16", static_cast<uint8_t>(Datatype::kBfloat16)},
    {"Float32", static_cast<uint8_t>(Datatype::kFloat32)},
    {"Int8", static_cast<uint8_t>(Datatype::kInt8)},
    {"Float16", static_cast<uint8_t>(Datatype::kFloat16)},
    {"Int32", static_cast<uint8_t>(Datatype::kInt32)},
    {"Int64", static_cast<uint8_t>(Datatype::kInt64)},
    {"Uint8", static_cast<uint8_t>(Datatype::kUint8)},
    {"Uint32", static_cast<uint8_t>(Datatype::kUint32)},
    {"Uint64", static_cast<uint8_t>(Datatype::kUint64)},
    {"Float64", static_cast<uint8_t>(Datatype::kFloat64)},
    {"Float8e4m3", static_cast<uint8_t>(Datatype::kFloat8e4m3)},
    {"Float8e5m2", static_cast<uint8_t>(Datatype::kFloat8e5m2)},
};
constexpr Name kAlgorithms[] = {{"RING", 2},           {"TREE", 1}, {"NVLS", 5},         {"NVLS_TREE", 6},
                                {"COLLNET_DIRECT", 3}, {"PAT", 7},  {"COLLNET_CHAIN", 4}};
constexpr Name kProtocols[] = {{"SIMPLE", 3}, {"LL128", 2}, {"LL", 1}};

// Equal, inline: most candidates differ in the first byte, where a call to strcmp costs more than the comparison.
bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

template <size_t N>
uint8_t find(const Name (&names)[N], const char* text) {
  if (text == nullptr) return 0;
  for (const Name& name : names) {
    if (same(name.text, text)) return name.value;
  }
  return 0;
}

}  // namespace

Function function_of(const char* name) {
  return static_cast<Function>(find(kFunctions, name));
}

// "Unknown" is what every NCCL so far says of uint8, and of nothing else: it has no name for it.
Datatype datatype_of(const char* name) {
  if (name != nullptr && same(name, "Unknown")) return Datatype::kUint8;
  if (name == nullptr || name[0] != 'n' || name[1] != 'c' || name[2] != 'c' || name[3] != 'l')
    return Datatype::kUnknown;
  return static_cast<Datatype>(find(kDatatypes, name + 4));
}

uint8_t algorithm_of(const char* name) {
  return find(kAlgorithms, name);
}
uint8_t protocol_of(const char* name) {
  return find(kProtocols, name);
}

namespace {

template <typename T, size_t N>
T at(const T (&values)[N], uint8_t number) {
  return number < N ? values[number] : T{};
}

}  // namespace

Function function_of_v1(uint8_t number) {
  constexpr Function kInOrder[] = {Function::kBroadcast,     Function::kReduce,    Function::kAllGather,
                                   Function::kReduceScatter, Function::kAllReduce, Function::kSendRecv,
                                   Function::kSend,          Function::kRecv};
  return at(kInOrder, number);
}

Datatype datatype_of_v1(uint8_t number) {
  constexpr Datatype kInOrder[] = {Datatype::kInt8,     Datatype::kUint8,      Datatype::kInt32,
                                   Datatype::kUint32,   Datatype::kInt64,      Datatype::kUint64,
                                   Datatype::kFloat16,  Datatype::kFloat32,    Datatype::kFloat64,
                                   Datatype::kBfloat16, Datatype::kFloat8e4m3, Datatype::kFloat8e5m2};
  return at(kInOrder, number);
}

uint8_t algorithm_of_v1(uint8_t number) {
  return number < 7 ? static_cast<uint8_t>(number + 1) : 0;
}
uint8_t protocol_of_v1(uint8_t number) {
  return number < 3 ? static_cast<uint8_t>(number + 1) : 0;
}

}  // namespace lockstep::nccl
