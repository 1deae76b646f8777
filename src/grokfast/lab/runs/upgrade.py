"""Reads the config.json of version 0.1, which has no version in it: one big table of filter settings, gaps as null."""

from __future__ import annotations

from typing import Any

FIELDS = {  # of each filter, among the fields of all filters
    "ema": ("alpha",),
    "ma": ("window_size",),
    "fir": ("taps",),
    "iir": ("b", "a"),
    "butterworth": ("order", "cutoff"),
}
NUMBER = (int, float)
PARTS: dict[str, dict[str, tuple[type, ...]]] = {
    "task": {"name": (str,)},
    "filter": {"name": (str,)},
    "optim": {"optimizer": (str,), "weight_decay": NUMBER},
    "loop": {"seed": (int,), "steps": (int,), "until": (*NUMBER, type(None))},
}


def check_shape(data: dict[str, Any]) -> None:
    """Raise ValueError unless this is plain data that a reader can rely on."""
    if data["version"] != 2:
        raise ValueError(f"its version must be 2, got {data['version']}: it needs a newer grokfast")
    for part, names in PARTS.items():
        found = data.get(part)
        if found is None and part == "filter":
            continue
        if not isinstance(found, dict) or not all(name in found for name in names):
            raise ValueError(f"{part} must hold {', '.join(names)}, got {found!r:.60}")
        for name, types in names.items():
            if not isinstance(found[name], types) or isinstance(found[name], bool):
                words = " or ".join(kind.__name__ for kind in types if kind is not type(None))
                raise ValueError(f"{part}.{name} must be {words}, got {found[name]!r:.60}")


def upgrade(data: dict[str, Any], environment: dict[str, Any]) -> dict[str, Any]:
    """The same settings in today's form; the environment knows how many threads the run was begun with."""
    if "version" in data:
        check_shape(data)
        return data
    try:
        old, optim, loop = dict(data["filter"]), dict(data["optim"]), dict(data["loop"])
        name = old["filter"]
        values = {key: old[key] for key in (*FIELDS.get(name, ()), "lamb", "slow_only")}
        values |= {"warmup": not old["partial_window"]} if name == "ma" else {}
        fast = data["task"].get("fast", True)
        optim |= {"clip_norm": optim["clip_norm"] or 0.0}
        optim["fused"] = fast and optim["optimizer"] in ("adam", "adamw", "muon")
        loop["threads"] = loop["threads"] or environment.get("threads", 1)
        now = {
            "version": 2,
            "task": {"name": data["task_name"], **data["task"]},
            "filter": None if name is None else {"name": name, **values},
            "two_stage": old["two_stage"],
            "optim": optim,
            "loop": loop,
        }
        check_shape(now)
        return now
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a configuration of this version: {error!r}") from error
