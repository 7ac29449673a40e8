"""An answer's source as a tree, with bounds: a parser can take a thousand times the memory of what it parses. Pure."""

import ast

MOST_CHARACTERS = 100_000
NOT_PARSED = (SyntaxError, ValueError, RecursionError, MemoryError)  # what the parser, and who walks the tree, may raise


def parse(source: str) -> ast.Module:
    """Parse an answer.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not Python, or is longer than any answer.
    """
    if len(source) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(source):,} characters; at most {MOST_CHARACTERS:,} are parsed")
    return ast.parse(source)
