"""Print how long the package is, room by room: `python -m tests.lines`, the last part of `make check`. Nothing is enforced."""

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "ckptlab"
CHECKPOINTER = ("errors", "format", "storage", "steps", "checkpoint", "tiers", "resume")


def lines_by_room() -> dict[str, tuple[int, int]]:
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        lines[room] += len(path.read_text().splitlines())
        files[room] += 1
    return {room: (lines[room], files[room]) for room in sorted(lines)}


def main() -> None:
    rooms = lines_by_room()
    for room, (lines, files) in rooms.items():
        print(f"{room:<12}{lines:>7,} lines in {files} file{'s'[: files > 1]}")
    print(f"{'in all':<12}{sum(lines for lines, _ in rooms.values()):>7,} lines")
    checkpointer = sum(rooms[room][0] for room in CHECKPOINTER if room in rooms)
    print(f"{'checkpointer':<12}{checkpointer:>7,} lines: {', '.join(CHECKPOINTER)}")


if __name__ == "__main__":
    main()
