"""What ranks are asked to do: source text, or a call of a function. Described in the parent, carried out on the rank; pure."""

import ast
import inspect
import linecache
import pkgutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """Code to run in the rank's namespace; tracebacks show it under `name`."""

    text: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function that the rank imports by `path` ("module:name"), or else defines by its source."""

    path: str | None
    source: Source | None
    name: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


def describe(what: object, args: tuple[object, ...], kwargs: Mapping[str, object], *, name: str) -> Source | Call:
    """Describe source text or a function so that a rank can run it; `name` is for the source's tracebacks. The parent calls it.

    Raises:
        SyntaxError: the source text is none.
        ValueError: ranks cannot run it (a closure, a lambda, a method), and why.
    """
    if isinstance(what, str):
        if args or kwargs:
            raise ValueError("source text takes no arguments; write the values into it, or pass a function")
        text = textwrap.dedent(what) if what.lstrip("\n")[:1].isspace() else what  # it would empty blank lines in strings
        compile(text, name, "exec")
        return Source(text, name)
    if not inspect.isfunction(what):
        raise ValueError(f"ranks run source text or a function, not {type(what).__name__} {what!r}")
    return _describe_function(what, args, kwargs)


def carry_out(task: Source | Call, namespace: dict[str, object]) -> object:
    """Run the task; of source text return the value of a last expression, else None. A rank calls it."""
    if isinstance(task, Source):
        return _execute(task, namespace)
    return _find(task, namespace)(*task.args, **task.kwargs)


def _describe_function(function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Call:
    name = function.__qualname__
    if function.__name__ == "<lambda>":
        raise ValueError("ranks cannot run a lambda; define a function, or pass the code as text")
    if function.__closure__:
        uses = ", ".join(function.__code__.co_freevars)
        raise ValueError(f"ranks cannot run {name}: it uses {uses} of the function around it; pass what it needs as arguments")
    importable = function.__module__ != "__main__" and "<locals>" not in name
    try:
        source = Source(textwrap.dedent(inspect.getsource(function)), f"<{name}>")
    except OSError:
        source = None
    if not importable and source is None:
        raise ValueError(f"ranks cannot run {name}: they cannot import it, and its source is not to be found")
    path = f"{function.__module__}:{name}" if importable else None
    return Call(path=path, source=source, name=function.__name__, args=args, kwargs=kwargs)


def _find(call: Call, namespace: dict[str, object]) -> Callable[..., object]:
    if call.path is not None:
        try:
            return _callable(pkgutil.resolve_name(call.path))
        except ModuleNotFoundError as error:  # a module that was not imported from sys.path, as pytest can do
            if call.source is None or not call.path.startswith(error.name or " "):
                raise
    assert call.source is not None, "describe() has seen to it"
    _execute(call.source, namespace)
    return _callable(namespace[call.name])


def _callable(found: object) -> Callable[..., object]:
    assert callable(found), f"{found!r} is no longer the function that was described"
    return found


def _execute(source: Source, namespace: dict[str, object]) -> object:
    lines = source.text.splitlines(keepends=True)
    linecache.cache[source.name] = (len(source.text), None, lines, source.name)  # for tracebacks
    tree = ast.parse(source.text, source.name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, source.name, "exec"), namespace)
        return None
    tree.body.pop()
    exec(compile(tree, source.name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), source.name, "eval"), namespace)
