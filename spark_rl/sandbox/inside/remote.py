"""The candidate as the tests see it: a session of calls, and stand-ins for the candidate's own objects.

A stand-in can be called, read, indexed and iterated; it cannot be compared, hashed or taken for true, because then the
candidate's own code would decide what a test sees.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from . import wire


class CandidateGone(Exception):
    """The candidate's process ended, or spoke what is not the protocol."""


class CandidateLacks(NameError):
    """The candidate does not define a name that the tests use."""


class NotAValue(TypeError):
    """The tests compare an object of the candidate's own class."""


class Session:
    """One candidate: its calls in order, and the functions of the tests that it was handed."""

    def __init__(self, descriptor: int, arguments_change: bool = False) -> None:
        self.descriptor = descriptor
        self.arguments_change = arguments_change
        """Whether the tests' lists, dicts and sets become what the candidate made of them."""
        self.calls = 0
        self.handed_out: list[Callable[..., Any]] = []
        self.raised: list[BaseException] = []
        """Exceptions that came from the candidate, to tell them from the tests' own."""

    def wait_until_loaded(self) -> None:
        self._answer(iterating=False)

    def named(self, name: str) -> Any:
        """The candidate's function, class or value of this name."""
        try:
            return self.ask("find", None, name=name)
        except AttributeError:
            raise CandidateLacks(f"the candidate does not define {name!r}") from None

    def ask(self, do: str, of: Remote | None, args: Any = (), kwargs: Any = None, name: str = "") -> Any:
        """One request and its answer. Raises what the candidate raised, as a built-in exception."""
        try:
            message = {
                "do": do,
                "of": None if of is None else wire.plain(of, self._refer),
                "name": name,
                "args": [wire.plain(one, self._refer) for one in args],
                "kwargs": wire.plain(dict(kwargs or {}), self._refer),
            }
            wire.send(self.descriptor, {**message, "show_arguments": self.arguments_change})
        except wire.WireError as error:
            raise CandidateGone(f"the candidate ended: {error}") from None
        reply = self._answer(iterating=do == "next")
        if self.arguments_change and do == "call":
            take_over(args, reply.get("args"))
        return reply["value"]

    def _answer(self, iterating: bool) -> dict[str, Any]:
        """The next reply with a value; functions of the tests are called for the candidate meanwhile."""
        while True:
            try:
                reply = wire.receive(self.descriptor, self._resolve)
            except wire.WireError as error:
                raise CandidateGone(f"the candidate ended without an answer ({error})") from None
            kind = reply.get("kind") if type(reply) is dict else None
            if kind == "value" and "value" in reply:
                return cast(dict[str, Any], reply)
            if kind == "error":
                self._raise(reply, iterating)
            if kind != "callback":
                raise CandidateGone("the candidate sent what is no answer")
            self._call_back(reply)

    def _raise(self, reply: dict[str, Any], iterating: bool) -> NoReturn:
        kind = builtins.__dict__.get(str(reply.get("name")))
        text = str(reply.get("text"))
        ends_iteration = kind in (StopIteration, StopAsyncIteration) and not iterating  # would end a loop of the tests
        if ends_iteration or not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind, text = RuntimeError, f"{reply.get('name')}: {text}"
        try:
            error = kind(text)
        except TypeError:  # UnicodeDecodeError and its like want more arguments
            error = ValueError(text)
        self.raised.append(error)
        raise error

    def _call_back(self, request: dict[str, Any]) -> None:
        """The candidate calls a function that the tests handed it."""
        number, args = request.get("number"), request.get("args")
        if type(number) is not int or type(args) is not list or not 0 <= number < len(self.handed_out):
            raise CandidateGone("the candidate called a function that it was not given")
        try:
            reply = {"do": "return", "value": wire.plain(self.handed_out[number](*args), self._refer)}
        except Exception as error:  # noqa: BLE001  worker boundary: the candidate may call it with anything
            reply = {"do": "raise", "text": f"{type(error).__name__}: {error}"[:500]}
        wire.send(self.descriptor, reply)

    def _refer(self, thing: Any) -> list[Any]:
        if isinstance(thing, Remote):
            return ["candidate", object.__getattribute__(thing, "_number")]
        if callable(thing) and not isinstance(thing, type):
            self.handed_out.append(thing)
            return ["judge", len(self.handed_out) - 1]
        raise wire.Unsendable(f"the tests pass a {type(thing).__name__}, which has no plain form")

    def _resolve(self, reference: Any) -> Remote:
        owner, number, name = reference
        if owner != "candidate" or type(number) is not int or type(name) is not str:
            raise ValueError("no such reference")
        return Remote(self, number, name)


def take_over(arguments: Sequence[Any], changed: Any) -> None:
    """Make the tests' own lists, dicts, sets and byte arrays what the candidate left them as."""
    if type(changed) is not list or len(changed) != len(arguments):
        raise CandidateGone("the candidate did not say what became of its arguments")
    for ours, theirs in zip(arguments, changed, strict=True):
        if type(ours) is not type(theirs):
            continue
        if type(ours) in (list, bytearray):
            ours[:] = theirs
        elif type(ours) in (dict, set):
            ours.clear()
            ours.update(theirs)


class Remote:
    """An object that lives in the candidate's process."""

    __slots__ = ("__name__", "_class_name", "_number", "_session")

    def __init__(self, session: Session, number: int, class_name: str) -> None:
        self._session = session
        self._number = number
        self._class_name = class_name
        self.__name__ = class_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._session.calls += 1
        return self._session.ask("call", self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._session.ask("find", self, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Remote.__slots__:
            object.__setattr__(self, name, value)
        else:
            self._session.ask("store", self, (value,), name=name)

    def __iter__(self) -> Any:
        return self._session.ask("iter", self)

    def __next__(self) -> Any:
        return self._session.ask("next", self)

    def __len__(self) -> int:
        length = self._session.ask("len", self)
        return length if type(length) is int else self._refuse()

    def __getitem__(self, key: Any) -> Any:
        return self._session.ask("item", self, (key,))

    def __str__(self) -> str:
        text = self._session.ask("str", self)
        return text if type(text) is str else self._refuse()

    def __repr__(self) -> str:
        text = self._session.ask("repr", self)
        return text if type(text) is str else self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        raise NotAValue(
            f"the candidate returned an object of its own class {self._class_name!r} where the tests compare values"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = _refuse
