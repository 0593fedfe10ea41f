#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture that `cistern trace --svg` draws: areas that add up to what is live, whatever the recording is."""

import os
import pathlib
import sys
import xml.etree.ElementTree

import home

sys.path.append(str(home.ROOT / "tests" / "record"))
import made_up  # noqa: E402

TOP, BOTTOM = 40, 540  # of the areas: of the peak, of nothing
SECOND = made_up.varint(2 * 10**9)


def allocated(time, number):
    """So many bytes, far behind the last address."""
    return made_up.ALLOCATED + time + made_up.varint(2 << 30) + made_up.varint(number)


FREE_LAST = made_up.FREED + SECOND + b"\0"
# 1000 live after a second, 4000 after two, 1000 again, 1500 after four.
STEPS = allocated(SECOND, 1000) + allocated(SECOND, 3000) + FREE_LAST + allocated(SECOND, 500)


class Picture(home.LauncherTest):
    def drawn(self, data, *words):
        """The texts of the picture, and of each area its points."""
        recording, picture = self.file("recording", data), self.folder / "picture.svg"
        result = self.cistern("trace", recording, "--svg", picture, *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        root = xml.etree.ElementTree.parse(picture).getroot()
        texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
        areas = [element.get("d")[1:-1].split() for element in root.iter()
                 if element.tag.endswith("}path") and element.get("d").endswith("Z")]
        return texts, [[(float(x), float(y)) for x, y in zip(area[::2], area[1::2])] for area in areas]

    def recording(self, steps, program=b""):
        data = bytearray(made_up.recording_of((made_up.EVENTS, steps)))
        data[64:64 + len(program)] = program
        return bytes(data)

    def test_areas_add_up_and_the_peak_is_marked(self):
        texts, areas = self.drawn(self.recording(STEPS))
        self.assertIn("live memory of device 0 by size: ", texts)
        for text in ("blocks of 3000 bytes", "blocks of 1000 bytes", "all others", "1.000 s", "4.000 s"):
            self.assertIn(text, texts)
        self.assertTrue(any(text.startswith("peak ") and text.endswith(" at 2.000 s") for text in texts), texts)
        self.assertEqual(len(areas), 3)
        upper = areas[-1][:len(areas[-1]) // 2]
        self.assertEqual(min(y for _, y in upper), TOP)
        live = [round((BOTTOM - y) / (BOTTOM - TOP) * 4000) for _, y in upper]
        self.assertEqual([value for i, value in enumerate(live) if i == 0 or live[i - 1] != value], [1000, 4000, 1000, 1500])
        self.assertEqual({y for _, y in areas[0][len(areas[0]) // 2:]}, {BOTTOM})

    def test_the_rest_is_one_area(self):
        texts, areas = self.drawn(self.recording(STEPS), "--top", "1")
        self.assertEqual(len(areas), 2)
        self.assertNotIn("blocks of 1000 bytes", texts)
        self.assertEqual(min(y for _, y in areas[-1]), TOP)

    def test_a_long_recording_and_an_empty_one_have_pictures_of_one_size(self):
        many = b"".join(allocated(b"\2", 1 + i % 1000) for i in range(4000))
        for steps in (b"", many):
            _, areas = self.drawn(self.recording(steps), "--top", "1000000")
            self.assertLessEqual(len(areas), 33)
            self.assertLess(os.path.getsize(self.folder / "picture.svg"), 1 << 20)

    def test_names_are_shown_and_are_no_markup(self):
        texts, _ = self.drawn(self.recording(STEPS, b"<script>&amp;\x1b[2J\xff\"'"))
        self.assertTrue(any("<script>&amp;\ufffd[2J\ufffd" in text for text in texts), texts)

    def test_no_link_is_written_through(self):
        other = self.file("other", "kept")
        (self.folder / "picture.svg").symlink_to(other)
        self.drawn(self.recording(STEPS))
        self.assertEqual(pathlib.Path(other).read_text(encoding="utf-8"), "kept")
        self.assertFalse((self.folder / "picture.svg").is_symlink())

    def test_what_cannot_be_written_is_one_line(self):
        recording = self.file("recording", self.recording(STEPS))
        result = self.cistern("trace", recording, "--svg", self.folder / "no" / "picture.svg")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, "^cistern: error: the picture cannot be written: .*\n$")


if __name__ == "__main__":
    home.main()
