#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every mutant can still be planted: its function exists and its old text stands there once.

A run of the mutants takes long; this notices at once that a source has moved away from under a
planted bug, and says what to write instead.
"""

import sys

import catalogue

FEWEST = 196  # a mutant is taken out only with the rule that it tests


def main():
    mutants, sources = catalogue.read_mutants(), catalogue.Sources()
    findings = []
    for mutant in mutants:
        try:
            planting = sources.find(mutant)
            if sources.planted(mutant)[1] == sources.texts[planting.path]:
                findings.append(f"{mutant.where}: {mutant.name}: it changes nothing")
        except catalogue.CannotPlant as error:
            findings.append(f"{mutant.where}: {mutant.name}: {error}")
    if len(mutants) < FEWEST:
        findings.append(f"only {len(mutants)} mutants were read, there were {FEWEST}")
    print("\n".join([*findings, f"{len(mutants)} mutants, {len(findings)} to mend"]))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
