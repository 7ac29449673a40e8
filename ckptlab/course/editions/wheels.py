"""Which wheels a machine without a network needs; `offline.sh` asks, and lets pip and uv fetch them.

`python -m ckptlab.course.editions.wheels here | tags PLATFORM | uv PLATFORM | macos | systems | wanted | lock` prints this
machine's platform, pip's options for a platform, uv's name of it, the oldest macOS, the systems in words, what the course
requires, and in which versions.
"""

import platform
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from packaging.requirements import Requirement

from ckptlab.course.content import LABS
from ckptlab.errors import UsageError

GLIBC, MACOS = 28, 14  # glibc 2.28 and macOS 14: torch's own wheels ask for these
SYSTEMS = f"Linux with glibc 2.{GLIBC} (Debian 10, Ubuntu 20.04) or newer, macOS {MACOS} or newer; Windows: in WSL 2"
LINUX = ("manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, GLIBC + 1)))
TAGS = {f"linux_{machine}": tuple(f"{name}_{machine}" for name in LINUX) for machine in ("x86_64", "aarch64")}
TAGS |= {"macosx_arm64": (f"macosx_{MACOS}_0_arm64",)}


def tags(name: str) -> tuple[str, ...]:
    """Give what pip calls a platform.

    Raises:
        UsageError: torch has no wheels for it.
    """
    if name not in TAGS:
        raise UsageError(f"platform {name!r}: expected one of {', '.join(TAGS)} (Windows: linux_x86_64, in WSL 2)")
    return TAGS[name]


def in_uv(name: str) -> str:
    """Give what uv calls a platform; it takes the oldest macOS from MACOSX_DEPLOYMENT_TARGET."""
    return f"{name.removeprefix('linux_')}-manylinux_2_{GLIBC}" if name.startswith("linux_") else "aarch64-apple-darwin"


def wanted(pyproject: str) -> list[str]:
    """List what the course and its installation require."""
    facts = tomllib.loads(pyproject)
    project = facts["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["course"], *facts["build-system"]["requires"]]


def lock(constraints: Iterable[str], python: str, torch: str) -> Iterator[str]:
    """Give the versions for the first release of a Python ("3.11"), so that the wheels suit every later one of it too.

    Args:
        constraints: the lines of `constraints.txt`.
        python: its version.
        torch: the version of torch, with its build ("2.13.0+cpu"): another build can be gigabytes larger.
    """
    for line in constraints:
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line.strip())
            if requirement.marker is None or requirement.marker.evaluate({"python_full_version": f"{python}.0"}):
                yield f"{requirement.name}{requirement.specifier}"
    yield f"torch=={torch}"


def main(arguments: list[str]) -> None:
    """Print an answer, a line each."""
    root = LABS.parent
    match arguments:
        case ["here"]:
            print("macosx" if sys.platform == "darwin" else sys.platform, platform.machine(), sep="_")
        case ["tags", name]:
            print(*(f"--platform={tag}" for tag in tags(name)), sep="\n")
        case ["uv", name]:
            print(in_uv(name))
        case ["macos"]:
            print(f"{MACOS}.0")
        case ["systems"]:
            print(SYSTEMS)
        case ["wanted"]:
            print(*wanted((root / "pyproject.toml").read_text(encoding="utf-8")), sep="\n")
        case ["lock"]:
            lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
            print(*lock(lines, "{}.{}".format(*sys.version_info), version("torch")), sep="\n")
        case _:
            raise UsageError("write here, tags PLATFORM, uv PLATFORM, macos, systems, wanted or lock")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"error: {error}")
