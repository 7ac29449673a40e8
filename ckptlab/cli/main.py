"""The command `ckptlab`: which commands there are, and how the program ends.

A command is a file here with a function of the same name. It is imported when it is called, so that `doctor` runs where
the rest cannot. Exit codes: 0 right, 1 the checked thing is wrong, 2 bad usage.
"""

import sys
from importlib import import_module

import click

from ckptlab import __version__

COMMANDS = (
    "bench",
    "certificate",
    "convert",
    "demo",
    "diff",
    "doctor",
    "grade",
    "ls",
    "progress",
    "push",
    "quiz",
    "rollback",
    "show",
    "shrink",
    "submit",
    "train",
    "verify",
)
INTERRUPTED = 130  # 128 + SIGINT, as a shell has it


class Commands(click.Group):
    """The commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names, for help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"ckptlab.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
@click.option("--language", metavar="CODE", help="What learners are told in: en, ig or so. Drafts stand beside the English.")
def ckptlab(language: str | None) -> None:
    """Sharded checkpoints: look at them, check them, learn how they work."""
    if language is not None:
        from ckptlab.course.languages import LANGUAGES, use  # here, so that doctor runs where the course cannot

        if language not in LANGUAGES:
            raise click.UsageError(f"there is no language {language!r}; there are {', '.join(LANGUAGES)}.")
        use(language)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code; bad usage is one line on stderr."""
    try:
        code: int = ckptlab.main(arguments, prog_name="ckptlab", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "ckptlab"
        click.echo(f"error: {error.format_message()} See '{command} --help'.", err=True)
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    return code
