#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strangers attack the socket of a process that shares memory: every importer is served meanwhile, each
allocation succeeds, and no descriptor or memory is left. life/attacked_soak.py does it for a minute."""

import socket

import attacked
import life
import strangers


class Short(attacked.Attacked):
    def test_all_are_served(self):
        self.attack(rounds=2, seconds=0)

    def test_all_are_served_while_everybody_attacks(self):
        self.attack_in_all_ways(rounds=2, seconds=0)

    def test_what_strangers_send_does_not_arrive(self):
        """What arrives while nobody receives stays in a queue that has room for few messages."""
        with self.stopped() as names, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            self.assertTrue(names)
            for name in names:
                for data in (strangers.guess(name), b"", bytes(strangers.REQUEST_BYTES), bytes(strangers.ANSWER_BYTES), bytes(4000)):
                    for _ in range(2000):
                        own.sendmsg([data], [], socket.MSG_DONTWAIT, f"\0{name}")

    def test_a_descriptor_that_no_stranger_has_any_more_holds_nobody_up(self):
        with self.stopped():
            self.let_attack(rounds=1)


if __name__ == "__main__":
    life.main()
