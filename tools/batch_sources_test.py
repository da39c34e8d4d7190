"""Which files share a batch, and what keeps their names apart."""
import pathlib
import tempfile
import unittest

from batch_sources import Source, batches, text_of


class Batches(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def source(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text)
        return Source(path)

    def batched(self, one, other, lines=3000):
        return [[source.path.stem for source in batch] for batch in batches([self.source("one.cc", one), self.source("other.cc", other)], lines)]

    def together(self, one, other, lines=3000):
        return len(self.batched(one, other, lines)) == 1

    def assert_last(self, one, other):
        """A name of `one` cannot be replaced: it comes behind whoever has the name; where both have such a name they are apart."""
        self.assertEqual(self.batched(one, other), [["other", "one"]])
        self.assertEqual(self.batched(one, one), [["one"], ["other"]])

    def test_a_name_that_both_keep_to_themselves_gets_the_name_of_its_file(self):
        one = self.source("one.cc", "namespace { int helper() { return 1; } }\nint a() { return helper(); }\n")
        other = self.source("other.cc", "namespace { int helper() { return 2; } }\nint b() { return helper(); }\n")
        (batch,) = batches([one, other], 3000)
        text = text_of(batch)
        self.assertIn("#define helper helper_of_one\n", text)
        self.assertLess(text.index("#undef helper"), text.index("#define helper helper_of_other"))

    def test_a_name_that_nobody_else_has_stays_as_it_is(self):
        self.assertTrue(self.together("namespace { int helper() { return 1; } }\n", "int b() { return 2; }\n"))
        batch = [self.source("one.cc", "namespace { int helper() { return 1; } }\n"), self.source("other.cc", "int b();\n")]
        self.assertNotIn("#define", text_of(batch))

    def test_what_is_a_member_somewhere_is_not_replaced(self):
        self.assert_last("namespace { int size() { return 1; } }\nint a(const S& s) { return s.size() + size(); }\n", "int size;\n")
        self.assert_last("namespace { int size() { return 1; } }\nint a(S* s) { return s->size() + size(); }\n", "int size;\n")

    def test_neither_are_macros_fixtures_and_attributes(self):
        self.assert_last("#define LIMIT 3\n", "int LIMIT;\n")
        self.assert_last("namespace {\nclass Files : public Test {};\nTEST_F(Files, Open) {}\n}\n", "int Files;\n")
        self.assert_last('namespace { bool target() { return true; } }\n__attribute__((target("sse4.2"))) int a();\n', "int target;\n")

    def test_a_function_that_returns_what_is_const_is_everybodys(self):
        self.assertEqual(self.batched("const char* to_text(A a) { return a.to_text(); }\n", "const char* to_text(B b) { return b.to_text(); }\n"), [["one", "other"]])

    def test_nor_what_a_header_of_ours_declares_but_its_parameters_are_nothing(self):
        (pathlib.Path(self.folder.name) / "text.h").write_text("std::string to_text(int value);\n")
        other = "namespace { int to_text() { return 1; } int value() { return 2; } }\n"
        self.assert_last('#include "text.h"\nnamespace { int to_text(Own) { return 1; } }\n', other)
        self.assertTrue(self.together('#include "text.h"\nnamespace { int value() { return 1; } }\n', "namespace { int value() { return 2; } }\n"))

    def test_the_same_using_may_be_said_twice_another_may_not(self):
        self.assertTrue(self.together("namespace { using testing::Job; Job a; }\n", "namespace { using testing::Job; Job b; }\n"))
        self.assertFalse(self.together("namespace { using testing::Job; Job a; }\n", "namespace { using real::Job; Job b; }\n"))
        self.assertTrue(self.together("using namespace lockstep;\n", "using namespace lockstep;\n"))
        self.assertFalse(self.together("using namespace lockstep;\n", "using namespace other;\n"))

    def test_a_name_may_come_with_a_header_that_only_the_neighbour_reads(self):
        (pathlib.Path(self.folder.name) / "view.h").write_text("struct Recording {};\n")
        other = '#include "view.h"\nint b();\n'
        self.assertFalse(self.together("namespace { using replay::Recording; Recording a; }\n", other))
        batch = [self.source("one.cc", "namespace { struct Recording {}; }\n"), self.source("other.cc", other)]
        self.assertIn("#define Recording Recording_of_one\n", text_of(batch))

    def test_a_batch_ends_where_it_is_long_enough(self):
        self.assertFalse(self.together("int a();\n" * 20, "int b();\n" * 20, lines=30))


if __name__ == "__main__":
    unittest.main()
