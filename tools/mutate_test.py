"""What mutate.py takes for code, and that it leaves no file changed."""
import itertools
import json
import pathlib
import tempfile
import unittest

import mutate


class MutateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.file = self.root / "a.cc"
        self.addCleanup(setattr, mutate, "ROOT", mutate.ROOT)
        self.addCleanup(setattr, mutate, "UNDO", mutate.UNDO)
        self.addCleanup(setattr, mutate, "BUILD", mutate.BUILD)
        mutate.ROOT, mutate.UNDO, mutate.BUILD = self.root, self.root / "undo", self.root / "build"

    def changes(self, text):
        self.file.write_text(text)
        return sorted({mutate.changed(text, place) for place in mutate.places(self.file)})

    def test_survivors_that_are_still_there_and_make_a_difference_are_tried_again(self):
        self.addCleanup(setattr, mutate, "RESULTS", mutate.RESULTS)
        mutate.RESULTS = self.root / "page.md"
        self.file.write_text("b = c;\nx = 1 + y;\nz = 0;\nx = 1 + y;\n")
        changes = ["`a.cc` `+` to `-` in `x = 1 + y;`", "`a.cc` `0` to `1` in `z = 0;`", "`a.cc` `<` to `<=` in `gone < 2`", "`b.cc` `0` to `1` in `z = 0;`"]
        mutate.RESULTS.write_text(f"| {changes[1]} (line 3) | no difference: nobody reads z; noticed at 0123abcd |\n")
        runs = [{"folder": "src/x", "survivors": [{"change": change, "line": 5} for change in changes]}]
        found = mutate.survivors_to_try(runs, ["a.cc"])
        self.assertEqual([(home, survivor["change"], path, place[0]) for home, survivor, path, place in found], [("src/x", changes[0], self.file, 3)])

    def test_changes_one_operator_at_a_time(self):
        self.assertEqual(self.changes("a = b + c - d;"), ["a = b + c + d;", "a = b - c - d;"])
        self.assertEqual(self.changes("if (a < b && !c) f();"), ["if (a < b && c) f();", "if (a < b || !c) f();", "if (a <= b && !c) f();"])
        self.assertEqual(self.changes("return true;"), ["return false;"])
        self.assertEqual(self.changes("i = 0; ++i;"), ["i = 0; --i;", "i = 1; ++i;"])

    def test_leaves_comments_strings_templates_and_numbers_alone(self):
        for text in ('// a < b\n/* a < b\n c + d */ f();', 'f("a < b");', 'f(R"x(a < b "c + d")x");', "f(' ', '\\'');",
                     "std::vector<int> a;", "a = 1'000'100;", "a = 10.5;", "auto&& a = b;", "#include <a>", "virtual int f() = 0;",
                     "template <int a = 0 + 1>"):
            self.assertEqual(self.changes(text), [], text)

    def test_puts_the_file_back_whatever_happens(self):
        self.file.write_text("old")
        with self.assertRaises(KeyboardInterrupt):
            with mutate.Changed(self.file, "new"):
                self.assertEqual(self.file.read_text(), "new")
                raise KeyboardInterrupt
        self.assertEqual(self.file.read_text(), "old")
        self.assertFalse(mutate.UNDO.exists())
        mutate.Changed(self.file, "new").__enter__()  # and the machine goes down
        mutate.put_back()
        self.assertEqual(self.file.read_text(), "old")

    def test_leaves_out_what_has_no_effect_and_counts_it(self):
        self.file.write_text("list.reserve(a + b);\nLOCKSTEP_LOG_INFO(f(a),\n g(b) - c);\n__builtin_prefetch(a, 1);\nc = a + b;\n")
        self.assertEqual([place[0] for place in mutate.places(self.file)], [4])
        self.assertEqual([place[0] for place in mutate.places(self.file, left_out=True)], [0, 2, 3])

    def test_tells_a_change_that_the_compiler_takes_for_none(self):
        header = self.root / "src" / "a.h"
        header.parent.mkdir()
        header.write_text("struct A { int set = 0; int kept = 0; };\n")
        self.file.write_text('#include "a.h"\nint f(int b) { A a; a.set = b; return a.set + a.kept; }\n')
        mutate.BUILD.mkdir()
        (mutate.BUILD / "compile_commands.json").write_text(json.dumps(
            [{"file": str(self.file), "command": f"c++ -O0 -I{header.parent} -o a.o -c {self.file}"}]))
        same_code = mutate.SameCode()
        self.assertTrue(same_code.tells(header, "struct A { int set = 1; int kept = 0; };\n"))
        self.assertFalse(same_code.tells(header, "struct A { int set = 0; int kept = 1; };\n"))
        self.assertEqual(header.read_text(), "struct A { int set = 0; int kept = 0; };\n")
        unused = self.root / "src" / "b.h"
        unused.write_text("")
        self.assertFalse(same_code.tells(unused, "int b;"))  # nothing that could be compared

    def test_shares_are_given_with_and_without_what_is_left_out(self):
        run = {"folder": "src/bus", "seed": 1, "commit": "abc", "noticed": 6, "same code": 2, "does not compile": 3, "tests left out": [],
               "survivors": [{"change": "`a`", "line": 1}, {"change": "`b`", "line": 2}]}
        page = mutate.page([run], {"`a`": "no difference: it is set"})
        for said in ("6 of 8 (75 %) changes were noticed", "6 of 7 (86 %) were noticed", "6 of 10 (60 %) were noticed", "for 1 a test is missing"):
            self.assertIn(said, page)

    def test_every_folder_has_sources_and_places(self):
        mutate.ROOT = pathlib.Path(mutate.__file__).resolve().parent.parent
        for folder in mutate.FOLDERS:
            files = mutate.sources(folder)
            self.assertTrue(files, folder)
            self.assertFalse([file for file in files if file.name.endswith("_test.cc")])
            enough = itertools.accumulate(len(mutate.places(file)) for file in files)
            self.assertTrue(any(count > 50 for count in enough), folder)


if __name__ == "__main__":
    unittest.main()
