"""What in an answer's source a person should read before trusting its verdict: it reaches for more than it was given. Pure.

It finds what is written plainly, no more: an answer runs beside the check, and Python hides nothing from it.
"""

import ast
from collections.abc import Iterator

_MODULES = {
    "builtins", "ckptlab", "ctypes", "faulthandler", "gc", "importlib", "inspect", "marshal", "mmap", "multiprocessing",
    "pickle", "pkgutil", "resource", "runpy", "signal", "socket", "subprocess", "sys", "threading", "types", "unittest",
}  # fmt: skip
_FUNCTIONS = {"__import__", "breakpoint", "compile", "delattr", "eval", "exec", "globals", "input", "setattr", "vars"}
_MEMBERS = {
    "__bases__", "__builtins__", "__class__", "__closure__", "__code__", "__dict__", "__globals__", "__mro__", "__self__",
    "__setattr__", "__subclasses__", "_exit", "_getframe", "abort", "ag_frame", "cr_frame", "execv", "execve", "f_back",
    "f_builtins", "f_globals", "f_locals", "fork", "forkpty", "gi_frame", "kill", "killpg", "patch", "popen", "posix_spawn",
    "spawnv", "system", "tb_frame",
}  # fmt: skip


def cautions(source: str) -> list[str]:
    """Name what an answer reaches for: `cautions("import gc")` is ["gc"]; of what is no Python nothing is said."""
    try:
        tree = ast.parse(source)
        bound = _bound(tree)
        return list(dict.fromkeys(found for node in ast.walk(tree) for found in _look(node, bound)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _look(node: ast.AST, bound: set[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name.partition(".")[0] in _MODULES)
        case ast.ImportFrom(module=module, names=names):
            if (module or "").partition(".")[0] in _MODULES:
                yield str(module)
            yield from (f"{module}.{alias.name}" for alias in names if alias.name in _MEMBERS)
        case ast.Name(id=name) if name in _FUNCTIONS | _MEMBERS:
            yield name
        case ast.Attribute(attr=name) if name in _MEMBERS:
            yield name
        case ast.Attribute(ctx=ast.Store() | ast.Del()) if isinstance(root := _root(node), ast.Name) and root.id not in bound:
            yield f"{ast.unparse(node)} is changed"
        case ast.FunctionDef(name="__eq__" | "__ne__" | "__hash__" as name):
            yield name
        case ast.Constant(value=str(text)) if text in _MEMBERS or "/proc/" in text:
            yield repr(text[:40])


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _bound(tree: ast.AST) -> set[str]:
    """Return the names that the source makes itself: its arguments and variables, not what it imports or was given."""
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return arguments | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
