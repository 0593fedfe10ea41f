#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The minutes of life/attacked_test.py. They say how slow the slowest allocation was, and how slow without an attack;
the goal is 5 ms without the waits for a processor, and no test fails by it."""

import os

import attacked
import life


class Minute(attacked.Attacked):
    # Attackers are to hold it up by what they send, not by the processors that they take.
    first = ("nice", "-n", "-20") if os.getuid() == 0 else ()

    def test_all_are_served_for_a_minute(self):
        print("alone:", self.attack(rounds=0, seconds=60).splitlines()[-1])
        print("attacked by strangers:", self.attack(rounds=20, seconds=60).splitlines()[-1])
        print("attacked in all ways:", self.attack_in_all_ways(rounds=10, seconds=60).splitlines()[-1])


if __name__ == "__main__":
    life.main()
