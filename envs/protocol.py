"""gymnax's base class and spaces, without waiting for its own environments.

`import gymnax` imports all of its environments, and they seaborn and matplotlib's pyplot, and these
pandas and scipy: 2 of the 3 seconds before a first `make` returned. Here all of these wait for
their use.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_LATER = ("matplotlib", "matplotlib.pyplot", "seaborn", "gymnax", "gymnax.environments")
_NOW = ("environment", "spaces")

_lock = threading.RLock()


class _Later(ModuleType):
    """A module that is executed when something that it defines is first asked for.

    The standard library's LazyLoader executes it at the second `import`, which looks at `__spec__`.
    """

    def __getattr__(self, name: str) -> Any:
        with _lock:
            if not vars(self).get("_begun") and type(self) is _Later:
                self._begun = True
                try:
                    self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                    self.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    del self._begun
        return ModuleType.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        hasattr(self, "__all__")  # which executes it
        return sorted(vars(self))


def _defer(name: str) -> None:
    """Put a module that has not been imported where `import` looks, to be executed later."""
    parent, _, own = name.rpartition(".")
    if name in sys.modules or (parent and parent not in sys.modules):
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    module = _Later(name)
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__package__ = spec.parent
    if spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations
    sys.modules[name] = module
    if parent:
        setattr(sys.modules[parent], own, module)


if "gymnax" not in sys.modules:
    for _name in _LATER:
        _defer(_name)
    # Modules by their full names, which does not ask anything of the packages that they are in.
    for _name in _NOW:
        importlib.import_module(f"gymnax.environments.{_name}")

from gymnax.environments import environment, spaces

__all__ = ["environment", "spaces"]
