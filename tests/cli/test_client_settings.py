"""Client settings of commands: from a file, from the command line, and never a secret there."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.cli.session import client_settings


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.type=PEM\nclient.id = x\n")
    settings = client_settings(str(file), ("security.protocol=SASL_SSL",))
    assert settings == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "client.id": "x",
    }


def test_a_secret_on_the_command_line_is_refused() -> None:
    with pytest.raises(click.UsageError, match="other users can see") as raised:
        client_settings(None, ("sasl.password=hunter2",))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True)])
def test_secrets_that_others_can_read_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, warned: bool
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=hunter2\n")
    file.chmod(mode)
    client_settings(str(file), ())
    message = capsys.readouterr().err
    assert ("chmod 600" in message) is warned
    assert "hunter2" not in message


def test_settings_that_cannot_be_used_are_one_line() -> None:
    result = CliRunner().invoke(
        main, ["topics", "list", "--command-property", "security.protocol=TLS"]
    )
    assert result.exit_code == 2
    assert "security.protocol: TLS is not one of" in result.stderr
