#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The newest toolkit of the package index has no function that nobody has decided on: coverage_test.py is skipped then,
so that an index does not break a build, and this fails."""

import sys

import coverage_test

sys.exit(coverage_test.main(newer_is_wrong=True))
