"""Parameters move between the host and devices, and whoever uses them has the newest numbers."""

import gc
import threading

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.updates import device_value
from foldbatch.params.parameters import Parameter
from tests.engines.cuda.emulated import device, needs_compiler
from tests.engines.cuda.emulator import Emulator

pytestmark = needs_compiler


def test_a_parameter_is_on_the_device_until_somebody_asks_for_it():
    parameter = Parameter([3], init=1.0, name="w")
    array = device_value(device(), parameter)
    assert device_value(device(), parameter) is array
    array *= 2.0
    home = parameter.value
    assert home.tolist() == [2, 2, 2]
    home += 1
    assert device_value(device(), parameter) is array  # the address stays
    assert array.tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="read-only"):
        home += 1
    parameter.assign([4, 5, 6])
    assert device_value(device(), parameter).tolist() == [4, 5, 6]


def test_it_moves_from_device_to_device():
    other = Device(Emulator())
    parameter = Parameter([2], init=1.0)
    here, there = device_value(device(), parameter), device_value(other, parameter)
    there *= 3.0
    assert device_value(device(), parameter).tolist() == [3, 3]
    assert here.tolist() == [3, 3]
    here *= 2.0
    assert device_value(other, parameter).tolist() == [6, 6]


def test_a_program_on_the_host_and_a_device_take_turns():
    w = fb.Parameter([], init=3.0, name="w")
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * w) >> fb.Loss(), "numpy")
    numbers = program.params["w"]
    for _ in range(2):
        array = device_value(device(), w)
        array *= 2.0
        loss, gradients = program.value_and_grad([1.0])
        assert loss == float(numbers) == float(program.params["w"])
        device_value(device(), w)
        fb.train.SGD(0.5).update(program.params, gradients)
    assert program.params["w"] is numbers
    assert float(numbers) == (3.0 * 2 - 0.5) * 2 - 0.5


def test_parameters_that_nobody_has_leave_the_device():
    parameter = Parameter([2], init=1.0)
    device_value(device(), parameter)
    gc.collect()
    count = len(device().values)
    del parameter
    gc.collect()
    assert len(device().values) == count - 1


def test_threads_that_use_it_here_and_there_see_whole_numbers():
    parameter = Parameter([1000], init=0.0)
    errors = []

    def use(there):
        for _ in range(30):
            numbers = np.array(device_value(device(), parameter) if there else parameter.value)
            if (numbers != numbers[0]).any():
                errors.append(numbers)

    threads = [threading.Thread(target=use, args=(there,)) for there in (True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
