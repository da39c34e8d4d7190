#include "base/pickle_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "base/text.h"
#include "testing/hex.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

// A pickle as text that Python writes in the same way; see kPeer.
std::string canonical(PickleValue value, int depth = 0) {
  if (depth > 40) return "deep";
  if (value.is_none()) return "N";
  if (std::optional<bool> flag = value.boolean()) return *flag ? "T" : "F";
  if (std::optional<int64_t> whole = value.integer()) return format("i%lld", static_cast<long long>(*whole));
  if (std::optional<double> number = value.number())
    return format("f%016llx", static_cast<unsigned long long>(std::bit_cast<uint64_t>(*number)));
  if (std::optional<std::string_view> text = value.text()) return "s" + testing::hex(*text);
  std::string all = value.is_dict() ? "{" : "[";
  for (size_t i = 0; i < value.size(); ++i) {
    if (value.is_dict()) all += canonical(value.key(i), depth + 1) + "=";
    all += canonical(value.at(i), depth + 1) + ",";
  }
  return all + (value.is_dict() ? "}" : "]");
}

// Writes N random values in every protocol beside their canonical text.
constexpr const char* kPeer = R"python(
import pickle, random, struct, sys
folder, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
def text():
    return "".join(chr(rng.choice([65, 233, 0x20ac, 0x1f600, 10, 92, 0])) for _ in range(rng.choice([0, 1, 5, 300])))
def make(depth):
    kind = rng.randrange(9 if depth else 5)
    if kind == 0: return rng.choice([None, True, False])
    if kind == 1: return rng.choice([0, 1, -1, 255, 256, 65535, 65536, 2**31, -2**31, -2**31 - 1, 2**63 - 1, -2**63, 1724779239936775119])
    if kind == 2: return rng.choice([0.0, -1.5, 1e300, float("inf"), rng.random()])
    if kind in (3, 4): return text()
    size = rng.choice([0, 1, 2, 3, 4, 20])
    if kind == 5: return tuple(make(depth - 1) for _ in range(size))
    if kind == 6: return {rng.choice([text(), i, (i, text())]): make(depth - 1) for i in range(size)}
    if kind == 7: shared = make(depth - 1); return [shared] * size
    return [make(depth - 1) for _ in range(size)]
def canonical(v):
    if v is None: return "N"
    if v is True: return "T"
    if v is False: return "F"
    if isinstance(v, int): return f"i{v}"
    if isinstance(v, float): return "f" + struct.pack(">d", v).hex()
    if isinstance(v, str): return "s" + v.encode().hex()
    if isinstance(v, dict): return "{" + "".join(canonical(k) + "=" + canonical(x) + "," for k, x in v.items()) + "}"
    return "[" + "".join(canonical(x) + "," for x in v) + "]"
for number in range(count):
    value = make(4)
    open(f"{folder}/{number}.text", "w").write(canonical(value))
    for protocol in range(2, 6):
        open(f"{folder}/{number}.{protocol}", "wb").write(pickle.dumps(value, protocol))
)python";

TEST(Pickle, ReadsWhatPythonWrites) {
  constexpr int kValues = 200;
  testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/peer.py") << kPeer;
  const std::string command =
      format("python3 %s/peer.py %s %d 7", folder.path().c_str(), folder.path().c_str(), kValues);
  if (std::system("python3 -c pass") != 0) GTEST_SKIP() << "no python3 here";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (int number = 0; number < kValues; ++number) {
    const std::string stem = format("%s/%d.", folder.path().c_str(), number);
    Result<std::string> expected = read_file(stem + "text", 64 << 20);
    ASSERT_TRUE(expected.ok());
    for (int protocol = 2; protocol <= 5; ++protocol) {
      Result<std::string> bytes = read_file(stem + std::to_string(protocol), 64 << 20);
      ASSERT_TRUE(bytes.ok());
      Result<Pickle> pickle = Pickle::parse_untrusted(*bytes);
      ASSERT_TRUE(pickle.ok()) << number << ", protocol " << protocol << ": " << pickle.error();
      EXPECT_EQ(canonical(pickle->root()), *expected) << number << ", protocol " << protocol;
      // Cut anywhere, it is refused: a file that is still being written is not taken for whole.
      for (size_t length : {size_t{0}, size_t{1}, bytes->size() / 2, bytes->size() - 1})
        EXPECT_FALSE(Pickle::parse_untrusted(bytes->substr(0, length)).ok()) << number << ", " << length << " bytes";
    }
  }
}

TEST(Pickle, RefusesWhateverCouldRunCode) {
  // What pickle.dumps(SomeObject) and the classic attack are made of.
  for (const std::string& bytes : {"\x80\x02"s
                                   "cos\nsystem\nX\x02\x00\x00\x00"s
                                   "id\x85R."s,
                                   "\x80\x04\x8c\x02os\x8c\x06system\x93."s, "\x80\x02}b."s, "\x80\x02(ios\nsystem\n."s,
                                   "\x80\x02)\x81."s, "\x80\x02Pabc\n."s, "\x80\x02\x82\x01."s}) {
    Result<Pickle> pickle = Pickle::parse_untrusted(bytes);
    ASSERT_FALSE(pickle.ok());
    EXPECT_NE(pickle.error().find("is refused: only plain data is read"), std::string::npos) << pickle.error();
  }
}

TEST(Pickle, SaysInOneLineWhatIsWrong) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "cut short"},
      {"hello", "does not begin with PROTO"},
      {"\x80\x06N."s, "protocol 6 (2 to 5 are read)"},
      {"\x80\x02N", "cut short"},
      {"\x80\x02X\xff\xff\xff\x7f"s
       "a.",
       "goes past the end"},
      {"\x80\x02\x8a\x09"s
       "123456789.",
       "more than 64 bits"},
      {"\x80\x02NN.", "no single value"},
      {"\x80\x02N.N", "bytes follow"},
      {"\x80\x02h\x00."s, "never remembered"},
      {"\x80\x02"s
       "e.",
       "no mark"},
      {"\x80\x02}(Nu.", "a key without a value"},
      {"\x80\x02N(Ne.", "takes none"},
      {"\x80\x02\xfe.", "0xfe is not known"},
  };
  for (const auto& [bytes, what] : cases) {
    Result<Pickle> pickle = Pickle::parse_untrusted(bytes);
    ASSERT_FALSE(pickle.ok()) << what;
    EXPECT_NE(pickle.error().find(what), std::string::npos) << pickle.error();
    EXPECT_EQ(pickle.error().find('\n'), std::string::npos);
  }
}

TEST(Pickle, KeepsWithinItsLimits) {
  EXPECT_FALSE(Pickle::parse_untrusted("\x80\x02"s + std::string(100, ']') + ".", {.values_max = 50}).ok());
  EXPECT_FALSE(Pickle::parse_untrusted("\x80\x02N"s + std::string(100, '2') + ".", {.values_max = 50}).ok());
  EXPECT_FALSE(Pickle::parse_untrusted("\x80\x02"s + std::string(100, '(') + ".", {.depth_max = 50}).ok());
  EXPECT_FALSE(Pickle::parse_untrusted("\x80\x02N.", {.bytes_max = 3}).ok());
}

TEST(Pickle, AListMayHoldItself) {
  Result<Pickle> pickle = Pickle::parse_untrusted(
      "\x80\x02]q\x00h\x00"s
      "a."s);
  ASSERT_TRUE(pickle.ok()) << pickle.error();
  EXPECT_EQ(pickle->root().at(0).at(0).size(), 1u);
}

}  // namespace
}  // namespace lockstep
