"""How a command reaches the cluster, and how it reports in one line what went wrong.

Exit codes: 0 success; 1 something was not done; 2 a usage error; 130 interrupted by Ctrl-C.
"""

import errno
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click
from click.decorators import FC

from odradek.wire.connection import HandshakeFailed
from odradek.wire.errors import EncodeError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.client import Blocking

BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "ODRADEK_BOOTSTRAP"
CONFIG_VARIABLE = "ODRADEK_COMMAND_CONFIG"
OTHERS_CAN_READ = 0o044
TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 1.0

# The largest partition there can be, and the largest replication factor.
INT32_MAX = 2**31 - 1
INT16_MAX = 2**15 - 1

P = ParamSpec("P")

# What to do about an error that a user can do something about.
ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "see `odradek topics list`",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or say --if-not-exists",
    ErrorCode.INVALID_REPLICATION_FACTOR: "ask for fewer replicas, or start more brokers",
    ErrorCode.INVALID_GROUP_ID: "a group has a name of at least one character",
    ErrorCode.GROUP_ID_NOT_FOUND: "see `odradek groups list`",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop its consumers first",
    ErrorCode.NOT_ENOUGH_REPLICAS: "start the brokers that are down, or lower min.insync.replicas",
    ErrorCode.LEADER_NOT_AVAILABLE: "start the brokers that are down",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "wait for it, or cancel it with `odradek reassign cancel`",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "see `odradek reassign list`",
    ErrorCode.BROKER_NOT_AVAILABLE: "start it first",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "wait, or raise controller_mutation_rate",
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        "an administrator grants it with `odradek acls add`",
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the settings come from --command-config",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic",
}


def position_option(*names: str, default: str | None = None) -> Callable[[FC], FC]:
    """An option that takes a position in a log, and hands over a `Position`."""
    from odradek.operations.positions import EXPLANATION, Position

    def parse(context: click.Context, option: click.Parameter, value: str | None) -> object:
        try:
            return None if value is None else Position.parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return click.option(
        *names, metavar="POSITION", callback=parse, default=default, help=EXPLANATION
    )


def bootstrap_option(help_text: str) -> Callable[[FC], FC]:
    """The option that says which cluster a command is about."""
    return click.option(
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        default=BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,...]",
        help=help_text,
    )


def command_config_option(command: FC) -> FC:
    """The option that names a file with client settings."""
    return click.option(
        "--command-config",
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False),
        help="A properties file with client settings: security.protocol, sasl.*, ssl.*.",
    )(command)


def with_cluster(command: Callable[Concatenate["Blocking", P], None]) -> Callable[..., None]:
    """Give a command the connection options, and a client of the cluster as first argument."""

    @bootstrap_option("Where to find the cluster.")
    @click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the cluster.",
    )
    @command_config_option
    @click.option(
        "--command-property",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        help="One client setting, over those of the file. Secrets belong in the file.",
    )
    @functools.wraps(command)
    def connected(
        *args: Any,
        bootstrap_server: str,
        timeout: float,
        command_config: str | None,
        properties: tuple[str, ...],
        **options: Any,
    ) -> None:
        settings = client_settings(command_config, properties)
        with explained(), connect(bootstrap_server, timeout, settings) as cluster:
            command(cluster, *args, **options)

    return connected


def connect(bootstrap: str, timeout_s: float, settings: Mapping[str, str]) -> "Blocking":
    from odradek.client import Blocking
    from odradek.security.client_settings import InvalidSecurity

    try:
        return Blocking(bootstrap, client_id="odradek-cli", timeout_s=timeout_s, security=settings)
    except InvalidSecurity as error:
        raise click.UsageError(str(error)) from None
    except ValueError as error:
        raise click.UsageError(f"--bootstrap-server: {error}") from None


def client_settings(file: str | None, properties: tuple[str, ...]) -> dict[str, str]:
    """The settings of a file, and over them those of the command line."""
    settings = {} if file is None else read_properties(file)
    if properties:
        from odradek.security.client_settings import SECRET_SETTINGS

        written = assignments(properties, "--command-property")
        for name in sorted(SECRET_SETTINGS & written.keys()):
            raise click.UsageError(
                f"{name} is a secret, and other users can see a command line: put it into a file"
                " for --command-config"
            )
        settings |= written
    return settings


def read_properties(path: str) -> dict[str, str]:
    """A properties file; warns of one that others can read, if there is a secret in it."""
    from odradek.client.security import settings_file
    from odradek.security.client_settings import SECRET_SETTINGS

    try:
        settings = settings_file(path)
        is_open = os.stat(path).st_mode & OTHERS_CAN_READ
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    if is_open and not SECRET_SETTINGS.isdisjoint(settings):
        click.echo(f"Warning: other users can read the secrets in {path}: chmod 600", err=True)
    return settings


@contextmanager
def explained() -> Iterator[None]:
    """Turn what can go wrong with a cluster into one line that says what to do."""
    try:
        yield
    except KafkaError as error:
        raise click.ClickException(explain(error)) from None
    except EncodeError as error:
        raise click.ClickException(f"the request cannot be encoded: {error}") from None
    except BrokenPipeError:
        raise  # the reader of our output has closed the pipe: not a failure of the cluster
    except TimeoutError:
        raise click.ClickException(
            "the cluster did not answer in time; is it busy, or --timeout too short?"
        ) from None
    except HandshakeFailed as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        if error.filename is not None:
            raise click.ClickException(f"{error.filename}: {error.strerror}") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise click.ClickException(f"the output cannot be written: {error.strerror}") from None
        # As a listener that waits for TLS or a login does to a client that begins with neither.
        advice = (
            "if the cluster is secured, give --command-config"
            if "is closed" in str(error)
            else "start a cluster with `odradek up`, or name one with --bootstrap-server"
        )
        raise click.ClickException(f"{error}; {advice}") from None


def explain(error: KafkaError) -> str:
    """An error as one line, with what to do about it if we know."""
    text = error.message or error.error.name
    advice = None if "did you mean" in text else ADVICE.get(error.error)
    name = "" if error.error.name in text else f" ({error.error.name})"
    return f"{text}{name}" + (f"; {advice}" if advice else "")


def finish(failures: Mapping[Any, KafkaError | None]) -> None:
    """End with code 1, and a line for each thing that was not done, if there is one."""
    failed = [error for error in failures.values() if error is not None]
    for error in failed[:-1]:
        click.echo(f"Error: {explain(error)}", err=True)
    if failed:
        raise click.ClickException(explain(failed[-1]))


def assignments(texts: tuple[str, ...], option: str = "--config") -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{option} wants NAME=VALUE, not {text!r}")
        pairs[name.strip()] = value
    return pairs


def _completions(
    context: click.Context, incomplete: str, ask: Callable[["Blocking"], list[str]]
) -> list[str]:
    """Names that begin so. A shell that completes shows no errors: without a cluster, no names."""
    from odradek.client import Blocking

    bootstrap = context.params.get("bootstrap_server") or BOOTSTRAP
    file, properties = context.params.get("command_config"), context.params.get("properties")
    try:
        settings = client_settings(file, tuple(properties or ()))
        with Blocking(bootstrap, timeout_s=COMPLETION_TIMEOUT_S, security=settings) as cluster:
            return [name for name in ask(cluster) if name.startswith(incomplete)]
    except (KafkaError, OSError, TimeoutError, ValueError, click.ClickException):
        return []


def complete_topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _completions(
        context, incomplete, lambda cluster: cluster.run(cluster.admin.list_topics())
    )


def complete_groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _completions(
        context,
        incomplete,
        lambda cluster: [group.id for group in cluster.run(cluster.groups.list_groups())],
    )
