"""Java for a test: it lives for a minute, too short for a compiler or for checks."""

import os

JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def environment() -> dict[str, str]:
    """Ours, for a child that starts Java with options of its own."""
    return {**os.environ, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
