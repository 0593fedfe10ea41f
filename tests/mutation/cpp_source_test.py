#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Definitions are found by their names, whatever their bodies hold; mutants are planted in them."""

import pathlib
import tempfile
import textwrap
import unittest

import catalogue
import cpp_source

SOURCE = textwrap.dedent(r'''
    #include <atomic>
    #define BRACE() { never closed
    #define LONG one \
      { two
    namespace a::b {
    namespace {
    constexpr int kLimit = 3;
    const Row table[] = {
    #include "rows.def"
    };
    constinit std::atomic<Holder<int>> found{nullptr};
    const auto twice = [](int n) { return 2 * n; };
    int free_function(int n) { return n + kLimit; }
    }  // namespace

    template <typename Kind, bool kBig = (sizeof(Kind) > 8), typename... Arguments>
    CUresult begin(Function* real, Arguments... arguments) {
      const auto ask = [=] { return real(arguments...); };
      return ask();
    }

    [[gnu::noinline]] __attribute__((cold)) bool Pool::take(Chunk* chunk) const noexcept(false) {
      // a brace in a comment {  and /* another */ }
      const char* text = "{ \" {";  /* { */
      const char brace = '{', quote = '\'';
      const char* raw = R"x({ ")" { )x";
      const auto big = 2'000'000;
      return chunk != nullptr && text[0] == brace && big > 1;
    }

    class Pool : public Base<int> {
     public:
      Pool() : size_{0}, list_(nullptr), both_{{1}, {2}} { start(); }
      explicit Pool(int size);
      ~Pool() { stop(); }
      Pool(const Pool&) = delete;
      Pool& operator=(const Pool&) { return *this; }
      bool operator==(const Pool& other) const = default;
      size_t operator()(int n) const { return n; }
      explicit operator bool() const { return size_ != 0; }
      int get() const { return size_; }
      int get(int n) const { return n; }
      decltype(auto) all() { return (list_); }
      auto count() const -> decltype(size_) { return size_; }
      struct Part {
        enum class State : uint8_t { idle, busy };
        State state = State::idle;
        bool busy() const { return state == State::busy; }
      };
     private:
      int size_ = 0;
      Node* list_;
      Pair both_;
      struct { int ticket; } marks[4];
    };

    Pool::Pool(int size)
        : size_(size), list_(make()) {
      start();
    }
    template <typename T>
    void Holder<std::pair<T, int>>::keep(T value) requires(sizeof(T) > 1) { value_ = value; }
    Pool::Part* Pool::part() { return nullptr; }
    struct Pool result_of(struct Pool p) { return p; }
    }  // namespace a::b

    extern "C" {
    CUresult cuInit(unsigned flags) { return a::b::go(flags); }
    }
    extern "C" int cuExit() { return 0; }
''')


class Names(unittest.TestCase):
    def setUp(self):
        self.definitions = cpp_source.definitions(SOURCE, "file.cc")

    def body(self, name):
        bodies = [SOURCE[d.start:d.end] for d in self.definitions if d.is_called(name)]
        self.assertEqual(len(bodies), 1, name)
        return bodies[0]

    def test_every_definition_is_found_and_nothing_else(self):
        self.assertEqual([d.short_name for d in self.definitions], [
            "kLimit", "table", "found", "twice", "free_function", "begin", "Pool::take", "Pool::Pool",
            "Pool::~Pool", "Pool::operator=", "Pool::operator()", "Pool::operator bool", "Pool::get",
            "Pool::get", "Pool::all", "Pool::count", "Pool::Part::state", "Pool::Part::busy",
            "Pool::size_", "Pool::Pool", "Holder::keep", "Pool::part", "result_of", "cuInit", "cuExit"])

    def test_a_body_goes_to_its_own_brace(self):
        self.assertTrue(self.body("Pool::take").endswith("big > 1;\n}"))
        self.assertTrue(self.body("begin").endswith("return ask();\n}"))
        self.assertTrue(self.body("cuInit").endswith("return a::b::go(flags); }"))

    def test_a_constructor_keeps_its_initial_values(self):
        bodies = [SOURCE[d.start:d.end] for d in self.definitions if d.is_called("Pool::Pool")]
        self.assertIn("both_{{1}, {2}} { start(); }", bodies[0])
        self.assertTrue(bodies[1].endswith("start();\n}"))

    def test_a_variable_ends_at_its_semicolon(self):
        self.assertEqual(self.body("kLimit"), "constexpr int kLimit = 3;")
        self.assertTrue(self.body("twice").endswith("{ return 2 * n; };"))

    def test_namespaces_may_be_given_but_classes_must_be(self):
        for name in ("free_function", "b::free_function", "a::b::free_function"):
            self.body(name)
        for name in ("take", "c::free_function", "function", "Part::busy"):
            self.assertFalse([d for d in self.definitions if d.is_called(name)], name)

    def test_brackets_that_do_not_balance_are_told(self):
        for text in ("int f() {\n if (x) {\n}", "int f() }", "int f(]) {}"):
            with self.assertRaisesRegex(cpp_source.NotUnderstood, "file.cc:"):
                cpp_source.definitions(text, "file.cc")


class Occurrences(unittest.TestCase):
    def count(self, text, fragment):
        return len(cpp_source.occurrences(text, fragment))

    def test_spaces_lines_and_comments_do_not_matter(self):
        self.assertEqual(self.count("if (a  /*why*/ &&\n   b(1)) // so\n  go();", "if (a && b( /*n=*/1)) go();"), 1)

    def test_only_whole_tokens_count(self):
        for text in ("total = x;", "a == x;", "a_ = x;", 'f("a = x");', "// a = x"):
            self.assertEqual(self.count(text, "a = x"), 0, text)

    def test_strings_are_compared_as_they_stand(self):
        self.assertEqual(self.count('f("a  b");', '"a b"'), 0)


class Planting(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "shim" / "deep").mkdir(parents=True)
        (self.root / "shim" / "deep" / "one.cc").write_text(SOURCE, encoding="utf-8")
        (self.root / "shim" / "two.h").write_text(
            "int begin(int n) { return n; }\nint both() { return go(); }\nint Other::both() { go(); go(); }\n",
            encoding="utf-8")
        self.sources = catalogue.Sources(self.root, folders=["shim"])

    def mutant(self, function, old, new=""):
        return catalogue.Mutant("m", function, old, new, "subject", "subject:1")

    def refused(self, function, old, why):
        with self.assertRaisesRegex(catalogue.CannotPlant, why):
            self.sources.find(self.mutant(function, old))

    def test_it_is_planted_in_its_function_alone(self):
        path, text = self.sources.planted(self.mutant("both", "go()", "stay()"))
        self.assertEqual(path, "shim/two.h")
        self.assertEqual(text.count("stay()"), 1)
        self.assertEqual(text.count("go()"), 2)

    def test_overloads_are_told_apart_by_the_old_text(self):
        planting = self.sources.find(self.mutant("Pool::get", "size_"))
        self.assertIn("return size_;", self.sources.text_of(planting.definition))
        self.assertEqual(self.sources.find(self.mutant("begin", "return n;")).path, "shim/two.h")
        self.refused("Pool::get", "return", "stands 2 times in Pool::get.*one.cc:.*one.cc:")

    def test_a_function_that_is_not_there_is_told_with_one_that_is(self):
        self.refused("OldPool::take", "x", "there is no OldPool::take; there is Pool::take")
        self.refused("Pool::tke", "x", "there is no Pool::tke; there is .*Pool::take")

    def test_a_text_that_is_not_there_is_told_with_what_is(self):
        self.refused("Pool::take", "value_ = value", r"does not stand in Pool::take \(shim/deep/one.cc:\d+\); "
                                                     r"it stands in Holder::keep")
        self.refused("Pool::take", "return chunk != nullptr && big > 2", "nearest is `return chunk != nullptr")

    def test_a_text_that_stands_twice_is_refused(self):
        self.refused("Other::both", "go();", "stands 2 times")


class Reading(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "some.mutants").write_text(text, encoding="utf-8")
            return catalogue.read_mutants(pathlib.Path(folder))

    def test_entries_are_read(self):
        mutants = self.read("# title\n\none in A::b\n- old(\n-   text);\n+ new;\n\ntwo in c\n- gone;\n")
        self.assertEqual([m[:5] for m in mutants], [("one", "A::b", "old(   text);", "new;", "some"),
                                                    ("two", "c", "gone;", "", "some")])
        self.assertEqual(mutants[1].where, "some.mutants:8")

    def test_what_is_no_entry_is_refused(self):
        for text in ("one in A::b\n", "one A::b\n- x\n", "one in b\n+ new\n", "one in b\n- x\n+ y\n- z\n",
                     "one in b\nx\n", "one in b\n- x\n\none in b\n- x\n"):
            with self.assertRaises(ValueError, msg=text):
                self.read(text)


if __name__ == "__main__":
    unittest.main()
