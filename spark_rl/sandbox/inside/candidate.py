"""The candidate's side: runs untrusted code and answers calls from the judge.

Nothing here is trusted by anyone: the code it runs may rewrite all of it. It knows no tests, no expected values and
no verdict; all it can do is answer a call with a value. One process per sample, never used twice.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType
from typing import Any

from . import wire

MODULE_NAME = "solution"


def first_that_compiles(sources: list[str]) -> CodeType:
    """The first of several readings of a completion that is Python; the first one's error when none is."""
    problem: BaseException | None = None
    for source in sources:
        try:
            return compile(source, "<candidate>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = problem or error
    raise problem or ValueError("no source")


def run_program(sources: list[str]) -> None:
    """The candidate as a whole program that reads standard input: ends the process as Python would."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["program.py"]
    exec(first_that_compiles(sources), module.__dict__)  # noqa: S102  this is the sandbox


def serve(descriptor: int, sources: list[str]) -> None:
    """Load the candidate as a module, then answer the judge's calls until it closes."""
    module = ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    desk = Desk(descriptor, module)
    try:
        exec(first_that_compiles(sources), module.__dict__)  # noqa: S102  this is the sandbox
    except BaseException as error:  # noqa: BLE001  worker boundary: whatever untrusted code raises is reported
        desk.answer_error(error)
        return
    desk.answer(None, [])
    desk.answer_all()


class Desk:
    """Holds the candidate's objects that the judge knows by number, and answers one call at a time."""

    def __init__(self, descriptor: int, module: ModuleType) -> None:
        self.descriptor = descriptor
        self.module = module
        self.objects: list[Any] = []

    def answer_all(self) -> None:
        while True:
            try:
                request = wire.receive(self.descriptor, self.resolve)
            except wire.WireError:
                return
            try:
                result = OPERATIONS[request["do"]](self, request)
            except BaseException as error:  # noqa: BLE001  worker boundary, as above
                self.answer_error(error)
                continue
            self.answer(result, request["args"] if request["show_arguments"] else [])

    def answer(self, result: Any, arguments: list[Any]) -> None:
        try:
            shown = [wire.plain(one, self.refer) for one in arguments]
            wire.send(self.descriptor, {"kind": "value", "value": wire.plain(result, self.refer), "args": shown})
        except (wire.TooLarge, RecursionError, MemoryError) as error:
            self.answer_error(error)

    def answer_error(self, error: BaseException) -> None:
        try:
            text = str(error)[:500]
        except BaseException:  # noqa: BLE001  worker boundary: __str__ is the candidate's too
            text = ""
        wire.send(self.descriptor, {"kind": "error", "name": builtin_name(error), "text": text})

    def refer(self, thing: Any) -> list[Any]:
        self.objects.append(thing)
        return ["candidate", len(self.objects) - 1, type(thing).__name__]

    def resolve(self, reference: Any) -> Any:
        owner, number, *_ = reference
        return self.objects[number] if owner == "candidate" else self.judges_function(number)

    def judges_function(self, number: int) -> Callable[..., Any]:
        """A function of the tests, passed as an argument: calling it asks the judge."""

        def ask(*args: Any) -> Any:
            wire.send(
                self.descriptor,
                {"kind": "callback", "number": number, "args": [wire.plain(one, self.refer) for one in args]},
            )
            reply = wire.receive(self.descriptor, self.resolve)
            if reply["do"] == "raise":
                raise RuntimeError(reply["text"])
            return reply["value"]

        return ask

    def call(self, request: Mapping[str, Any]) -> Any:
        return self.target(request)(*request["args"], **request["kwargs"])

    def find(self, request: Mapping[str, Any]) -> Any:
        """A plain value, or a reference to whatever has this name."""
        return getattr(self.target(request), request["name"])

    def store(self, request: Mapping[str, Any]) -> None:
        setattr(self.target(request), request["name"], request["args"][0])

    def target(self, request: Mapping[str, Any]) -> Any:
        return self.module if request["of"] is None else request["of"]


OPERATIONS: dict[str, Callable[[Desk, Mapping[str, Any]], Any]] = {
    "call": Desk.call,
    "find": Desk.find,
    "store": Desk.store,
    "iter": lambda desk, request: iter(desk.target(request)),
    "next": lambda desk, request: next(desk.target(request)),
    "len": lambda desk, request: len(desk.target(request)),
    "item": lambda desk, request: desk.target(request)[request["args"][0]],
    "str": lambda desk, request: str(desk.target(request)),
    "repr": lambda desk, request: repr(desk.target(request)),
}


def builtin_name(error: BaseException) -> str:
    """The nearest built-in class of an exception: the only part of its type that crosses."""
    for ancestor in type(error).__mro__:
        if getattr(builtins, ancestor.__name__, None) is ancestor:
            return str(ancestor.__name__)
    return "Exception"
