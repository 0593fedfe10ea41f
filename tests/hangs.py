# SPDX-License-Identifier: Apache-2.0
"""How long a program may run before a test says that it hangs.

No test is judged by the clock: this is far beyond what any of them takes on a machine that is busy, slow or has one core,
under a sanitizer, too. It is below ctest's own limit for a whole test (CMakeLists.txt), so that the test can say what
hangs. C++'s is kHangsS of hangs.h.
"""

HANGS_S = 900
