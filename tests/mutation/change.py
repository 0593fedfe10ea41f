# SPDX-License-Identifier: Apache-2.0
"""What a change touched, as git sees it: which lines of which files, and so which mutants."""

import re
import subprocess

from catalogue import CannotPlant

HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
UPSTREAMS = ("@{upstream}", "origin/HEAD", "main", "master")
EVERYTHING = range(1, 1 << 31)


def git(root, *words):
    """The output, or None where git refuses."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def base_of(root):
    """Where the change began that is being worked on: where its branch left the upstream one or, on
    that one itself, the last commit if there are uncommitted changes, else the one before it."""
    head = git(root, "rev-parse", "HEAD")
    for upstream in UPSTREAMS:
        base = git(root, "merge-base", "HEAD", upstream)
        if base and base != head:
            return base
    return "HEAD" if git(root, "status", "--porcelain") else "HEAD~1"


def touched_lines(root, base):
    """{path: [ranges of lines]} in the files as they are now; a file that only moved is not touched."""
    diff = git(root, "diff", "--unified=0", "--find-renames", "--no-ext-diff", "--no-color",
               "--src-prefix=a/", "--dst-prefix=b/", base, "--")
    if diff is None:
        raise ValueError(f"git knows no revision {base}")
    touched, path = {}, None
    for line in diff.splitlines():
        hunk = HUNK.match(line)
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else None
        elif hunk and path:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            # Where lines are only taken out, git names the line before.
            touched.setdefault(path, []).append(range(first, first + (count or 2)))
    for new in (git(root, "ls-files", "--others", "--exclude-standard") or "").splitlines():
        touched[new] = [EVERYTHING]
    return touched


def touched_mutants(mutants, sources, touched):
    """Mutants whose function was touched, then those of the same files."""
    inside, beside = [], []
    for mutant in mutants:
        try:
            definition = sources.find(mutant).definition
        except CannotPlant:  # the trial will say why
            inside.append(mutant)
            continue
        lines = sources.lines_of(definition)
        if any(r.start < lines.stop and lines.start < r.stop for r in touched.get(definition.path, ())):
            inside.append(mutant)
        elif definition.path in touched:
            beside.append(mutant)
    return inside, beside
