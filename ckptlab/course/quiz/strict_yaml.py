"""Read YAML that says one thing only: no key twice, no anchors, no tags, a bounded size. Pure."""

from collections.abc import Hashable
from typing import Any

import yaml

from ckptlab.errors import UsageError

MOST_BYTES = 256 << 10


class _Strict(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not allowed", problem_mark=event.start_mark)
        if getattr(event, "tag", None):
            raise yaml.MarkedYAMLError(problem="tags are not allowed", problem_mark=event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        there = set[str]()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is not a text", problem_mark=key_node.start_mark)
            if key in there:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
            there.add(key)
        return super().construct_mapping(node, deep)


def parse(content: bytes, name: str) -> object:
    """Return the document in `content`.

    Raises:
        UsageError: it is none, or says something in a way that two readers might read differently; `name` tells which.
    """
    if len(content) > MOST_BYTES:
        raise UsageError(f"{name} has {len(content):,} bytes; at most {MOST_BYTES:,} are read")
    try:
        return yaml.load(content.decode(), _Strict)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{name}{line}: {error.problem or 'no YAML'}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: no YAML that can be read ({type(error).__name__}: {str(error)[:200]})") from None
