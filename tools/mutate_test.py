"""What mutate.py takes for code, and that it leaves no file changed."""
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
        mutate.ROOT, mutate.UNDO = self.root, self.root / "undo"

    def changes(self, text):
        self.file.write_text(text)
        return sorted({mutate.changed(text, place) for place in mutate.places(self.file)})

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

    def test_every_folder_has_sources_and_places(self):
        mutate.ROOT = pathlib.Path(mutate.__file__).resolve().parent.parent
        for folder in mutate.FOLDERS:
            files = mutate.sources(folder)
            self.assertTrue(files, folder)
            self.assertFalse([file for file in files if file.name.endswith("_test.cc")])
            self.assertGreater(sum(len(mutate.places(file)) for file in files), 50, folder)


if __name__ == "__main__":
    unittest.main()
