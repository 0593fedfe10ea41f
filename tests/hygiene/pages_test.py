#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages for people: what they refer to is there, in the tree and where they are installed; the README is short.

CONTRIBUTING.md names every folder of tests/."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_README_LINES = 149


def anchors(page):
    """What `#name` may follow a link to this page: its headings in lower case, with dashes for blanks."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def findings(root, pages):
    """A line for each link of these pages that leads nowhere, and how many links there are."""
    broken, count = [], 0
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            count += 1
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists():
                broken.append(f"{page.relative_to(root)}: {link}: no such file")
            elif anchor and anchor not in anchors(target):
                broken.append(f"{page.relative_to(root)}: {link}: no such heading")
    return broken, count


def tracked():
    """The pages that git knows of; none where there is no git, or no repository."""
    if not shutil.which("git"):
        return []
    return subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def main():
    build = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
    pages = [ROOT / name for name in tracked()] or [
        page for page in ROOT.rglob("*.md") if "build" not in page.relative_to(ROOT).parts]
    broken, links = findings(ROOT, pages)
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        doc = pathlib.Path(prefix, "share", "doc", "cistern")
        installed, installed_links = findings(doc, sorted(doc.rglob("*.md")))
    broken += [f"installed {line}" for line in installed]
    layout = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for folder in sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir()):
        if folder != "__pycache__" and f"`tests/{folder}/`" not in layout:
            broken.append(f"CONTRIBUTING.md: its layout lacks tests/{folder}/")
    lines = len((ROOT / "README.md").read_text(encoding="utf-8").splitlines())
    if lines > MAX_README_LINES:
        broken.append(f"README.md: {lines} lines, {MAX_README_LINES} are allowed")
    if not links or not installed_links:
        broken.append(f"{links} links in the tree, {installed_links} installed: were they read?")
    print("\n".join(broken))
    print(f"{links} links of {len(pages)} pages, {installed_links} where they are installed")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
