#include "net/h2_client.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string number(uint32_t value, int bytes = 4) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
  return text;
}

enum Type : uint8_t { kData, kHeaders, kPriority, kReset, kSettings, kPush, kPing, kGoAway, kWindow, kContinuation };

std::string frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  return number(static_cast<uint32_t>(payload.size()), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         number(stream) + payload;
}

std::string setting(uint16_t id, uint32_t value) {
  return number(id, 2) + number(value);
}

struct SentFrame {
  uint8_t type;
  uint8_t flags;
  uint32_t stream;
  std::string payload;
};

// A server of one test: reads what the client wrote, frame by frame.
struct Conversation {
  H2Client client;
  std::string read;
  bool greeted = false;

  std::vector<SentFrame> frames() {
    while (!client.unsent().empty()) {
      read += client.unsent();
      client.sent(client.unsent().size());
    }
    if (!greeted) {
      EXPECT_TRUE(read.starts_with("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
      read.erase(0, 24);
      greeted = true;
    }
    std::vector<SentFrame> sent;
    auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(read[i])); };
    while (read.size() >= 9) {
      const uint32_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
      if (read.size() < 9 + length) break;
      sent.push_back({static_cast<uint8_t>(byte(3)), static_cast<uint8_t>(byte(4)),
                      byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8), read.substr(9, length)});
      read.erase(0, 9 + length);
    }
    return sent;
  }
  std::string body_of(const std::vector<SentFrame>& sent, uint32_t stream) {
    std::string body;
    for (const SentFrame& one : sent) {
      if (one.type == kData && one.stream == stream) body += one.payload;
    }
    return body;
  }
  void say(const std::string& bytes) {
    Result<void> fed = client.feed(bytes);
    ASSERT_TRUE(fed.ok()) << fed.error();
  }
  std::string refused(const std::string& bytes) {
    Result<void> fed = client.feed(bytes);
    EXPECT_FALSE(fed.ok());
    EXPECT_FALSE(client.usable());
    std::vector<SentFrame> sent = frames();
    EXPECT_EQ(sent.back().type, kGoAway);
    return fed.ok() ? "" : fed.error();
  }
  void ask(std::string body = "") { client.start({{":method", "POST"}, {":path", "/"}}, std::move(body), 100'000); }
};

const std::string kHello = frame(kSettings, 0, 0);
std::string status_200(uint8_t flags, uint32_t stream = 1) {
  return frame(kHeaders, flags, stream, hpack_encode({{":status", "200"}, {"a", "b"}}));
}

TEST(H2Client, CarriesACallWithHeadersBodyAndTrailers) {
  Conversation with;
  with.ask("question");
  with.say(kHello + status_200(0x4) + frame(kData, 0, 1, "ans") + frame(kData, 0x8, 1, std::string("\2wer\0\0", 6)) +
           frame(kHeaders, 0x5, 1, hpack_encode({{"grpc-status", "0"}})));
  ASSERT_TRUE(with.client.done());
  std::vector<SentFrame> sent = with.frames();
  EXPECT_EQ(sent[0].type, kSettings);
  EXPECT_EQ(with.body_of(sent, 1), "question");
  EXPECT_EQ(sent.back().type, kSettings);  // acknowledged
  EXPECT_EQ(sent.back().flags, 1);
  H2Response answer = with.client.take();
  EXPECT_EQ(answer.body, "answer");
  EXPECT_EQ(answer.headers.at(1).second, "b");
  EXPECT_EQ(answer.trailers.at(0).first, "grpc-status");
  EXPECT_TRUE(with.client.usable());
}

TEST(H2Client, ReadsTheSameHoweverTheBytesArrive) {
  Conversation with;
  with.ask();
  const std::string bytes = kHello + status_200(0x4) + frame(kData, 0x1, 1, "answer");
  for (char c : bytes) with.say(std::string(1, c));
  ASSERT_TRUE(with.client.done());
  EXPECT_EQ(with.client.take().body, "answer");
}

TEST(H2Client, SendsALargeBodyAsTheServerMakesRoom) {
  Conversation with;
  const std::string body(300'000, 'b');
  with.ask(body);
  std::string got = with.body_of(with.frames(), 1);
  EXPECT_EQ(got.size(), 65'535u);  // the window before anything is said
  with.say(frame(kSettings, 0, 0, setting(4, 100'000) + setting(5, 20'000)));
  EXPECT_EQ(with.body_of(with.frames(), 1), "");  // the connection's window is still shut
  with.say(frame(kWindow, 0, 0, number(1'000'000)));
  std::vector<SentFrame> more = with.frames();
  for (const SentFrame& one : more) EXPECT_LE(one.payload.size(), 20'000u);
  got += with.body_of(more, 1);
  EXPECT_EQ(got.size(), 100'000u);
  with.say(frame(kSettings, 0, 0, setting(4, 0)));  // below what was sent: the window is negative now
  with.say(frame(kWindow, 0, 1, number(100'000)));
  EXPECT_EQ(with.body_of(with.frames(), 1), "");
  with.say(frame(kWindow, 0, 1, number(200'000)));
  more = with.frames();
  got += with.body_of(more, 1);
  EXPECT_EQ(got, body);
  EXPECT_EQ(more.back().flags, 0x1);
}

TEST(H2Client, MakesRoomForALargeAnswer) {
  Conversation with;
  with.client.start({{":method", "POST"}}, "", 10'000'000);
  with.say(kHello + status_200(0x4));
  int64_t room = 65'535, stream_room = 1 << 20;
  for (const SentFrame& one : with.frames()) {
    if (one.type == kWindow)
      room += (static_cast<uint8_t>(one.payload[1]) << 16) + (static_cast<uint8_t>(one.payload[2]) << 8) +
              static_cast<uint8_t>(one.payload[3]);
  }
  EXPECT_EQ(room, 1 << 20);
  for (int i = 0; i < 200; ++i) {
    with.say(frame(kData, 0, 1, std::string(16'000, 'x')));
    room -= 16'000;
    stream_room -= 16'000;
    for (const SentFrame& one : with.frames()) {
      if (one.type != kWindow) continue;
      int64_t more = 0;
      for (char c : one.payload) more = more << 8 | static_cast<uint8_t>(c);
      (one.stream == 0 ? room : stream_room) += more;
    }
    ASSERT_GE(room, 16'000);
    ASSERT_GE(stream_room, 16'000);
  }
  with.say(frame(kData, 0x1, 1));
  EXPECT_EQ(with.client.take().body.size(), 3'200'000u);
}

TEST(H2Client, BreaksOffAnAnswerThatIsTooLargeAndGoesOn) {
  Conversation with;
  with.client.start({{":method", "POST"}}, "", 10);
  with.say(kHello + status_200(0x4) + frame(kData, 0, 1, "more than ten"));
  ASSERT_TRUE(with.client.done());
  EXPECT_TRUE(with.client.take().too_large);
  EXPECT_EQ(with.frames().back().type, kReset);
  with.say(frame(kData, 0x1, 1, "late"));  // of the call that is over
  ASSERT_TRUE(with.client.usable());
  with.ask();
  with.say(status_200(0x5, 3));
  EXPECT_TRUE(with.client.done());
}

TEST(H2Client, EndsItsHalfWhenTheServerAnswersBeforeItHasTheWholeRequest) {
  Conversation with;
  with.ask(std::string(200'000, 'b'));
  with.frames();
  with.say(kHello + status_200(0x5));
  ASSERT_TRUE(with.client.done());
  std::vector<SentFrame> sent = with.frames();
  EXPECT_EQ(sent.back().type, kReset);
  EXPECT_TRUE(with.client.usable());
}

TEST(H2Client, PutsHeadersTogetherThatComeInPieces) {
  Conversation with;
  with.ask();
  const std::string block = hpack_encode({{":status", "200"}, {"x", std::string(30'000, 'y')}});
  with.say(kHello + frame(kHeaders, 0x1, 1, block.substr(0, 3)) + frame(kContinuation, 0, 1, block.substr(3, 16'000)) +
           frame(kContinuation, 0x4, 1, block.substr(16'003)));
  ASSERT_TRUE(with.client.done());
  EXPECT_EQ(with.client.take().headers.at(1).second.size(), 30'000u);
}

TEST(H2Client, SkipsInterimAnswersAndWhatItDoesNotKnow) {
  Conversation with;
  with.ask();
  with.say(kHello + frame(kHeaders, 0x4, 1, hpack_encode({{":status", "100"}})) + frame(200, 0xff, 77, "later") +
           frame(kPriority, 0, 1, "12345") + frame(kSettings, 0, 0, setting(0x99, 1)) +
           frame(kHeaders, 0x25, 1, "12345" + hpack_encode({{":status", "204"}})));
  ASSERT_TRUE(with.client.done());
  EXPECT_EQ(with.client.take().headers.at(0).second, "204");
}

TEST(H2Client, AnswersAPing) {
  Conversation with;
  with.say(kHello + frame(kPing, 0, 0, "12345678"));
  std::vector<SentFrame> sent = with.frames();
  EXPECT_EQ(sent.back().type, kPing);
  EXPECT_EQ(sent.back().flags, 1);
  EXPECT_EQ(sent.back().payload, "12345678");
}

TEST(H2Client, FinishesACallOnAConnectionThatIsToEndAndStartsNoOther) {
  Conversation with;
  with.ask();
  with.say(kHello + frame(kGoAway, 0, 0, number(1) + number(0)));
  EXPECT_FALSE(with.client.done());
  with.say(status_200(0x5));
  ASSERT_TRUE(with.client.done());
  EXPECT_FALSE(with.client.take().not_processed);
  EXPECT_FALSE(with.client.usable());
}

TEST(H2Client, KnowsThatTheServerHasNotLookedAtACall) {
  Conversation with;
  with.ask();
  with.say(kHello + frame(kGoAway, 0, 0, number(0) + number(0)));
  ASSERT_TRUE(with.client.done());
  EXPECT_TRUE(with.client.take().not_processed);
  Conversation refused;
  refused.ask();
  refused.say(kHello + frame(kReset, 0, 1, number(7)));
  ASSERT_TRUE(refused.client.done());
  EXPECT_TRUE(refused.client.take().not_processed);
  EXPECT_TRUE(refused.client.usable());
  refused.ask();
  refused.say(frame(kReset, 0, 3, number(8)));
  H2Response cancelled = refused.client.take();
  EXPECT_TRUE(cancelled.reset);
  EXPECT_EQ(cancelled.reset_code, 8u);
  EXPECT_FALSE(cancelled.not_processed);
}

TEST(H2Client, SaysThatAnHttp1ServerIsNone) {
  Conversation with;
  with.ask();
  EXPECT_NE(with.refused("HTTP/1.1 400 Bad Request\r\n\r\n").find("does not speak HTTP/2"), std::string::npos);
}

TEST(H2Client, RefusesWhatIsMalformed) {
  const std::string block = hpack_encode({{":status", "200"}});
  for (const std::string& bytes : {
           frame(kData, 0, 1, "before settings"),
           kHello + frame(kData, 0, 0, "no stream"),
           kHello + frame(kData, 0, 3, "not open"),
           kHello + frame(kData, 0, 1, "before headers"),
           kHello + frame(kHeaders, 0x4, 2, block),
           kHello + frame(kHeaders, 0x4, 1, "\x80"),
           kHello + frame(kHeaders, 0x4, 1, hpack_encode({{"no", "status"}})),
           kHello + frame(kHeaders, 0xc, 1, "\x7f"),
           kHello + frame(kHeaders, 0, 1, block) + frame(kPing, 0, 0, "12345678"),
           kHello + frame(kContinuation, 0x4, 1, block),
           kHello + status_200(0x4) + frame(kHeaders, 0x4, 1, hpack_encode({{"a", "b"}})),
           kHello + frame(kPush, 0x4, 1, number(2) + block),
           kHello + frame(kPing, 0, 0, "short"),
           kHello + frame(kSettings, 0, 0, "short"),
           kHello + frame(kSettings, 0, 1),
           kHello + frame(kSettings, 1, 0, setting(4, 1)),
           kHello + frame(kSettings, 0, 0, setting(4, 0x80000000u)),
           kHello + frame(kSettings, 0, 0, setting(5, 100)),
           kHello + frame(kWindow, 0, 0, number(0)),
           kHello + frame(kWindow, 0, 0, number(0x7fffffff)),
           kHello + frame(kGoAway, 0, 0, "short"),
           kHello + frame(kReset, 0, 1, "short"),
           kHello + frame(kReset, 0, 9, number(0)),
           kHello + number(20'000, 3) + frame(kData, 0, 1).substr(3),
       }) {
    Conversation with;
    with.ask();
    EXPECT_NE(with.refused(bytes), "");
  }
}

TEST(H2Client, DoesNotGatherHeadersWithoutEnd) {
  Conversation empty;
  empty.ask();
  std::string endless = kHello + frame(kHeaders, 0, 1);
  for (int i = 0; i < 100; ++i) endless += frame(kContinuation, 0, 1);
  EXPECT_NE(empty.refused(endless).find("over the limit"), std::string::npos);
  Conversation large;
  large.ask();
  endless = kHello + frame(kHeaders, 0, 1);
  for (int i = 0; i < 10; ++i) endless += frame(kContinuation, 0, 1, std::string(16'000, 'x'));
  EXPECT_NE(large.refused(endless).find("over the limit"), std::string::npos);
}

TEST(H2Client, DoesNotAnswerPingsWithoutEndToAServerThatDoesNotRead) {
  Conversation with;
  std::string pings = kHello;
  for (int i = 0; i < 20'000; ++i) pings += frame(kPing, 0, 0, "12345678");
  EXPECT_NE(with.refused(pings).find("does not read"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
