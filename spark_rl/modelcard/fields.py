"""Reading a configuration: published key names, ours, and older ones, with a clear refusal where a size is missing.

In: the mapping of a config.json (or the normalised form). Out: `Fields`, which answers the first known name. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_rl.errors import ConfigError


class Fields:
    """The values of one configuration."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def value(self, *names: str) -> Any:
        """The first of these keys that is present and not null; None when none is."""
        for name in names:
            found = self.config.get(name)
            if found is not None:
                return found
        return None

    def size(self, *names: str) -> int:
        """A size that must be there. Raises ConfigError naming the field, never guesses."""
        found = self.value(*names)
        if found is None:
            raise ConfigError(
                f"{self.name}: the configuration has no {names[0]!r}, and its memory cannot be worked out without it",
                hint="give the whole config.json of the model",
            )
        return self._checked(names[0], found)

    def size_or(self, default: int, *names: str) -> int:
        found = self.value(*names)
        return default if found is None else self._checked(names[0], found)

    def flag(self, default: bool, *names: str) -> bool:
        found = self.value(*names)
        return default if found is None else bool(found)

    def _checked(self, name: str, found: Any) -> int:
        if isinstance(found, bool) or not isinstance(found, (int, float)) or found != int(found) or found < 0:
            raise ConfigError(f"{self.name}: {name} = {found!r} is not a size")
        if found > 10**9:
            raise ConfigError(f"{self.name}: {name} = {found!r} is not a believable size")
        return int(found)
