#include "backup/s3/s3_xml.h"

#include <gtest/gtest.h>

namespace lockstep::backup {
namespace {

const std::string kHead = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

std::string object(const std::string& name, const std::string& size) {
  return "<Contents><Key>" + name + "</Key><LastModified>2026-11-17T00:00:00Z</LastModified><Size>" + size +
         "</Size><StorageClass/></Contents>\n";
}

TEST(S3Xml, ReadsAPageAndWhereTheNextBegins) {
  const Result<ListPage> page = read_list_page(
      kHead +
      "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>kept</Name><Prefix>a</Prefix>" +
      object("a/pieces/1", "8388608") + object("a/&lt;b&gt; &amp; &#246;&#x1F600;", "0") +
      "<IsTruncated>true</IsTruncated><NextContinuationToken>1ueG+/=</NextContinuationToken></ListBucketResult>\n");
  ASSERT_TRUE(page.ok()) << page.error();
  ASSERT_EQ(page->entries.size(), 2u);
  EXPECT_EQ(page->entries[0].name, "a/pieces/1");
  EXPECT_EQ(page->entries[0].bytes, 8'388'608u);
  EXPECT_EQ(page->entries[1].name, "a/<b> & \u00f6\U0001F600");
  EXPECT_EQ(page->next, "1ueG+/=");
}

TEST(S3Xml, TheLastPageHasNoNext) {
  const Result<ListPage> page = read_list_page(
      "<ListBucketResult><IsTruncated>false</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
      "</ListBucketResult>");
  ASSERT_TRUE(page.ok()) << page.error();
  EXPECT_TRUE(page->entries.empty());
  EXPECT_EQ(page->next, "");
}

TEST(S3Xml, WhatIsNoWholeListIsRefusedWithOneLine) {
  const std::string end = "<IsTruncated>false</IsTruncated></ListBucketResult>";
  const std::string deep = "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>";
  std::vector<std::string> wrong{"",
                                 "not xml",
                                 "</a>",
                                 "<>",
                                 "<a",
                                 "<a>",
                                 "<a></b>",
                                 "<a b></a>",
                                 "<a b='c></a>",
                                 deep,
                                 "<?xml",
                                 "<!DOCTYPE a><a/>",
                                 "<a><!-- c --></a>",
                                 "<ListBucketResult/>",
                                 "<Error><Code>AccessDenied</Code></Error>",
                                 "<ListBucketResult><IsTruncated>maybe</IsTruncated></ListBucketResult>",
                                 "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
                                 "<ListBucketResult><Contents><Key>a</Key></Contents>" + end,
                                 "<ListBucketResult>" + end + "<a/>",
                                 "<ListBucketResult>" + object("a", "-1") + end};
  for (const char* name : {"", "&nbsp;", "&#0;", "&#xD800;", "&#x;", "&#1114112;", "a&amp"})
    wrong.push_back("<ListBucketResult>" + object(name, "1") + end);
  for (const std::string& xml : wrong) {
    const Result<ListPage> page = read_list_page(xml);
    ASSERT_FALSE(page.ok()) << xml;
    EXPECT_EQ(page.error().find('\n'), std::string::npos);
  }
}

TEST(S3Xml, CutOffAnywhereItIsNoList) {
  const std::string xml =
      kHead + "<ListBucketResult>" + object("a", "1") + "<IsTruncated>false</IsTruncated></ListBucketResult>";
  ASSERT_TRUE(read_list_page(xml).ok());
  for (size_t bytes = 0; bytes < xml.size(); ++bytes) EXPECT_FALSE(read_list_page(xml.substr(0, bytes)).ok()) << bytes;
}

TEST(S3Xml, ARefusalsCodeIsAWordOrNothing) {
  EXPECT_EQ(refusal_code(kHead + "<Error><Code>NoSuchKey</Code><Key>a</Key></Error>"), "NoSuchKey");
  for (const char* xml : {"", "<Error><Code>two words</Code></Error>", "<Error><Code>\x1b[2J</Code></Error>",
                          "<Error><Code>A</Code>", "<html><Code>A</Code></html>"})
    EXPECT_EQ(refusal_code(xml), "") << xml;
}

}  // namespace
}  // namespace lockstep::backup
