#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody here wrote do the same with and without libcistern.so: status, output, files, and nothing more
on stderr. BUILD_DIR names the build. What a machine lacks is left out and named; the shell is always there.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBJECT = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve() / "libcistern.so"
# The messages are about the limits of the machine the test runs on.
QUIET = {"CISTERN_LOG": "error"}
POLICIES = {
    "plain": {},
    "locked": {"FLAGS_use_pinned_memory": "true", "FLAGS_initial_cpu_memory_in_mb": "64"},
    "idle": {"FLAGS_free_idle_memory": "true", "CISTERN_IDLE_MS": "5"},
    "off": {"CISTERN_POOL": "off"},
}

SCRIPTS = {
    "bash": ("bash", """
        declare -A seen; for i in {1..3000}; do seen[$((i % 97))]+="$i "; done
        for key in "${!seen[@]}"; do echo "$key: ${#seen[$key]}"; done | sort -n
        (echo sub; exit 3); echo $?; cat <(seq 5) | while read -r x; do echo "<$x>"; done"""),
    "coreutils": ("sort", """
        seq 200000 | shuf --random-source=<(yes) > numbers; sort -n numbers | md5sum; sort --parallel=4 -S 8M numbers | md5sum
        tr 0-9 a-j < numbers | wc; ls -la / > /dev/null; du -s . > /dev/null; stat -c %s numbers; tac numbers | head -3
        cp -r . ../copy && rm -r ../copy; split -n 7 numbers part. && cat part.* | cmp - numbers && gzip -k numbers && zcat numbers.gz | md5sum"""),
    "git": ("git", """
        export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
        git init -q -b main . && for i in $(seq 30); do seq $((i * 100)) > file$i; git add . ; git -c user.name=n -c user.email=e@example.org commit -qm "$i"; done
        git log --format=%H | md5sum; git repack -adq --threads=4; git fsck 2>&1; git diff HEAD~9 --stat | tail -2; git gc -q; git grep -c 99 | tail -2"""),
    "perl": ("perl", """
        perl -e 'my %h; $h{$_ % 1009} .= "x$_" for 1..200000; print join(",", map { length $h{$_} } sort { $a <=> $b } keys %h), "\n"'
        perl -ne 'print if /7$/' <(seq 100) ; perl -MPOSIX -e 'my $pid = fork; if (!$pid) { my @a = (1) x 100000; POSIX::_exit(7) } waitpid $pid, 0; print $? >> 8, "\n"'"""),
    "sqlite3": ("sqlite3", """
        sqlite3 data "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all select i+1 from n where i<50000)
        insert into t select i, hex(i*7919) from n; create index x on t(b); select count(*), sum(length(b)), max(b) from t; delete from t where a%3=0; vacuum;
        pragma integrity_check; select group_concat(b) from (select b from t order by b limit 20);" """),
    "openssl": ("openssl", """
        seq 100000 | openssl dgst -sha256; seq 1000 | openssl enc -aes-256-cbc -pass pass:x -pbkdf2 -S 0123456789abcdef -nosalt | md5sum
        openssl speed -seconds 1 -bytes 64 sha256 > /dev/null 2>&1; echo $?"""),
    "gcc": ("gcc", """
        for i in 1 2 3; do echo "#include <stdio.h>
        #include <stdlib.h>
        int f$i(int n) { int *a = malloc(n * sizeof *a); for (int k = 0; k < n; k++) a[k] = k * $i; int s = a[n - 1]; free(a); return s; }" > f$i.c; done
        echo '#include <stdio.h>
        int f1(int); int f2(int); int f3(int); int main(void) { printf("%d\\n", f1(10) + f2(20) + f3(30)); return 0; }' > main.c
        gcc -O2 -g -Wall -c f1.c f2.c f3.c main.c && gcc -flto -O2 *.c -o program && ./program && objdump -d f1.o | md5sum"""),
    "cmake": ("cmake", """
        echo 'cmake_minimum_required(VERSION 3.10)
        project(p C)
        include(CheckFunctionExists)
        check_function_exists(malloc_usable_size HAVE)
        file(WRITE ${CMAKE_BINARY_DIR}/answer "${HAVE}")' > CMakeLists.txt
        cmake -S . -B build > /dev/null && cat build/answer"""),
    "python3": ("python3", """
        python3 -c '
import collections, json, os, sqlite3, subprocess, threading, zlib
from multiprocessing import Pool
def job(n): return sum(len(str(i)) for i in range(n))
if __name__ == "__main__":
    with Pool(3) as pool: print(pool.map(job, [1000, 20000, 300]))
    box = []
    def work(n):
        for i in range(2000): box.append(bytes(i % 977)); box[:] = box[-50:]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(zlib.crc32(json.dumps({str(i): list(range(i % 40)) for i in range(5000)}).encode()))
    print(subprocess.run(["true"]).returncode, os.waitstatus_to_exitcode(os.system("exit 5")))
    big = bytearray(200 << 20); big[::4096] = b"x" * len(big[::4096]); print(sum(big[::4096])); del big
'"""),
    "redis": ("redis-server", """
        redis-server --port 0 --unixsocket $PWD/socket --save "" --daemonize no --logfile log & server=$!
        until redis-cli -s socket ping > /dev/null 2>&1; do sleep 0.05; done
        redis-benchmark -s socket -n 20000 -q -P 8 -t set,get,lpush,zadd > /dev/null; echo $?
        redis-cli -s socket set key value; redis-cli -s socket get key; kill $server; wait $server; echo $?"""),
}


def run(script, folder, preload):
    environment = {**os.environ, **QUIET, "HOME": str(folder), "LC_ALL": "C"}
    if preload is not None:
        environment |= {"LD_PRELOAD": str(OBJECT), **preload}
    work = folder / "work"
    work.mkdir()
    done = subprocess.run(["bash", "-c", script], cwd=work, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


class World(unittest.TestCase):
    maxDiff = 2000

    def compare(self, name, policy):
        program, script = SCRIPTS[name]
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not on this machine")
        results = []
        for preload in (None, POLICIES[policy]):
            with tempfile.TemporaryDirectory() as folder:
                results.append(run(script, pathlib.Path(folder), preload))
        self.assertEqual(results[0], results[1])


def add_tests():
    for name in SCRIPTS:
        for policy in POLICIES if name in ("bash", "python3", "git") else ("plain", "locked"):
            setattr(World, f"test_{name}_{policy}", lambda self, n=name, p=policy: self.compare(n, p))


add_tests()

if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
