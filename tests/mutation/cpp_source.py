# SPDX-License-Identifier: Apache-2.0
"""Finds the definitions of a C++ source file by their qualified names.

This is no compiler: it splits the text into tokens, follows the braces of namespaces and classes,
and takes what stands before a brace or a semicolon for the head of a definition. That is enough for
functions (free, members inside and outside their class, templates, operators) and for variables,
constants and members with an initial value. What is inside a function is its own affair: a lambda or
a local class has no name here. Preprocessor lines are skipped; both sides of an #if are read.
"""

import collections
import re

TOKEN = re.compile(r"""
    (?P<skip> \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<directive> \#(?:\\\n|/\*.*?\*/|[^\n])* )
  | (?P<token>
      (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]*)\(.*?\)(?P=delimiter)"
    | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
    | (?:u8|[uUL])?'(?:\\.|[^'\\\n])+'
    | \.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*
    | [^\W\d]\w*
    | ::|->|\.\.\.|\+\+|--|&&|\|\||<<=?|[-+*/%&|^!=<>]=
    | .
    )
""", re.VERBOSE | re.DOTALL)
WORD = re.compile(r"[^\W\d]\w*$")
CLOSES = {"(": ")", "[": "]", "{": "}"}
CLASS_WORDS = ("class", "struct", "union")

Token = collections.namedtuple("Token", "text start end")


class Definition(collections.namedtuple("Definition", "namespaces classes own path start end")):
    """The text of the file from `start` to `end`; `namespaces` and `classes` are those around it."""

    @property
    def short_name(self):
        return "::".join([*self.classes, self.own])

    @property
    def name(self):
        return "::".join([*self.namespaces, *self.classes, self.own])

    def is_called(self, name):
        """A name is given with all its classes, and with as many of the namespaces as one likes."""
        return name in self.names()

    def names(self):
        return ["::".join([*self.namespaces[k:], self.short_name]) for k in range(len(self.namespaces) + 1)]


class NotUnderstood(Exception):
    """The braces of a file do not balance."""


def tokens_of(text):
    return [Token(match["token"], match.start(), match.end())
            for match in TOKEN.finditer(text) if match["token"] is not None]


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def occurrences(text, fragment):
    """(start, end) of each place of `text` with the tokens of `fragment`, however they are spaced."""
    wanted = [token.text for token in tokens_of(fragment)]
    tokens = tokens_of(text)
    return [(tokens[i].start, tokens[i + len(wanted) - 1].end)
            for i in range(len(tokens) - len(wanted) + 1)
            if wanted and all(tokens[i + k].text == word for k, word in enumerate(wanted))]


def definitions(text, path=""):
    return Reader(text, path).found


class Reader:
    def __init__(self, text, path):
        self.text, self.path, self.found = text, path, []
        self.tokens = tokens_of(text)
        self.words = [token.text for token in self.tokens]
        self.partner = self.pair()
        self.read(0, len(self.words), (), ())

    def pair(self):
        """Where the bracket that opens at a token closes."""
        partner, open_ones = {}, []
        for i, word in enumerate(self.words):
            if word in CLOSES:
                open_ones.append(i)
            elif word in CLOSES.values():
                if not open_ones or CLOSES[self.words[open_ones[-1]]] != word:
                    self.fail(i)
                partner[open_ones.pop()] = i
        if open_ones:
            self.fail(open_ones[-1])
        return partner

    def fail(self, i):
        line = line_of(self.text, self.tokens[i].start)
        raise NotUnderstood(f"{self.path}:{line}: the brackets do not balance at '{self.words[i]}'")

    def add(self, scope, names, first, last):
        namespaces, classes = scope
        *qualifiers, own = names
        self.found.append(Definition(namespaces, (*classes, *qualifiers), own, self.path,
                                     self.tokens[first].start, self.tokens[last].end))

    def read(self, i, end, *scope):
        """Everything between two braces of a namespace or class, or of the file."""
        first = i
        while i < end:
            word = self.words[i]
            if word == ";":
                self.read_variable(first, i, scope)
            elif word == ":" and self.words[first:i] in (["public"], ["protected"], ["private"]):
                pass
            elif word in "([":
                i = self.partner[i] + 1
                continue
            elif word == "{":
                i, ended = self.read_braces(first, i, scope)
                if not ended:
                    continue
                first = i
                continue
            else:
                i += 1
                continue
            i += 1
            first = i

    def read_braces(self, first, i, scope):
        """Where to go on after the braces that open at `i`, and whether the definition ends there."""
        close, (namespaces, classes) = self.partner[i], scope
        head = self.head(first, i)
        words = [self.words[k] for k in head]
        if "namespace" in words[:2]:
            names = [word for word in words[words.index("namespace") + 1:] if WORD.match(word)]
            self.read(i + 1, close, (*namespaces, *names), classes)
            return close + 1, True
        if words[:1] == ["extern"] and len(words) == 2:
            self.read(i + 1, close, *scope)
            return close + 1, True
        name, rest = self.function(head)
        if name and "=" not in rest:
            if ":" in rest and WORD.match(self.words[i - 1]):
                return close + 1, False  # the initial value of a member, before the body
            self.add(scope, name, first, close)
            return close + 1, True
        if not name and "=" not in words and "enum" not in words and any(w in words for w in CLASS_WORDS):
            self.read(i + 1, close, namespaces, (*classes, self.class_name(words)))
        return close + 1, False

    def head(self, first, end):
        """The tokens at which a definition says what it is: without attributes and template<...>."""
        kept, i = [], first
        while i < end:
            word = self.words[i]
            if word == "[" and self.words[i + 1] == "[":
                i = self.partner[i]
            elif word in ("alignas", "__attribute__", "decltype", "noexcept") and self.words[i + 1] == "(":
                i = self.partner[i + 1]
            elif word == "template":
                i = self.after_angles(i + 1) - 1
            else:
                kept.append(i)
                if word in CLOSES and self.partner[i] < end:
                    kept.append(self.partner[i])
                    i = self.partner[i]
            i += 1
        return kept

    def after_angles(self, i):
        depth = 0
        while True:
            word = self.words[i]
            depth += (word == "<") - (word == ">")
            i = self.partner[i] + 1 if word in CLOSES else i + 1
            if depth == 0:
                return i

    def function(self, head):
        """The parts of a function's name and the words after its parameters; (), [] for no function."""
        words = [self.words[k] for k in head]
        if "operator" in words:
            at = words.index("operator")
            opening = words.index("(", at + 1) if "(" in words[at + 1:] else 0
            if words[at + 1:at + 3] == ["(", ")"]:
                opening = at + 3
            if not opening:
                return (), []
            symbol = words[at + 1:opening]
            own = "operator" + (" " if WORD.match(symbol[0]) else "") + "".join(symbol)
            return (*self.qualifiers(words, at), own), words[opening + 2:]
        for opening, word in enumerate(words):
            if word == "=":
                break
            if word == "(" and opening and WORD.match(words[opening - 1]):
                at = opening - 1
                own = words[at]
                if at and words[at - 1] == "~":
                    at, own = at - 1, "~" + own
                return (*self.qualifiers(words, at), own), words[opening + 2:]
        return (), []

    @staticmethod
    def qualifiers(words, at):
        """The names before `::`, without their template arguments."""
        names = []
        while at and words[at - 1] == "::":
            at -= 2
            depth = 0
            while at > 0 and (words[at] == ">" or depth):
                depth += (words[at] == ">") - (words[at] == "<")
                at -= 1
            if at < 0 or not WORD.match(words[at]):
                break
            names.insert(0, words[at])
        return names

    @staticmethod
    def class_name(words):
        at = next(i for i, word in enumerate(words) if word in CLASS_WORDS)
        names = []
        for word in words[at + 1:]:
            if word in (":", "<"):
                break
            if WORD.match(word) and word != "final":
                names.append(word)
        return names[-1] if names else "(unnamed)"

    def read_variable(self, first, end, scope):
        """A variable, constant or member; one without an initial value holds nothing to change."""
        head = self.head(first, end)
        words = [self.words[k] for k in head]
        if self.function(head)[0] or words[:1] in (["using"], ["friend"], ["typedef"]):
            return
        value = next((k for k, word in enumerate(words) if word in ("=", "{")), 0)
        while value > 1 and words[value - 1] == "]":
            value -= 2
        if value and WORD.match(words[value - 1]) and not any(w in words[:value] for w in (*CLASS_WORDS, "enum")):
            self.add(scope, [*self.qualifiers(words, value - 1), words[value - 1]], first, end)
