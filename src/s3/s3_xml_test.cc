#include "s3/s3_xml.h"

#include <gtest/gtest.h>

namespace lockstep::s3 {
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

TEST(S3Xml, ReadsUploadsPartsAndWhatBecameOfThem) {
  EXPECT_EQ(*read_upload_id(kHead + "<InitiateMultipartUploadResult xmlns=\"x\"><Bucket>b</Bucket><Key>k</Key>"
                                    "<UploadId>VXBsb2Fk</UploadId></InitiateMultipartUploadResult>"),
            "VXBsb2Fk");
  const Result<UploadsPage> uploads = read_uploads_page(
      "<ListMultipartUploadsResult><Upload><Key>a&amp;b</Key><UploadId>1</UploadId><Owner><ID>x</ID></Owner>"
      "<Initiated>2026-11-17T00:00:01.000Z</Initiated></Upload><IsTruncated>true</IsTruncated>"
      "<NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker></ListMultipartUploadsResult>");
  ASSERT_TRUE(uploads.ok()) << uploads.error();
  ASSERT_EQ(uploads->uploads.size(), 1u);
  EXPECT_EQ(uploads->uploads[0].name, "a&b");
  EXPECT_EQ(uploads->uploads[0].begun_unix_s, 1'794'873'601);
  EXPECT_EQ(uploads->next_key + uploads->next_id, "a1");
  const Result<PartsPage> parts = read_parts_page(
      "<ListPartsResult><Part><PartNumber>2</PartNumber><ETag>&quot;e&quot;</ETag><Size>10</Size></Part>"
      "<IsTruncated>false</IsTruncated><NextPartNumberMarker>2</NextPartNumberMarker></ListPartsResult>");
  ASSERT_TRUE(parts.ok()) << parts.error();
  ASSERT_EQ(parts->parts.size(), 1u);
  EXPECT_EQ(parts->parts[0].number, 2u);
  EXPECT_EQ(parts->parts[0].bytes, 10u);
  EXPECT_EQ(parts->parts[0].etag, "\"e\"");
  EXPECT_EQ(parts->next, "");
  EXPECT_TRUE(is_completed("<CompleteMultipartUploadResult><Key>k</Key></CompleteMultipartUploadResult>"));
  // 200, and yet.
  EXPECT_FALSE(is_completed("<Error><Code>InternalError</Code></Error>"));
  EXPECT_EQ(xml_text("a<b>&\"c"), "a&#60;b&#62;&#38;&#34;c");
}

TEST(S3Xml, UploadsAndPartsThatAreNoneAreRefused) {
  for (const char* xml : {"", "<a/>", "<InitiateMultipartUploadResult/>", "<ListPartsResult><Part/></ListPartsResult>",
                          "<ListPartsResult><Part><PartNumber>0</PartNumber><ETag>e</ETag><Size>1</Size></Part>"
                          "</ListPartsResult>",
                          "<ListPartsResult><IsTruncated>true</IsTruncated></ListPartsResult>",
                          "<ListMultipartUploadsResult><Upload><Key>k</Key></Upload></ListMultipartUploadsResult>",
                          "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>"}) {
    EXPECT_FALSE(read_upload_id(xml).ok()) << xml;
    EXPECT_FALSE(read_parts_page(xml).ok()) << xml;
    EXPECT_FALSE(read_uploads_page(xml).ok()) << xml;
    EXPECT_FALSE(is_completed(xml)) << xml;
  }
  for (const char* time : {"", "yesterday", "2026-11-17", "2026-11-17T00:00:01", "1026-11-17T00:00:01Z"})
    EXPECT_EQ(xml_time_unix_s(time), 0) << time;
}

TEST(S3Xml, ARefusalsCodeIsAWordOrNothing) {
  EXPECT_EQ(refusal_code(kHead + "<Error><Code>NoSuchKey</Code><Key>a</Key></Error>"), "NoSuchKey");
  for (const char* xml : {"", "<Error><Code>two words</Code></Error>", "<Error><Code>\x1b[2J</Code></Error>",
                          "<Error><Code>A</Code>", "<html><Code>A</Code></html>"})
    EXPECT_EQ(refusal_code(xml), "") << xml;
}

}  // namespace
}  // namespace lockstep::s3
