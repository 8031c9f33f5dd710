"""Checks in other processes: what fails, crashes or hangs there is told here."""

import sys

from benchmarks.gpu import apart


def test_an_exit_status_other_than_0_fails_with_the_last_words():
    check = apart.ran("a", [sys.executable, "-c", "print('why'); raise SystemExit(3)"], 20)
    assert (check.state, check.found) == ("failed", "exit status 3: why")


def test_what_does_not_end_is_ended():
    check = apart.ran("a", [sys.executable, "-c", "import time; time.sleep(60)"], 0.2)
    assert check.state == "failed" and "ran longer" in check.found


def test_without_the_sanitizer_its_checks_are_skipped(monkeypatch):
    monkeypatch.setattr(apart, "sanitizer", lambda: None)
    assert apart.sanitized("cuda", "memcheck", 1).state == "skipped"


def test_a_sanitizer_that_refuses_the_device_is_no_failure(monkeypatch, tmp_path):
    script = tmp_path / "compute-sanitizer"
    script.write_text("#!/bin/sh\necho Device not supported\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(apart, "sanitizer", lambda: str(script))
    assert apart.sanitized("cuda", "memcheck", 20).state == "skipped"


def test_errors_that_the_sanitizer_finds_fail(monkeypatch, tmp_path):
    script = tmp_path / "compute-sanitizer"
    script.write_text("#!/bin/sh\necho Invalid __global__ read\nexit 86\n")
    script.chmod(0o755)
    monkeypatch.setattr(apart, "sanitizer", lambda: str(script))
    check = apart.sanitized("cuda", "racecheck", 20)
    assert check.state == "failed" and "Invalid" in check.found


def test_the_law_is_run_as_the_command_that_checks_random_programs(monkeypatch):
    asked = []
    monkeypatch.setattr(apart, "ran", lambda name, command, seconds, **more: asked.append((command, more)))
    apart.law("cuda", 7.4, "captured")
    command, more = asked[0]
    assert command[1:] == ["-m", "tests.programs", "--seconds", "7", "--engine", "cuda"]
    assert more == {"variables": {"FOLDBATCH_LAUNCH": "captured"}}
