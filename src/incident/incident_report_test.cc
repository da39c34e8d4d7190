#include "incident/incident_report.h"

#include <gtest/gtest.h>

#include "base/json_reader.h"
#include "base/text.h"
#include "model/verdict.h"

namespace lockstep::incident {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

Report report_of(const std::string& job, const std::string& sentence) {
  Verdict verdict;
  verdict.id = "v1";
  verdict.job_id = job;
  verdict.sentence = sentence;
  verdict.chain = {{.claim = "Its clock is " + sentence, .kind = ClaimKind::kCounter, .query = "/api/signals"},
                   {.claim = "Not the network", .kind = ClaimKind::kExclusion}};
  verdict.alternatives = {{.culprit = "ecc (gpu)", .why_lower = "no errors"}};
  verdict.next = {{"Drain it", "scontrol drain " + job}};
  Report report{.now_unix_ns = 7'200 * kSecond, .prices = GpuPrices(2), .external_url = "https://lockstep.example/"};
  report.incident = {.id = "i-1", .place = {"gpu:GPU-1", "gpu", "node-1", "GPU-1"}, .begin_unix_ns = kSecond};
  report.incident.findings = {{.id = "v1",
                               .place = report.incident.place,
                               .job_id = job,
                               .sentence = sentence,
                               .begin_unix_ns = kSecond,
                               .seen_unix_ns = 3'600 * kSecond,
                               .lost_gpu_seconds = 7'200,
                               .lost_share = 0.2}};
  report.incident.entries = {{2 * kSecond, "acknowledged", "ann", "see " + sentence}};
  report.incident.radius = {.is_known = true, .gpus = 1, .hosts = 1, .jobs = {{job, 1, 8}, {"other", 1, 4}}};
  report.times = 4;
  report.evidence = {evidence_of(to_json(verdict))};
  report.outlooks = {outlook_of(costs_of(report.incident, report.now_unix_ns).front(), 8)};
  return report;
}

TEST(IncidentReport, AsMarkdownSaysWhatIsBrokenWhomItHitsWhatItCostsAndWhatToDo) {
  const std::string text = to_markdown(report_of("llm", "Rank 5 is slow."));
  for (const char* part : {
           "# Incident i-1: GPU-1 of node-1\n\nRank 5 is slow.",
           "- State: **open**, still seen",
           "- Cost: 2.0 GPU-hours lost, 4.00 at 2.00 a GPU-hour",
           "guilty 4 times in 30 days",
           "<https://lockstep.example/incidents/i-1>",
           "| llm | yes | 2.0 GPU-hours lost, 20 % of the job's time",
           "15 min later so far; while it lasts, an hour's work takes 75 min",
           "the job does not report how many steps are planned",
           "Also on it, with no verdict: other (1 of 4 ranks)",
           "acknowledged by ann: see Rank 5 is slow.",
           "- Its clock is Rank 5 is slow.",
           "**Ruled out**\n\n- Not the network\n\n**Less likely**\n\n- ecc (gpu): no errors",
           "\n    scontrol drain llm\n",
       })
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
}

TEST(IncidentReport, HostileNamesAreTextInMarkdownWhateverIsInThem) {
  const std::string evil =
      "x\n# Owned\r\n| a | ```sh [click](javascript:alert(1)) ![p](http://e.example/p.png) <img src=x> "
      "<!-- **b** _i_ ~~s~~ www.e.example &lt; \xE2\x80\xAE gnp\xE2\x80\x8B \xFF $x$";
  const std::string text = to_markdown(report_of(evil, evil));
  size_t lines = 0;
  for (const std::string_view line : split(text, '\n')) {
    lines += line.starts_with("# ");
    // A command is in a block of code, where nothing is markup.
    if (line.starts_with("    ")) continue;
    for (const char* mark :
         {"[click]", "![p]", "<img", "<!--", "```", "**b**", " _i_", "~~s~~", "http://", "www.e", "&lt", "$x$"}) {
      for (size_t at = line.find(mark); at != std::string_view::npos; at = line.find(mark, at + 1))
        EXPECT_TRUE(at > 0 && line[at - 1] == '\\') << mark << " in " << line;
    }
    if (line.starts_with("| x")) {
      EXPECT_EQ(line.find(" | a"), std::string_view::npos) << line;
    }
  }
  EXPECT_EQ(lines, 1u) << "one heading of the first level: ours\n" << text;
  for (const char* hidden : {"\xE2\x80\xAE", "\xE2\x80\x8B", "\xFF", "\r"})
    EXPECT_EQ(text.find(hidden), std::string::npos) << hidden;
  EXPECT_TRUE(is_utf8(text));
}

TEST(IncidentReport, AsJsonIsJsonWhateverIsInItsNames) {
  JsonWriter json;
  write_report(json, report_of("a\"b\n<c>", "s\\\""));
  const std::string text = json.take();
  const Result<JsonDocument> document = JsonDocument::parse(text);
  ASSERT_TRUE(document.ok()) << document.error();
  const JsonValue root = document->root();
  EXPECT_EQ(root["jobs"].begin().operator*()["job_id"].string(), "a\"b\n<c>");
  EXPECT_EQ(root["times"].integer(), 4);
  EXPECT_EQ((*root["verdicts"].begin())["id"].string(), "v1");
  EXPECT_EQ(root["lost_gpu_seconds"].number(), 7'200);
}

TEST(IncidentReport, AJobThatStandsStillEndsAsMuchLaterAsThisLasts) {
  const Outlook outlook = outlook_of({.job_id = "a", .lost_gpu_seconds = 80, .lost_share = 1, .suffers = true}, 8);
  EXPECT_TRUE(outlook.stands_still);
  EXPECT_DOUBLE_EQ(outlook.delay_s, 10);
  EXPECT_EQ(outlook_of({.job_id = "a", .lost_gpu_seconds = 80}, 0).sentence.find("how much later is not known"), 0u);
}

TEST(IncidentReport, TheTimelineIsInOrderAndSaysWhatIsOver) {
  Report report = report_of("llm", "Slow.");
  report.incident.findings[0].end_unix_ns = 100 * kSecond;
  std::vector<std::string> words;
  for (const Moment& one : timeline_of(report.incident, report.now_unix_ns)) words.push_back(one.what);
  EXPECT_EQ(words, (std::vector<std::string>{"began", "acknowledged", "over"}));
}

}  // namespace
}  // namespace lockstep::incident
