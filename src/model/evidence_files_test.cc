#include "model/evidence_files.h"

#include <gtest/gtest.h>

#include "model/blob_key.h"

namespace lockstep {
namespace {

TEST(EvidenceFiles, EveryAttemptOfAJobHasAFolderThatAnybodyFinds) {
  const std::string id = evidence_id("llama/70b", 2);
  EXPECT_TRUE(is_evidence_id(id)) << id;
  EXPECT_EQ(id, evidence_id("llama/70b", 2));
  EXPECT_NE(id, evidence_id("llama/70b", 1));
  EXPECT_NE(evidence_id("1", 12), evidence_id("21", 1)) << "a name that begins with digits is no attempt";
  EXPECT_FALSE(is_capture_id(id)) << "nobody orders it";
  EXPECT_TRUE(check_blob_key({"llama/70b", id, "rank-17-dump-1763400000.pickle.gz"}).ok());
  EXPECT_FALSE(check_blob_key({"llama/70b", "h-0123456789AB", "a"}).ok());
}

TEST(EvidenceFiles, ANameSaysWhatItIsAndNothingElseIsTaken) {
  for (const EvidenceFileName& name : {EvidenceFileName{EvidenceFileKind::kDump, 17_rank, 1'763'400'000},
                                       EvidenceFileName{EvidenceFileKind::kRecorder, 0_rank, 5}}) {
    EXPECT_EQ(parse_evidence_file_untrusted(to_text(name)), name);
    EXPECT_TRUE(is_blob_file(to_text(name)));
  }
  EXPECT_EQ(to_text(EvidenceFileName{EvidenceFileKind::kRecorder, 3_rank, 7}), "rank-3-recorder-7.lsfr.gz");
  for (const char* text :
       {"", "rank-3.json.gz", "rank-03-dump-7.pickle.gz", "rank-3-dump-7.lsfr.gz", "rank--3-dump-7.pickle.gz",
        "rank-3-other-7.pickle.gz", "rank-99999999999-dump-7.pickle.gz", "rank-3-dump-7.pickle.gz.gz"})
    EXPECT_FALSE(parse_evidence_file_untrusted(text)) << text;
}

}  // namespace
}  // namespace lockstep
