"""What in an answer's source a person should read before trusting its verdict: it reaches for more than it was given. Pure.

It finds what is written plainly, no more: an answer runs beside the check, and Python hides nothing from it.
"""

import ast
import re
from collections.abc import Iterator

from ckptlab.course.grading.parsing import NOT_PARSED, parse

_MODULES = {
    "_thread", "builtins", "ckptlab", "ctypes", "faulthandler", "gc", "importlib", "inspect", "marshal", "mmap",
    "multiprocessing", "pickle", "pkgutil", "resource", "runpy", "signal", "socket", "subprocess", "sys", "threading",
    "traceback", "types", "unittest",
}  # fmt: skip
_AN_EXERCISE = re.compile(r"\bex\d\d_")
_FUNCTIONS = {"__import__", "breakpoint", "compile", "delattr", "eval", "exec", "globals", "input", "setattr", "vars"}
_MEMBERS = {
    "__bases__", "__builtins__", "__class__", "__closure__", "__code__", "__dict__", "__globals__", "__mro__", "__self__",
    "__setattr__", "__subclasses__", "_exit", "_getframe", "_os", "_sys", "abort", "ag_frame", "cr_frame", "execv", "execve",
    "f_back", "f_builtins", "f_globals", "f_locals", "fork", "forkpty", "gi_frame", "kill", "killpg", "popen", "posix_spawn",
    "setprofile", "settrace", "spawnv", "sys", "tb_frame",
}  # fmt: skip
_OF_OS = {"os.system", "os.write"}  # members whose names mean nothing elsewhere: platform.system(), file.write()
_OWN_ANSWERS = {  # by which an object answers the check in its own way
    "__contains__", "__eq__", "__getattr__", "__getattribute__", "__getitem__", "__hash__", "__iter__", "__len__", "__ne__",
    "to_local", "tolist",
}  # fmt: skip


def cautions(source: str) -> list[str]:
    """Name what an answer reaches for: `cautions("import gc")` is ["gc"]; [] for what is not Python."""
    try:
        tree = parse(source)
        bound = _bound(tree)
        return list(dict.fromkeys(found for node in ast.walk(tree) for found in _look(node, bound)))
    except NOT_PARSED:
        return []


def _look(node: ast.AST, bound: set[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if _is_far(alias.name))
        case ast.ImportFrom(module=module, names=names):
            if _is_far(module or ""):
                yield str(module)
            paths = {alias.name: f"{module}.{alias.name}" for alias in names}
            yield from (path for name, path in paths.items() if name in _MEMBERS or path in _OF_OS)
        case ast.Name(id=name) if name in _FUNCTIONS | _MEMBERS:
            yield name
        case ast.Attribute(attr=name) if name in _MEMBERS:
            yield name
        case ast.Attribute(value=ast.Name(id=root), attr=name) if f"{root}.{name}" in _OF_OS:
            yield f"{root}.{name}"
        case ast.Attribute(ctx=ast.Store() | ast.Del()) if _root(node) not in bound:
            yield f"{ast.unparse(node)} is changed"
        case ast.Assign(targets=[ast.Attribute() as target], value=ast.Lambda()):
            yield f"{ast.unparse(target)} is changed"
        case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]) if name in _OWN_ANSWERS:
            yield name
        case ast.Constant(value=str(text)) if text in _MEMBERS or "/proc/" in text or _AN_EXERCISE.search(text):
            yield repr(text[:40])


def _is_far(module: str) -> bool:
    return module.partition(".")[0] in _MODULES or bool(_AN_EXERCISE.match(module))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bound(tree: ast.AST) -> set[str]:
    """Return the names of what the source makes itself; not those of what it imports or was given, or of a part of that."""
    found: set[str] = {""}  # of what has no name
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value):
                aliases[name] = _root(value)
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    while far := {name for name, root in aliases.items() if name in found and root not in found}:
        found -= far
    return found
