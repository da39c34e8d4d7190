#include "analysis/cost/kernel_classes.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

std::string rank(const std::string& bounds, const std::string& families) {
  return R"({"rank":0,"by_family_us":{)" + families + R"(},"by_bound_us":{)" + bounds + "}}";
}
std::string summary(const std::string& ranks) {
  return R"({"verdict":{},"ranks":[)" + ranks + "]}";
}

TEST(KernelClasses, TheTimeOfAllRanksIsSplitWithoutTheirCollectives) {
  const Result<KernelClasses> classes = kernel_classes_from_summary_untrusted(
      summary(rank(R"("compute":60,"memory":20,"communication":500)",
                   R"("matrix multiplication":60,"elementwise":20,"collective":500)") +
              "," + rank(R"("compute":60,"memory":40,"launch":20)", R"("matrix multiplication":60,"copy":60)")));
  ASSERT_TRUE(classes.ok()) << classes.error();
  EXPECT_EQ(classes->ranks, 2);
  EXPECT_EQ(classes->kernel_us, 200);
  ASSERT_EQ(classes->by_bound.size(), 3u);
  EXPECT_EQ(classes->by_bound[0].name, "compute");
  EXPECT_EQ(classes->by_bound[0].share, 0.6);
  EXPECT_EQ(classes->by_bound[1].name, "memory");
  EXPECT_EQ(classes->by_bound[2].words, "kernels too short for their launch: fuse them, or CUDA graphs");
  ASSERT_EQ(classes->by_family.size(), 3u);
  EXPECT_EQ(classes->by_family[0].name, "matrix multiplication");
  for (const auto* list : {&classes->by_bound, &classes->by_family}) {
    double sum = 0;
    for (const KernelClassShare& one : *list) sum += one.share;
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(KernelClasses, AJobWithoutKernelsHasNone) {
  const Result<KernelClasses> classes = kernel_classes_from_summary_untrusted(summary(rank("", "")));
  ASSERT_TRUE(classes.ok()) << classes.error();
  EXPECT_EQ(classes->kernel_us, 0);
  EXPECT_EQ(classes->ranks, 0);
  EXPECT_TRUE(classes->by_bound.empty());
}

TEST(KernelClasses, ASummaryThatIsNoneIsOneLineAndItsNamesAreBounded) {
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[]"), summary("").substr(0, 20),
                                  summary(rank(R"("compute":-1)", "")), summary(rank(R"("compute":"1")", "")),
                                  summary(rank("", R"("copy":1e300)"))}) {
    const Result<KernelClasses> read = kernel_classes_from_summary_untrusted(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().find('\n'), std::string::npos);
  }
  std::string many;
  for (int i = 0; i < 1'000; ++i) many += format("%s\"%d%s\":1", i > 0 ? "," : "", i, std::string(100, 'x').c_str());
  const KernelClasses classes = *kernel_classes_from_summary_untrusted(summary(rank("", many)));
  EXPECT_LE(classes.by_family.size(), kKernelClassesMax + 1);
  EXPECT_EQ(classes.kernel_us, 1'000);
  EXPECT_EQ(classes.by_family[0].name, "other");
}

TEST(KernelClasses, ALongNameIsNotCutWithinACharacter) {
  const std::string name = std::string(63, 'x') + "\xC3\xA9";
  const KernelClasses classes = *kernel_classes_from_summary_untrusted(summary(rank("", "\"" + name + "\":1")));
  ASSERT_EQ(classes.by_family.size(), 1u);
  EXPECT_EQ(classes.by_family[0].name, std::string(63, 'x'));
}

}  // namespace
}  // namespace lockstep
