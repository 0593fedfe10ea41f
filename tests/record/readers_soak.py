#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A recording of a million events, which a training run of some minutes has, is the same for both readers."""

import unittest

import readers_test


class Million(readers_test.Written):
    def test_events_are_the_same(self):
        self.read_alike(self.written(11, 64, 15625), 1_000_000)


if __name__ == "__main__":
    unittest.main()
