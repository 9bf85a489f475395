"""`odradek completion`: the script that lets a shell complete commands, options, topics, groups."""

import click


@click.command(epilog='Example, in ~/.bashrc: eval "$(odradek completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash   eval "$(odradek completion bash)"      in ~/.bashrc
    zsh    eval "$(odradek completion zsh)"       in ~/.zshrc
    fish   odradek completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from odradek.cli.main import main

    scripts = get_completion_class(shell)
    assert scripts is not None, "one of the shells click knows"
    click.echo(scripts(main, {}, "odradek", "_ODRADEK_COMPLETE").source())
