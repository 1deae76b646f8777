"""Command-line flags from the fields of the configuration dataclasses: names, types, choices, defaults and help."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
import types
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grokfast.lab.config import FilterConfig, RunConfig, complete
from grokfast.lab.tasks.base import TaskConfig

NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def add_flags(
    parser: argparse.ArgumentParser,
    kind: type[Any],
    hints: dict[str, str] | None = None,
    without: Sequence[str] = (),
) -> None:
    """Add one flag per field of a dataclass. `hints` says what stands for a default of None."""
    parser._negative_number_matcher = NUMBER  # type: ignore[attr-defined] # argparse takes -1e-5 for a flag
    group = parser.add_argument_group(kind.__doc__.splitlines()[0].rstrip(".") if kind.__doc__ else kind.__name__)
    annotations = get_type_hints(kind)
    for field in (field for field in dataclasses.fields(kind) if field.name not in without):
        help = field.metadata.get("help", "")
        default = (hints or {}).get(field.name, default_text(field.default))
        if default and "(default" not in help:
            help = f"{help} (default: {default})"
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            dest=field.name,
            default=argparse.SUPPRESS,
            help=help.replace("%", "%%"),
            **parser_options(annotations[field.name], field.default, none=field.metadata.get("none", False)),
        )


def default_hints(task: type[TaskConfig]) -> dict[str, str]:
    """What the help says of values whose default the task decides."""
    d = task().defaults()
    decay = dict(d.weight_decay)
    arms = ", ".join(f"{decay[name]:g} for {name}" for name in decay if name)
    return {
        "optimizer": d.optimizer,
        "lr": f"{d.lr:g}",
        "betas": " ".join(f"{beta:g}" for beta in d.betas),
        "warmup_steps": str(d.warmup_steps),
        "clip_norm": "" if d.clip_norm is None else f"{d.clip_norm:g}",
        "steps": str(d.steps),
        "eval_every": "once per epoch" if d.eval_every is None else str(d.eval_every),
        "alpha": f"{d.alpha:g}",
        "lamb": f"{d.lamb_of_ma:g} for ma, else {d.lamb:g}",
        "weight_decay": f"{arms}, else {decay[None]:g}",
    }


def default_text(default: Any) -> str:
    if default is None or default is False or default == ():
        return ""
    return " ".join(f"{x:g}" for x in default) if isinstance(default, tuple) else f"{default}"


def parser_options(annotation: Any, default: Any, *, none: bool = False) -> dict[str, Any]:
    """What argparse must know to read a value of this type; `none` offers that word for None."""
    options = [option for option in alternatives(annotation) if option is not type(None)]
    if options == [bool]:
        return {"action": "store_true" if default is False else argparse.BooleanOptionalAction}
    if len(options) > 1:
        return {"type": first_that_fits(options), "metavar": "|".join(describe(option) for option in options)}
    (only,) = options
    if get_origin(only) is Literal:
        return {"choices": (*get_args(only), *(["none"] if none else []))}
    if get_origin(only) is tuple:
        element, *rest = get_args(only)
        return {"type": element, "nargs": "+" if rest == [...] else 1 + len(rest), "metavar": describe(element)}
    return {"type": only, "metavar": describe(only)}


def alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def describe(option: Any) -> str:
    if get_origin(option) is Literal:
        return "|".join(str(value) for value in get_args(option))
    return {int: "N", float: "X", str: "NAME"}.get(option, str(option))


def first_that_fits(options: list[Any]) -> Any:
    """A reader that tries each alternative in turn, e.g. an int or the word auto."""

    def read(text: str) -> Any:
        for option in options:
            if get_origin(option) is Literal:
                if text in get_args(option):
                    return text
                continue
            try:
                return option(text)
            except ValueError:
                continue
        raise argparse.ArgumentTypeError(f"must be {' or '.join(describe(o) for o in options)}, got {text!r}")

    return read


def command_line(config: RunConfig) -> str:
    """The shortest command that repeats a run: the flags that depart from the paper's values."""
    name = config.filter.filter
    task: Any = type(config.task)
    plain = complete(RunConfig(task(variant=config.task.variant), FilterConfig(filter=name)))
    ours = ("checkpoint_seconds", "data_dir", "variant")
    words = ["grokfast", "train", config.task_name, *(["--filter", name] if name else [])]
    words += [] if config.task.variant == "released" else ["--variant", config.task.variant]
    for part in ("filter", "optim", "loop", "task"):
        mine, usual = getattr(config, part), getattr(plain, part)
        for field in dataclasses.fields(mine):
            value = getattr(mine, field.name)
            if value is not None and value != getattr(usual, field.name) and field.name not in ours:
                words += flag_words(field.name, value)
    return shlex.join(words)


def flag_words(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + flag[2:]]
    return [flag, *(str(v) for v in (value if isinstance(value, tuple) else (value,)))]


def pick(kind: type[Any], values: dict[str, Any]) -> Any:
    """An instance of a dataclass from the flags that were given."""
    names = {field.name: field.metadata.get("none", False) for field in dataclasses.fields(kind)}
    given = {k: None if v == "none" and names[k] else v for k, v in values.items() if k in names}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
