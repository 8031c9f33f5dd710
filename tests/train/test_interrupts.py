"""Interrupts: signals wait for `look`, but not twice, and not those of the user."""

import os
import signal
import threading

import pytest

from foldbatch.train.resuming import Interrupts


def send(number):
    os.kill(os.getpid(), number)


def test_a_second_signal_is_not_held_back():
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        send(signal.SIGINT)
        done.append(1)
        send(signal.SIGINT)
        done.append(2)
    assert (done, interrupts.raised) == ([1], False)


def test_a_signal_that_nobody_looked_at_is_raised_at_the_end():
    done = []
    with pytest.raises(SystemExit) as raised, Interrupts():
        send(signal.SIGTERM)
        done.append(1)
    assert (raised.value.code, done) == (143, [1])
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_error_goes_before_a_signal():
    with pytest.raises(ZeroDivisionError), Interrupts():
        send(signal.SIGINT)
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_the_user_stay():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        with Interrupts() as interrupts:
            send(signal.SIGTERM)
            interrupts.look()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [1]


def test_another_thread_is_left_alone():
    errors = []

    def work():
        try:
            with Interrupts() as interrupts:
                interrupts.look()
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
