from foldbatch.engines.cuda.control import RECORD
from foldbatch.engines.cuda.row_kernels import MOVES
from foldbatch.engines.cuda.texts.functions import LANES, THREAD, as_functions
from foldbatch.engines.cuda.texts.records import RECORDS, TEXT
from tests.engines.cuda.emulator import load_driver


def test_the_functions_compile():
    moves = as_functions("\n".join(MOVES.values()))
    load_driver().load(f"{THREAD}\n{LANES}\n{moves}\n{TEXT}")


def test_arguments_fit_a_record():
    assert max(RECORDS.values()) < RECORD
