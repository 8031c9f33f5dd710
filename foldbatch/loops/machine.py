"""Machine code for this processor: compiled from LLVM's text, and loaded into memory.

The environment variables ``FOLDBATCH_CPU`` and ``FOLDBATCH_CPU_FEATURES`` choose another processor, in LLVM's
words. Importing this needs llvmlite.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any, TypeAlias

import llvmlite
from llvmlite import binding

from foldbatch.errors import BackendError

Binding: TypeAlias = Any  # an object of llvmlite, which has no types: a processor, an engine or a module
# levels of optimization, of machine code and of LLVM's text; with 3 for the text, tiles are slower
CODE_LEVEL, TEXT_LEVEL = 3, 2


@cache
def processor() -> tuple[str, str]:
    """Return the processor's name, and its features as LLVM writes them."""
    name = os.environ.get("FOLDBATCH_CPU") or binding.get_host_cpu_name()
    features = os.environ.get("FOLDBATCH_CPU_FEATURES")
    if features and not re.fullmatch(r"[+-][\w.-]+(,[+-][\w.-]+)*", features):  # LLVM would end the process
        fix = "write + or - before each, and commas between; or leave it unset"
        raise BackendError("FOLDBATCH_CPU_FEATURES", "features in LLVM's words", repr(features), fix)
    if features is None:
        host = binding.get_host_cpu_features()
        # LLVM would write loops for half the registers of many Intels, lest these slow down; tiles fill them
        features = host.flatten() + (",-prefer-256-bit" if host.get("avx512f") else "")
    return name, features


@cache
def identity() -> str:
    """Return a text for cache keys: the versions of llvmlite and LLVM, and the processor."""
    return "\n".join([llvmlite.__version__, str(binding.llvm_version_info), *processor()])


@cache
def _target() -> Binding:
    """Return LLVM's target machine for the processor."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name, features = processor()
    target = binding.Target.from_default_triple()
    reloc = "static" if target.name.startswith("x86") else "default"  # LLVM's loader can do no other
    return target.create_target_machine(name, features, CODE_LEVEL, reloc, "jitdefault", jit=True)


@cache
def _engine() -> Binding:
    return binding.create_mcjit_compiler(binding.parse_assembly(""), _target())


def optimized(text: str) -> Binding:
    """Return the module of LLVM's text, optimized for this processor."""
    target = _target()
    module = binding.parse_assembly(text)
    module.triple = binding.get_process_triple()
    module.data_layout = str(target.target_data)
    options = binding.create_pipeline_tuning_options(TEXT_LEVEL)
    options.loop_vectorization, options.slp_vectorization = True, False
    options.loop_unrolling = False  # it takes a third of the time of compiling, and nothing gets faster
    passes = binding.create_pass_builder(target, options)
    passes.getModulePassManager().run(module, passes)
    return module


def assemble(text: str) -> bytes:
    """Return the machine code of LLVM's text, as the content of an object file."""
    content: bytes = _target().emit_object(optimized(text))
    return content


def load(name: str, content: bytes) -> int:
    """Return the address of a function of an object file, which stays in memory."""
    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(content))
    engine.finalize_object()
    address: int = engine.get_function_address(name)
    return address
