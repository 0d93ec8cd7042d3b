#!/usr/bin/env python3
# timeout: 300
"""The page of the status address in a real browser: chromium without a window loads it from a
running job, and the test looks at what the script has made of the snapshot. SCREENSHOT=FILE.png
also takes a picture."""
import ctypes.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, ROOT, clean_env, run_tests, script, skip, start, \
    wait_for  # noqa: E402
from free_port import free_port  # noqa: E402

BROWSER = next((b for b in map(shutil.which, ("chromium-headless-shell", "chromium",
                                              "google-chrome")) if b), None)
if BROWSER is None:
    skip("no browser (Debian: chromium-headless-shell)")
if ctypes.util.find_library("microhttpd") is None:
    skip("libmicrohttpd is not installed (Debian: libmicrohttpd12)")
if BUILD.name in ("asan", "tsan", "ubsan", "coverage"):
    skip("an unsanitized Python cannot load a sanitizer's library")

# Rank 1 fails once. Afterwards rank 2 stops making steps. Rank 0 writes a line that would be HTML.
PROGRAM = """#!/usr/bin/python3
import os, sys, time, crunrt
rt = crunrt.init()
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
for step in range(1, 100000):
    rt.step()
    if step == 2: print("<img src=x onerror=document.title='broken'>" if rt.rank == 0 else "two",
                        file=sys.stderr, flush=True)
    if first and rt.rank == 1 and step == 20: sys.exit(3)
    if not first and rt.rank == 2 and step == 5: time.sleep(1000)
    time.sleep(0.02)
"""


def browse(url, *options):
    """Returns the document that the browser has after four seconds of its own clock."""
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu",
                           "--window-size=1280,860", "--virtual-time-budget=4000", *options, url],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    return done.stdout


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def rows_of(html, table):
    body = re.search(rf'<table id="{table}">(.*?)</table>', html, re.S).group(1)
    return [text_of(row).split() for row in re.findall(r"<tr.*?>(.*?)</tr>", body, re.S)]


def test_the_page(tmp):
    port = free_port()
    job = start([CRUN, "--nproc-per-node=3", "--max-restarts=1", "--rdzv-id=my<b>job",
                 f"--status-addr=127.0.0.1:{port}", script(tmp, "train.py", PROGRAM)],
                env=clean_env(PYTHONPATH=ROOT / "python", OMP_NUM_THREADS=1,
                              PYTHONDONTWRITEBYTECODE=1,
                              CRUNRT_LIBRARY=BUILD / "lib" / "libcrunrt.so.0"))

    def rank_2_is_behind():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                found = re.search(r'behind_steps{.*rank="2"} (\d+)', answer.read().decode())
        except OSError:
            return False
        return found and int(found.group(1)) > 10
    try:
        wait_for(rank_2_is_behind, "rank 2 to be behind")
        html = browse(f"http://127.0.0.1:{port}/", "--dump-dom")
        if os.environ.get("SCREENSHOT"):
            browse(f"http://127.0.0.1:{port}/", f"--screenshot={os.environ['SCREENSHOT']}")
    finally:
        job.terminate()
        job.communicate()
    assert re.search(r"<title>crun: .*train.py – running</title>", html), html
    assert re.search(r"Rank 2: \d+ steps behind, no step for", text_of(html)), text_of(html)
    assert "1 of 1 restarts" in text_of(html), text_of(html)
    rounds, ranks = rows_of(html, "rounds"), rows_of(html, "ranks")
    assert [r[:2] for r in rounds[1:]] == [["0", "start"], ["1", "failure"]], rounds
    assert len(rows_of(html, "nodes")) == 2, html
    assert ranks[1][0] == "2" and len(ranks) == 4, ranks  # who is behind comes first
    assert ranks[1][3] == "5" and int(ranks[2][3]) > 15 and int(ranks[3][3]) > 15, ranks
    # Texts of workers and names of jobs are text on the page, never a part of it.
    assert "<img" not in html and "&lt;img src=x" in html, html
    assert "<b>job" not in html and "my&lt;b&gt;job" in html, html


def test_a_job_that_has_ended(tmp):
    page = tmp / "page.html"
    page.write_text((ROOT / "status" / "page.html").read_text())
    assert "no answer from crun" in browse(f"file://{page}", "--dump-dom")


if __name__ == "__main__":
    run_tests(globals())
