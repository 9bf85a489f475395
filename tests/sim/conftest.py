"""One process for simulated runs, with a fixed hash seed: the order of sets is part of a run."""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest


@pytest.fixture(scope="session")
def repeatable() -> Iterator[Executor]:
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            pool.submit(int).result()  # the process is there, and has read its environment
            if before is None:
                del os.environ["PYTHONHASHSEED"]
            else:
                os.environ["PYTHONHASHSEED"] = before
            yield pool
    finally:
        if before is None:
            os.environ.pop("PYTHONHASHSEED", None)
