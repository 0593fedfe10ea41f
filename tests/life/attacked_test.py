#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers attack the socket of a process that shares memory: every importer is served meanwhile, each
allocation succeeds, and no descriptor or memory is left. life/attacked_soak.py does it for a minute."""

import attacked
import life


class Short(attacked.Attacked):
    def test_all_are_served(self):
        self.attack(rounds=2, seconds=0)


if __name__ == "__main__":
    life.main()
