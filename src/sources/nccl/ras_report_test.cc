#include "sources/nccl/ras_report.h"

#include <gtest/gtest.h>

#include <map>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

// A rank as NCCL writes it.
std::string rank_json(int rank, int all_reduces, int pid = 4000, const char* extra = "") {
  return format(R"(
        {
          "rank": %d,
          "host": "10.0.0.%d",
          "pid": %d,
          "cuda_dev": %d,
          "nvml_dev": %d,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },%s
          "collective_counts": {
            "Broadcast": 2,
            "Reduce": 0,
            "AllGather": 7,
            "ReduceScatter": 7,
            "AllReduce": %d
          }
        })",
                rank, 1 + rank / 2, pid + rank, rank % 2, rank % 2, extra, all_reduces);
}

std::string missing_json(int rank, const char* comma, const char* dead = "false") {
  return format(R"(
        {
          "rank": %d,
          "host": "10.0.0.2",
          "pid": 4003,
          "cuda_dev": 1,
          "nvml_dev": 1%s
          "status": {
            "unresponsive": true,
            "considered_dead": %s
          }
        })",
                rank, comma, dead);
}

std::string comm_json(const std::string& hash, const std::string& ranks, const std::string& missing) {
  return R"(
    {
      "hash": )" +
         hash + R"(,
      "secondary_hash": "0x1b:0x2c",
      "size": 4,
      "ranks_count": 4,
      "missing_ranks_count": 0,
      "ranks": [)" +
         ranks + R"(
      ],
      "missing_ranks": [)" +
         missing + R"(
      ]
    })";
}

std::string report_json(const std::string& comms) {
  return R"({
  "nccl_version": "2.28.9",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-03-01 12:00:00",
  "communicators_count": 1,
  "communicators": [)" +
         comms + R"(
  ],
  "ras": {
    "collection_time_sec": 1.004,
    "timeouts_count": 1
  }
}
)";
}

std::string four_ranks() {
  return rank_json(0, 42) + "," + rank_json(1, 42) + "," + rank_json(2, 41) + "," + rank_json(3, 42);
}

std::string error_of(const Result<RasReport>& report) {
  return report.ok() ? "accepted" : report.error();
}

TEST(RasJson, TellsEveryRankAndWhoIsBehind) {
  Result<RasReport> report = parse_ras_json(report_json(comm_json("\"0xfedcba9876543210\"", four_ranks(), "")));
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_EQ(report->nccl_version, "2.28.9");
  EXPECT_EQ(report->timestamp, "2026-03-01 12:00:00");
  EXPECT_EQ(report->collection_ms, 1004);
  EXPECT_EQ(report->timeouts, 1);
  EXPECT_EQ(report->comms_count, 1);
  EXPECT_TRUE(report->counts_reported);
  ASSERT_EQ(report->comms.size(), 1u);
  const RasComm& comm = report->comms[0];
  EXPECT_EQ(comm.hash, 0xfedcba9876543210u);
  EXPECT_EQ(comm.size, 4);
  ASSERT_EQ(comm.ranks.size(), 4u);
  const RasRank& third = comm.ranks[2];
  EXPECT_EQ(third.rank_in_comm, 2);
  EXPECT_EQ(third.host, "10.0.0.2");
  EXPECT_EQ(third.pid, 4002);
  EXPECT_EQ(third.cuda_dev, 0);
  EXPECT_EQ(third.counts.by_function, (std::array<uint64_t, 5>{2, 0, 7, 7, 41}));
  EXPECT_EQ(third.counts.launched(), 57u);

  ASSERT_EQ(comm.mismatches.size(), 1u) << "of AllReduce alone";
  EXPECT_EQ(comm.mismatches[0].function, Function::kAllReduce);
  ASSERT_EQ(comm.mismatches[0].groups.size(), 2u);
  EXPECT_EQ(comm.mismatches[0].groups[0].launched, 41u);
  EXPECT_EQ(comm.mismatches[0].groups[0].ranks_in_comm, std::vector<int32_t>{2});
  EXPECT_EQ(comm.mismatches[0].groups[1].launched, 42u);
  EXPECT_EQ(comm.mismatches[0].groups[1].ranks_count, 3);
  EXPECT_EQ(comm.mismatches[0].groups[1].ranks_in_comm, (std::vector<int32_t>{0, 1, 3}));
}

TEST(RasJson, ReadsWhatAStatusSays) {
  std::string ranks = rank_json(0, 42);
  auto change = [&](std::string_view from, std::string_view to) { ranks.replace(ranks.find(from), from.size(), to); };
  change("\"init_state\": 0", "\"init_state\": 7");
  change("\"async_error\": 0", "\"async_error\": 6");
  change("\"finalize_called\": false", "\"finalize_called\": true");
  change("\"abort_flag\": false", "\"abort_flag\": true");
  Result<RasReport> report = parse_ras_json(report_json(comm_json("17", ranks, "")));
  ASSERT_TRUE(report.ok()) << report.error();
  const RasRank& rank = report->comms[0].ranks[0];
  EXPECT_EQ(report->comms[0].hash, 17u) << "a hash may be a number";
  EXPECT_EQ(rank.init_state, 7);
  EXPECT_EQ(rank.async_error, 6);
  EXPECT_TRUE(rank.finalize_called);
  EXPECT_FALSE(rank.destroy_flag);
  EXPECT_TRUE(rank.abort_flag);
  EXPECT_TRUE(report->comms[0].mismatches.empty());
}

TEST(RasJson, ReadsMissingRanksWithAndWithoutTheComma) {
  std::string present = rank_json(0, 42) + "," + rank_json(1, 42);
  std::string with =
      report_json(comm_json("\"0x1\"", present, missing_json(2, ",") + "," + missing_json(3, ",", "true")));
  std::string without =
      report_json(comm_json("\"0x1\"", present, missing_json(2, "") + "," + missing_json(3, "", "true")));
  ASSERT_NE(with, without);
  for (const std::string& text : {with, without}) {
    Result<RasReport> report = parse_ras_json(text);
    ASSERT_TRUE(report.ok()) << report.error();
    const RasComm& comm = report->comms[0];
    EXPECT_EQ(comm.ranks.size(), 2u);
    ASSERT_EQ(comm.missing.size(), 2u);
    EXPECT_EQ(comm.missing[0].rank_in_comm, 2);
    EXPECT_EQ(comm.missing[0].pid, 4003);
    EXPECT_EQ(comm.missing[0].nvml_dev, 1);
    EXPECT_TRUE(comm.missing[0].unresponsive);
    EXPECT_FALSE(comm.missing[0].considered_dead);
    EXPECT_TRUE(comm.missing[1].considered_dead);
  }
}

TEST(RasJson, RepairsNoOtherComma) {
  std::string text = report_json(comm_json("\"0x1\"", four_ranks(), missing_json(3, "")));
  size_t comma = text.find(",\n          \"pid\"");
  ASSERT_NE(comma, std::string::npos);
  text.erase(comma, 1);
  EXPECT_EQ(error_of(parse_ras_json(text)), "RAS JSON: byte 406: a comma or the end of the list is wanted here");
}

TEST(RasJson, RepairsNothingInsideAString) {
  std::string host = R"(\"nvml_dev\": 1 \"status\")";
  std::string ranks = rank_json(0, 1);
  ranks.replace(ranks.find("10.0.0.1"), 8, host);
  Result<RasReport> report = parse_ras_json(report_json(comm_json("\"0x1\"", ranks, missing_json(3, ""))));
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_EQ(report->comms[0].ranks[0].host, R"("nvml_dev": 1 "status")");
}

TEST(RasJson, PassesOverWhatItDoesNotKnow) {
  std::string ranks =
      rank_json(0, 42, 4000, R"("mood": {"rank": "good", "list": [1, 2, {}]},)") + "," + rank_json(1, 42);
  ranks.insert(ranks.find("\"AllReduce\""), "\"AllToAllV\": 5, ");
  Result<RasReport> report = parse_ras_json(report_json(comm_json("\"0x1\"", ranks, "")));
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_EQ(report->comms[0].ranks[0].counts.other, 5u);
  EXPECT_EQ(report->comms[0].ranks[0].counts.launched(), 63u);
  ASSERT_EQ(report->comms[0].mismatches.size(), 1u) << "a function without a name here can be out of step as well";
  EXPECT_EQ(report->comms[0].mismatches[0].function, Function::kUnknown);
  EXPECT_EQ(report->comms[0].mismatches[0].groups[0].ranks_in_comm, std::vector<int32_t>{1});
}

TEST(RasJson, NeedsLittle) {
  Result<RasReport> report =
      parse_ras_json(R"({"communicators": [{"hash": "0xA", "size": 2, "ranks": [{"rank": 1}]}]})");
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_EQ(report->comms[0].ranks[0].pid, -1);
  EXPECT_EQ(report->comms_count, 1);
  EXPECT_TRUE(parse_ras_json(R"({"communicators": []})").ok()) << "a job without communicators yet";
}

TEST(RasJson, SaysInOneLineWhatIsWrongAndWhere) {
  auto with_rank = [](const std::string& rank) {
    return parse_ras_json(R"({"communicators": [{"hash": 1, "size": 4}, {"hash": "0x2", "size": 4, "ranks": [)" + rank +
                          "]}]}");
  };
  EXPECT_EQ(error_of(parse_ras_json("")), "RAS JSON: byte 0: not a value");
  EXPECT_EQ(error_of(parse_ras_json("[]")), "RAS JSON: there is no list of communicators in it");
  EXPECT_EQ(error_of(parse_ras_json(R"({"communicators": {"hash": 1}})")),
            "RAS JSON: there is no list of communicators in it");
  EXPECT_EQ(error_of(parse_ras_json(R"({"communicators": [{"size": 1}]})")), "RAS JSON: communicator 0: no hash");
  EXPECT_EQ(error_of(parse_ras_json(R"({"communicators": [{"hash": "0x1g", "size": 1}]})")),
            "RAS JSON: communicator 0: no hash");
  EXPECT_EQ(error_of(parse_ras_json(R"({"communicators": [{"hash": 1}]})")), "RAS JSON: communicator 0: no size");
  EXPECT_EQ(error_of(parse_ras_json(R"({"communicators": [{"hash": 1, "size": 99999999}]})")),
            "RAS JSON: communicator 0: size is 99999999 (limits 1 and 1048576)");
  EXPECT_EQ(error_of(with_rank(R"({"rank": 1})")), "accepted");
  EXPECT_EQ(error_of(with_rank("{}")), "RAS JSON: communicator 1, entry 0 of ranks: no rank");
  EXPECT_EQ(error_of(with_rank("7")), "RAS JSON: communicator 1, entry 0 of ranks: no rank");
  EXPECT_EQ(error_of(with_rank(R"({"rank": 4})")),
            "RAS JSON: communicator 1, entry 0 of ranks: rank is 4 (limits 0 and 3)");
  EXPECT_EQ(error_of(with_rank(R"({"rank": 1}, {"rank": 2, "pid": "x"})")),
            "RAS JSON: communicator 1, entry 1 of ranks: pid is not a whole number");
  EXPECT_EQ(error_of(with_rank(R"({"rank": 1, "host": "a\nb"})")),
            "RAS JSON: communicator 1, entry 0 of ranks: host is not a plain string of at most 255 bytes");
  EXPECT_NE(error_of(with_rank(R"({"rank": 1, "host": ")" + std::string(256, 'h') + "\"}")), "accepted");
  EXPECT_EQ(error_of(with_rank(R"({"rank": 1, "collective_counts": {"AllReduce": -1}})")),
            "RAS JSON: communicator 1, entry 0 of ranks: a collective count is not a whole number");
  EXPECT_EQ(error_of(with_rank(R"({"rank": 1, "status": {"abort_flag": 1}})")),
            "RAS JSON: communicator 1, entry 0 of ranks: abort_flag is neither true nor false");
}

TEST(RasJson, KeepsToItsLimits) {
  auto repeat = [](const std::string& item, size_t count) {
    std::string list;
    for (size_t i = 0; i < count; ++i) list += (i > 0 ? "," : "") + item;
    return list;
  };
  auto comms = [&](size_t count) { return R"({"communicators": [)" + repeat(R"({"hash":1,"size":1})", count) + "]}"; };
  EXPECT_EQ(error_of(parse_ras_json(comms(kRasCommsMax))), "accepted");
  EXPECT_EQ(error_of(parse_ras_json(comms(kRasCommsMax + 1))),
            "RAS JSON: communicator 16384: more than 16384 communicators");
  auto ranks = [&](size_t count) {
    return R"({"communicators": [{"hash":1,"size":1,"ranks":[)" + repeat(R"({"rank":0})", count) +
           R"(],"missing_ranks":[{"rank":0}]}]})";
  };
  EXPECT_EQ(error_of(parse_ras_json(ranks(kRasRanksMax - 1))), "accepted");
  EXPECT_EQ(error_of(parse_ras_json(ranks(kRasRanksMax))),
            "RAS JSON: communicator 0, entry 0 of missing_ranks: more than 131072 ranks in all");
  EXPECT_EQ(error_of(parse_ras_json(std::string(kRasBytesMax + 1, ' '))),
            "RAS JSON: 16777217 bytes are over the limit of 16777216");
}

TEST(RasJson, RefusesEveryReportThatIsCutShort) {
  std::string text = report_json(comm_json("\"0x1\"", four_ranks(), missing_json(3, "")));
  text.pop_back();  // the end of the last line
  ASSERT_EQ(error_of(parse_ras_json(text)), "accepted");
  for (size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(error_of(parse_ras_json(std::string_view(text).substr(0, length))), "accepted") << length;
}

// A job of 2.27: rank 3 does not answer and its process is given up, rank 2 is one AllReduce behind, 1 has had an
// error.
constexpr const char* kText = R"(NCCL version 2.27.7 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (1.02s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       3-4         8         7   RUNNING  INCOMPLETE,ERROR,MISMATCH
    1         4         1         2         2         8   RUNNING      OK

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 4009 on node 10.0.0.2 managing GPU 3

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4003 on node 10.0.0.1 managing GPU 3

#0-0 (5a1e9cc4d1f1b2aa) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 3 -- GPU 3 managed by process 4003 on node 10.0.0.1
  Rank 7 -- GPU 3 (NVML 7) managed by process 4009 on node 10.0.0.2

#0-0 (5a1e9cc4d1f1b2aa) ERROR
  Asynchronous error on 1 rank
  Rank 1 reported Remote process error -- GPU 1 managed by process 4001 on node 10.0.0.1

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (5a1e9cc4d1f1b2aa) MISMATCH
  Communicator ranks have different status
  4 ranks have status RUNNING
  Rank 5 has status ABORT -- GPU 1 managed by process 4007 on node 10.0.0.2
  Rank 4 has status NOCOMM -- GPU 0 managed by process 4006 on node 10.0.0.2
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 42
  2 ranks have launched up to operation 41
  Rank 2 -- GPU 2 managed by process 4002 on node 10.0.0.1
  Rank 6 -- [process information not found]
  Rank 5 has not launched any operations -- GPU 1 managed by process 4007 on node 10.0.0.2

  Communicator ranks have different Broadcast operation counts
  5 ranks have launched up to operation 1
  Rank 0 has launched up to operation 2 -- GPU 0 managed by process 4000 on node 10.0.0.1

)";

TEST(RasText, NamesTheCommunicatorInTroubleAndItsOutliers) {
  Result<RasReport> report = parse_ras_text(kText);
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_EQ(report->nccl_version, "2.27.7");
  EXPECT_EQ(report->collection_ms, 1020);
  EXPECT_EQ(report->timeouts, 2);
  EXPECT_EQ(report->comms_count, 5);
  EXPECT_FALSE(report->counts_reported);
  ASSERT_EQ(report->comms.size(), 1u) << "the four healthy ones are not named";
  const RasComm& comm = report->comms[0];
  EXPECT_EQ(comm.hash, 0x5a1e9cc4d1f1b2aau);
  EXPECT_EQ(comm.size, 8);

  ASSERT_EQ(comm.missing.size(), 3u);
  EXPECT_EQ(comm.missing[0].rank_in_comm, 3);
  EXPECT_TRUE(comm.missing[0].unresponsive);
  EXPECT_TRUE(comm.missing[0].considered_dead);
  EXPECT_EQ(comm.missing[1].rank_in_comm, 7);
  EXPECT_EQ(comm.missing[1].pid, 4009);
  EXPECT_EQ(comm.missing[1].host, "10.0.0.2");
  EXPECT_EQ(comm.missing[1].cuda_dev, 3);
  EXPECT_EQ(comm.missing[1].nvml_dev, 7);
  EXPECT_TRUE(comm.missing[1].unresponsive);
  EXPECT_FALSE(comm.missing[1].considered_dead);
  EXPECT_EQ(comm.missing[2].rank_in_comm, 4);
  EXPECT_FALSE(comm.missing[2].unresponsive) << "it answered, without this communicator";

  std::map<int, const RasRank*> ranks;
  for (const RasRank& rank : comm.ranks)
    EXPECT_TRUE(ranks.emplace(rank.rank_in_comm, &rank).second) << rank.rank_in_comm;
  ASSERT_EQ(ranks.size(), 5u);
  EXPECT_EQ(ranks.at(1)->async_error, 6);
  EXPECT_EQ(ranks.at(1)->pid, 4001);
  EXPECT_TRUE(ranks.at(5)->abort_flag);
  EXPECT_FALSE(ranks.at(2)->abort_flag);
  EXPECT_EQ(ranks.at(2)->host, "10.0.0.1");
  EXPECT_EQ(ranks.at(6)->pid, -1);

  ASSERT_EQ(comm.mismatches.size(), 2u);
  const RasMismatch& all_reduce = comm.mismatches[0];
  EXPECT_EQ(all_reduce.function, Function::kAllReduce);
  ASSERT_EQ(all_reduce.groups.size(), 3u);
  EXPECT_EQ(all_reduce.groups[0].launched, 0u);
  EXPECT_EQ(all_reduce.groups[0].ranks_in_comm, std::vector<int32_t>{5});
  EXPECT_EQ(all_reduce.groups[1].launched, 41u);
  EXPECT_EQ(all_reduce.groups[1].ranks_in_comm, (std::vector<int32_t>{2, 6}));
  EXPECT_EQ(all_reduce.groups[2].launched, 42u);
  EXPECT_EQ(all_reduce.groups[2].ranks_count, 3);
  EXPECT_TRUE(all_reduce.groups[2].ranks_in_comm.empty()) << "the majority is not named";
  EXPECT_EQ(comm.mismatches[1].function, Function::kBroadcast);
  EXPECT_EQ(comm.mismatches[1].groups[1].ranks_in_comm, std::vector<int32_t>{0});
}

TEST(RasText, ReadsTheOldestFormToo) {
  Result<RasReport> report = parse_ras_text(R"(NCCL version 2.24.3+cuda12.6 compiled with CUDA 12.6

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         2         1         4         4         4   RUNNING  INCOMPLETE,MISMATCH

Errors
======

#0-1 (00000000000000ff) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 2,3

Warnings
========

#0-1 (00000000000000ff) MISMATCH
  Communicator ranks have different collective operation counts
  Rank 0 has launched up to operation 9 -- GPU 0 managed by process 1 on node 10.0.0.1
  Rank 1 has launched up to operation 8 -- GPU 1 managed by process 2 on node 10.0.0.1

)");
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_EQ(report->nccl_version, "2.24.3+cuda12.6");
  EXPECT_EQ(report->comms_count, 2);
  ASSERT_EQ(report->comms.size(), 1u);
  const RasComm& comm = report->comms[0];
  EXPECT_EQ(comm.hash, 0xffu);
  ASSERT_EQ(comm.missing.size(), 2u);
  EXPECT_EQ(comm.missing[1].rank_in_comm, 3);
  EXPECT_TRUE(comm.missing[1].unresponsive);
  ASSERT_EQ(comm.mismatches.size(), 1u);
  EXPECT_EQ(comm.mismatches[0].function, Function::kUnknown);
  EXPECT_EQ(comm.mismatches[0].groups[0].ranks_in_comm, std::vector<int32_t>{1});
}

TEST(RasText, HasNothingToReportOfAHealthyJob) {
  std::string text(kText);
  size_t errors = text.find("INCOMPLETE\n  Missing");
  text = text.substr(0, errors) + "Warnings\n========\n\n";
  Result<RasReport> report = parse_ras_text(text);
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_TRUE(report->comms.empty());
  EXPECT_EQ(report->comms_count, 5);
}

TEST(RasText, RefusesWhatIsNotAReportOrIsCutShort) {
  std::string text(kText);
  EXPECT_EQ(error_of(parse_ras_text("HTTP/1.1 400 Bad Request\r\n")),
            "RAS text: it does not begin with NCCL's version");
  EXPECT_EQ(error_of(parse_ras_text(text.substr(0, text.find("Warnings")))),
            "RAS text: it is cut short: the part with the warnings is missing");
  EXPECT_EQ(error_of(parse_ras_text("NCCL version 2.24.3 \x1b[31m\nWarnings\n")),
            "RAS text: line 1 has control characters");
  auto changed = [&](std::string_view from, std::string_view to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return error_of(parse_ras_text(other));
  };
  EXPECT_EQ(changed("Rank 7 --", "Rank 8 --"), "RAS text: line 33: rank 8 of a communicator of 8");
  EXPECT_EQ(changed("#0-0 (5a", "#0-0 (zz"), "RAS text: line 30: a communicator without number or hash");
  EXPECT_EQ(changed("    1         4 ", "    1     40000 "),
            "RAS text: line 17: more than 16384 communicators or 1048576 ranks");
  EXPECT_EQ(changed("on node 10.0.0.1", "on node " + std::string(300, 'n')),
            "RAS text: line 28: a name of over 255 bytes");
  EXPECT_EQ(error_of(parse_ras_text(std::string(kRasBytesMax + 1, ' '))),
            "RAS text: 16777217 bytes are over the limit of 16777216");
}

// What NCCL 2.28.9 itself said of a job of four ranks on an H200 (tests/data/ras): healthy, rank 3 not taking part any
// more, and after rank 3 was killed.
std::string said_by_nccl(const std::string& name) {
  const auto text = read_file(std::string(SOURCES_RAS_DATA) + "/" + name, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.error();
  return text.ok() ? *text : "";
}

TEST(RasReal, AHealthyJobHasNoMissingRankAndNoMismatch) {
  const auto json = parse_ras_json(said_by_nccl("healthy_json.txt"));
  ASSERT_TRUE(json.ok()) << json.error();
  EXPECT_EQ(json->nccl_version, "2.28.9");
  EXPECT_TRUE(json->counts_reported);
  ASSERT_EQ(json->comms.size(), 1u);
  EXPECT_EQ(json->comms[0].ranks.size(), 4u);
  EXPECT_TRUE(json->comms[0].missing.empty());
  const auto text = parse_ras_text(said_by_nccl("healthy_text.txt"));
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_EQ(text->comms_count, 1);
  EXPECT_TRUE(text->comms.empty());
}

TEST(RasReal, TheRankThatLaunchesNoMoreIsTheOneWithTheFewestLaunches) {
  for (const bool is_json : {true, false}) {
    const auto report =
        is_json ? parse_ras_json(said_by_nccl("missing_json.txt")) : parse_ras_text(said_by_nccl("missing_text.txt"));
    ASSERT_TRUE(report.ok()) << report.error();
    ASSERT_EQ(report->comms.size(), 1u);
    EXPECT_EQ(report->comms[0].hash, 0xabbe24128f376674u);
    ASSERT_EQ(report->comms[0].mismatches.size(), 1u);
    const RasMismatch& mismatch = report->comms[0].mismatches[0];
    EXPECT_EQ(mismatch.function, Function::kAllReduce);
    EXPECT_EQ(mismatch.groups.front().launched, 532u);
    EXPECT_EQ(mismatch.groups.front().ranks_in_comm, std::vector<int32_t>{3});
    EXPECT_EQ(mismatch.groups.back().launched, 541u);
    EXPECT_EQ(mismatch.groups.back().ranks_count, 3);
  }
}

TEST(RasReal, AKilledRankIsMissingThoughACommaIsMissingToo) {
  for (const bool is_json : {true, false}) {
    const auto report =
        is_json ? parse_ras_json(said_by_nccl("killed_json.txt")) : parse_ras_text(said_by_nccl("killed_text.txt"));
    ASSERT_TRUE(report.ok()) << report.error();
    ASSERT_EQ(report->comms.size(), 1u);
    ASSERT_EQ(report->comms[0].missing.size(), 1u);
    EXPECT_EQ(report->comms[0].missing[0].rank_in_comm, 3);
    EXPECT_EQ(report->comms[0].missing[0].pid, 952);
  }
}

}  // namespace
}  // namespace lockstep
