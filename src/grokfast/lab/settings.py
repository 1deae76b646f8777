"""The settings of a run: flat, plain and complete, `{"task": "modmul", "p": 97, "filter": "ema", "alpha": 0.98, ...}`.

The dataclasses of task, filter, optimizer and loop declare each setting once: name, type, default, range and help.
`settings_of` collects them in one table, and everything else is read from it: flags, checks, keys and commands.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

import torch

import grokfast
from grokfast.lab import filters, tasks
from grokfast.lab.own_code import find_class, is_own_code
from grokfast.lab.tasks.base import TaskConfig, TaskDefaults, setting, usual_of
from grokfast.lab.values import Pairs, check_within, fit, freeze, literal_text, plain

Settings = dict[str, Any]
GROUPS = ("run", "filter", "optim", "loop", "task")  # which dataclass declares a setting; run: none does
SATURATED = 0.99  # --two-stage auto: filter once the training accuracy was this high ...
PATIENCE = 3  # ... at this many evaluations in a row
# Settings that do not change the result of a run.
INCIDENTAL = ("checkpoint_seconds", "data_dir", "memory_limit")
SAME_RESULT = ("compile", "fused", "measures")  # other ways to compute or to record the same experiment
JUDGED = ("measure", "level")  # how a run is judged: the task says
FUSED = ("adam", "adamw", "muon")  # optimizers with a fused kernel on every device
COUNT, POSITIVE, NOT_NEGATIVE = "[1, 2^63)", "(0, inf)", "[0, inf)"
MANY = "[1, 1024]"  # threads, or evaluations or snapshots per decade: more is a mistake


def set_by_task(help: str, within: str | None = None) -> Any:
    """A field whose default depends on the task."""
    return field(metadata={"help": help, "within": within})


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizer and rival methods"""

    optimizer: str = set_by_task("one of torch's by name, or a class by path, such as pytorch_optimizer:Lion")
    lr: float = set_by_task("learning rate", NOT_NEGATIVE)
    weight_decay: float = set_by_task("weight decay; it differs between the paper's arms", NOT_NEGATIVE)
    betas: tuple[float, ...] = set_by_task("betas of the Adam family", "[0, 1)")
    momentum: float = setting(0.0, "momentum of sgd", within=NOT_NEGATIVE)
    nesterov: bool = setting(False, "Nesterov momentum for sgd")
    warmup_steps: int = set_by_task("linear warm-up of the learning rate, which is 0 at the first update", "[0, 2^63)")
    schedule: Literal["constant", "cosine"] = setting(
        "constant", "the learning rate after the warm-up: constant, or down to 0 along half a cosine at the last step"
    )
    clip_norm: float = set_by_task("clip the gradient norm to this, before the filter; 0: do not clip", NOT_NEGATIVE)
    fused: bool = set_by_task("use the optimizer's fused kernel, which rounds differently (default: with fast paths)")
    optimizer_option: Pairs = setting((), "another argument of the optimizer's class; repeatable")
    average: float | None = setting(
        None, "evaluate an exponential average of the weights with this decay", within="[0, 1)"
    )
    muon_params: Literal["all", "matrices", "hidden"] = setting(
        "matrices",
        "what muon trains: all matrices, all but embedding tables, or hidden ones; adamw trains the rest",
    )
    companion_lr: float | None = setting(
        None, "learning rate of adamw next to muon (default: the same)", within=POSITIVE
    )
    companion_decay: float | None = setting(
        None, "weight decay of adamw next to muon (default: the same)", within=NOT_NEGATIVE
    )
    row_norm: float | None = setting(
        None, "clip rows of matrices to this norm after each step; rows start at it", within=POSITIVE
    )
    perp_grad: bool = setting(False, "use only the part of each gradient that is orthogonal to its weights")
    equal_grad: bool = setting(False, "give the gradients of MLP matrices equal singular values, U S V' -> U V'")
    late_decay: float | None = setting(
        None, "add this times |w|^2 to the loss once training has saturated", within=POSITIVE
    )


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Length, evaluation, recording, machine"""

    seed: int = setting(0, "seed of everything random", within="[0, 2^63)")
    steps: int = set_by_task("budget in steps", COUNT)
    until: float | None = setting(None, "target: stop once the validation accuracy (qm9: loss) has reached it")
    hold: int = setting(
        0, "with --until: stop only once the target was also held at this many further evaluations", within="[0, 2^63)"
    )
    extra_steps: int = setting(0, "train for this many more steps after --until was reached", within="[0, 2^63)")
    eval_every: int | None = set_by_task("evaluate every n steps", COUNT)
    eval_log: int | None = setting(None, "evaluate this many times per decade of steps instead", within=MANY)
    checkpoint_seconds: float = setting(
        30.0, "seconds between checkpoints; does not influence the result", within=NOT_NEGATIVE
    )
    device: str = set_by_task("cpu, cuda, mps, or auto for the best available (default: auto)")
    threads: int = set_by_task("CPU threads; their number changes the rounding (default: torch's choice)", MANY)
    snapshots: int | None = setting(
        None, "keep the weights this many times per decade of steps, for trajectories", within=MANY
    )
    gradients: int | None = setting(
        None, "record the gradients of about this many scalars at every step, for spectra", within=COUNT
    )
    memory_limit: float | None = setting(
        None, "gigabytes of memory that the run may use (default: all that is free)", within=POSITIVE
    )
    data_dir: str | None = setting(
        None, "directory of the data sets (default: $GROKFAST_DATA, else a cache that they are downloaded to)"
    )


# The table ------------------------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """One setting: a flag, an axis of a sweep, a key of Settings."""

    name: str
    group: str  # one of GROUPS
    field: str  # its name in the dataclass: a filter's field that clashes with another setting has a longer name
    type: Any
    default: Any  # MISSING if it depends on the task or the filter
    help: str
    within: str | None = None
    learning: bool = False


def settings_of(task: str | type[TaskConfig], kinds: Iterable[str] = ()) -> dict[str, Setting]:
    """Everything that can be set for a task and these filters, by name."""
    own = fields_of("task", tasks.find_task(task) if isinstance(task, str) else task)
    shared = {**fields_of("optim", OptimConfig), **fields_of("loop", LoopConfig)}
    about_filter = "gradient filter to attach, or none (default: none)"
    about_stages = "leave gradients alone before this step; auto: until the training accuracy has saturated"
    first = {"filter": Setting("filter", "run", "filter", str | None, None, about_filter)}
    last = {"two_stage": Setting("two_stage", "run", "two_stage", int | Literal["auto"] | None, None, about_stages)}
    for name in own:
        if name in (*shared, *first, *last, *JUDGED, "task", "name"):
            raise ValueError(f"a task must not have a field called like a setting of every run, got {name}")
    of_filters: dict[str, Setting] = {}
    owners: dict[str, list[str]] = {}
    for kind in kinds:
        for found in fields_of("filter", filters.find_filter(kind)).values():
            name = f"filter_{found.field}" if found.field in (*own, *shared, *JUDGED) else found.field
            owners.setdefault(name, []).append(kind)
            of_filters.setdefault(name, found._replace(name=name))
    for name, names in owners.items():
        of_filters[name] = of_filters[name]._replace(help=f"{of_filters[name].help} [{', '.join(names)}]")
    return {**own, **first, **of_filters, **last, **shared}


@functools.cache
def fields_of(group: str, kind: type[Any]) -> dict[str, Setting]:
    """The settings that a dataclass declares."""
    hints, found = get_type_hints(kind), dict[str, Setting]()
    for f in dataclasses.fields(kind):
        if f.init:
            help = filters.help_of(kind, f.name) if group == "filter" else f.metadata.get("help", "")
            rest = f.metadata.get("within"), f.metadata.get("learning", False)
            found[f.name] = Setting(f.name, group, f.name, hints[f.name], f.default, help, *rest)
    return found


def table_of(settings: Settings) -> dict[str, Setting]:
    """The table for the task and the filter of complete settings; ValueError if their classes are not known here.

    Nothing is imported: a run directory alone never makes us import code.
    """
    lists = {"task": tasks.TASKS, "filter": filters.FILTERS, "optimizer": OPTIMIZERS}
    for part, known in lists.items():
        name = settings.get(part)
        if name is not None and name not in known:
            raise ValueError(f"the {part} {name} is not known here: name it with --{part} {name}")
    return settings_of(settings["task"], [settings["filter"]] if settings["filter"] else [])


# From what is given to complete settings ------------------------------------------------------------------------------


def resolve(task: str, **given: Any) -> Settings:
    """Complete settings from those that are given; the task's usual values for all others.

    Raises:
        ValueError: if a setting is unknown, out of range, of the wrong type, or has no effect.
    """
    kind, filter = tasks.find_task(task), given.get("filter")
    table = settings_of(kind, [filter] if filter else [])
    parts: dict[str, Settings] = {group: {} for group in GROUPS}
    for name, value in given.items():
        if name not in table:
            raise ValueError(why_unknown(name, task, filter))
        found = table[name]
        parts[found.group][found.field] = fit(value, name, found.type)
    made = kind(**parts["task"])
    usual = usual_of(made)
    added = (
        None if filter is None else filters.make_filter(filter, {**usual.filters.get(filter, {}), **parts["filter"]})
    )
    by_field: dict[tuple[str, str], Any] = {("task", f): getattr(made, f) for f in fields_of("task", kind)}
    by_field |= {("run", "filter"): filter, ("run", "two_stage"): parts["run"].get("two_stage")}
    by_field |= {("filter", f): getattr(added, f) for f in (fields_of("filter", type(added)) if filter else ())}
    by_field |= {("optim", f): v for f, v in resolve_optim(made, usual, filter, parts["optim"]).items()}
    by_field |= {("loop", f): v for f, v in resolve_loop(usual, parts["loop"]).items()}
    values = {name: by_field[found.group, found.field] for name, found in table.items()}
    settings = plain_settings({"task": task, **values, "measure": made.measure, "level": usual.level})
    for name, found in table.items():
        if found.group in ("optim", "loop"):  # those of the task may be from a user's own defaults
            fit(by_field[found.group, found.field], name, found.type)
        if found.within is not None and settings[name] is not None:
            check_within(name, settings[name], found.within)
    check(settings)
    return settings


def plain_settings(values: Mapping[str, Any]) -> Settings:
    try:
        return json.loads(json.dumps({name: plain(value) for name, value in values.items()}))
    except TypeError as error:
        raise ValueError(f"settings must be plain values that JSON can hold: {error}") from error


def why_unknown(name: str, task: str, filter: str | None) -> str:
    if any(name in fields_of("filter", kind) for kind in filters.FILTERS.values()):
        return f"{name} needs a filter that has it, got {filter or 'none'}"
    return f"{name} must be a setting of {task}: see grokfast train {task} --help all"


def resolve_optim(task: TaskConfig, usual: TaskDefaults, filter: str | None, given: Settings) -> Settings:
    names = ("optimizer", "lr", "betas", "warmup_steps", "clip_norm")
    values: Settings = {name: getattr(usual, name) for name in names}
    values["weight_decay"] = usual.weight_decay.get(filter, usual.weight_decay[None])
    optimizer = given.get("optimizer", usual.optimizer)
    find_optimizer(optimizer)
    for name in given:
        check_keyword(name, optimizer)
    values["fused"] = not task.plain and optimizer in FUSED
    return dataclasses.asdict(OptimConfig(**{**values, **own_defaults(optimizer), **given}))


def resolve_loop(usual: TaskDefaults, given: Settings) -> Settings:
    every = None if given.get("eval_log") is not None else usual.eval_every
    values: Settings = {"steps": usual.steps, "eval_every": every, "device": "auto", **given}
    values.setdefault("threads", torch.get_num_threads())
    if values["device"] == "auto":
        values["device"] = best_device()
    check_device(values["device"])
    if values.get("data_dir") is not None:
        values["data_dir"] = str(Path(values["data_dir"]).absolute())
    return dataclasses.asdict(LoopConfig(**values))


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(name: str) -> None:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not re.fullmatch(r"[a-z]+(:\d+)?", name) or not available.get(name.split(":")[0], False):
        usable = ", ".join(["auto", *(kind for kind, yes in available.items() if yes)])
        raise ValueError(f"device must be one of {usable} here, got {name}")


def check(settings: Settings) -> None:
    """Raise ValueError for settings that do not fit each other; filters, optimizers and tasks check their own."""
    until, accuracy = settings["until"], settings["measure"] == "accuracy"
    if until is not None:
        check_within("until", until, "(0, 1]" if accuracy else POSITIVE)
    if settings["eval_every"] is not None and settings["eval_log"] is not None:
        given = f"{settings['eval_every']} and {settings['eval_log']}"
        raise ValueError(f"give one of eval_every and eval_log, got {given}")
    for name in ("extra_steps", "hold"):
        if settings[name] and until is None:
            raise ValueError(f"{name} needs until, got {settings[name]} without it")
    optimizer = settings["optimizer"]
    if settings["fused"] and optimizer not in FUSED:
        raise ValueError(f"fused must be False with {optimizer}, got True")
    if len(settings["betas"]) < 2:
        raise ValueError(f"betas must be two values or more, got {settings['betas']}")
    for name, _ in settings["optimizer_option"]:
        check_option(name, optimizer)
    if settings["late_decay"] is not None and not accuracy:
        raise ValueError(f"late_decay needs a task with an accuracy, got {settings['late_decay']} on one without")
    two_stage = settings["two_stage"]
    if two_stage is None:
        return
    if settings["filter"] is None:
        raise ValueError("two_stage needs a filter, got none")
    if two_stage == "auto" and not accuracy:
        raise ValueError("two_stage auto needs a task with an accuracy, got one without: give a step")
    if two_stage != "auto" and not (isinstance(two_stage, int) and two_stage >= 0):
        raise ValueError(f"two_stage must be a step >= 0 or auto, got {two_stage}")


# Optimizers by name ---------------------------------------------------------------------------------------------------

# Torch's. One by path, `package:Class` or `my.py:Class`, needs no line: it gets the task's learning rate and decay, and
# keeps its own betas and momentum unless they are given.
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "nadam": torch.optim.NAdam,
    "muon": torch.optim.Muon,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
OF_MUON = ("muon_params", "companion_lr", "companion_decay")
KEYWORDS = ("betas", "momentum", "nesterov", *OF_MUON)  # settings that some optimizers have and others do not
FLAGS = ("lr", "weight_decay", "fused", *KEYWORDS)  # these have flags of their own and are not options


def find_optimizer(name: str) -> type[torch.optim.Optimizer]:
    """The class of that name; a class by path is imported and known from then on."""
    return find_class(name, OPTIMIZERS, torch.optim.Optimizer, "optimizer")


def parameters_of(name: str) -> dict[str, Any]:
    """What the constructor of a known optimizer takes by name, with the defaults."""
    found = inspect.signature(OPTIMIZERS[name]).parameters.values()
    return {p.name: p.default for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def keywords_of(name: str) -> set[str]:
    """Which of our settings a known optimizer has. Muon's momentum is an option: the betas are its companion's."""
    return {"betas", *OF_MUON} if name == "muon" else {word for word in KEYWORDS if word in parameters_of(name)}


def own_defaults(name: str) -> dict[str, Any]:
    """The default values that a class by path has for our settings."""
    if not is_own_code(name):
        return {}
    known = {word: parameters_of(name)[word] for word in keywords_of(name)}
    return {word: value for word, value in known.items() if isinstance(value, tuple | float | bool)}


def check_keyword(word: str, name: str) -> None:
    """Raise ValueError if a setting has no effect on an optimizer."""
    if word in KEYWORDS and word not in keywords_of(name):
        others = ", ".join(other for other in OPTIMIZERS if word in keywords_of(other))
        raise ValueError(f"{word} has no effect on {name}: it is for {others}")


def check_option(word: str, name: str) -> None:
    """Raise ValueError unless the constructor of an optimizer names this option."""
    if word in FLAGS and (name, word) not in {("muon", "momentum"), ("muon", "nesterov")}:
        raise ValueError(f"optimizer_option must not be a setting that has a flag, got {word}: give --{word}")
    known = [other for other in parameters_of(name) if other not in (*FLAGS, "params")]
    if word not in parameters_of(name):
        raise ValueError(f"optimizer_option must be one of {', '.join(known)} for {name}, got {word}")


# From complete settings to objects ------------------------------------------------------------------------------------


def part_of(settings: Settings, group: str) -> dict[str, Any]:
    """The settings of one dataclass, by the names of its fields."""
    table = table_of(settings).values()
    try:
        return {each.field: freeze(settings[each.name]) for each in table if each.group == group}
    except KeyError as error:
        raise ValueError(f"settings must be complete, got none called {error.args[0]}") from error


def task_of(settings: Settings) -> TaskConfig:
    """The task, with its settings."""
    values = part_of(settings, "task")
    return tasks.TASKS[settings["task"]](**values)


def filter_of(settings: Settings) -> grokfast.Filter | None:
    """The filter, with its settings; only the class of the filter must be known here."""
    name, values = settings["filter"], filter_values(settings)
    if name is None:
        return None
    if name not in filters.FILTERS:
        raise ValueError(f"the filter {name} is not known here: name it with --filter {name}")
    given: Settings = {}
    for part in fields_of("filter", filters.FILTERS[name]):
        key = part if part in values else f"filter_{part}"
        if key not in values:
            raise ValueError(f"settings must be complete, got none called {key}")
        given[part] = freeze(values[key])
    return filters.make_filter(name, given)


def optim_of(settings: Settings) -> OptimConfig:
    """The settings of the optimizer."""
    return OptimConfig(**part_of(settings, "optim"))


def filter_values(settings: Settings) -> Settings:
    """The settings of the filter alone. Needs no class: they come between `filter` and `two_stage`."""
    names = list(settings)
    inside = names[names.index("filter") + 1 : names.index("two_stage")]
    return {name: settings[name] for name in inside}


# Keys and names -------------------------------------------------------------------------------------------------------


def experiment_of(settings: Settings) -> str:
    """Eight hex digits that all repeats of an experiment share, with any seed, length, recordings and machine.

    Values at their field's default do not count, so a setting that is added later changes no key. The classes of task
    and filter must be known: the key is computed when a run is made and kept with it.
    """
    table = table_of(settings)
    left_out = {name for name, found in table.items() if found.group == "loop"} | {*SAME_RESULT}
    if settings["schedule"] == "cosine":
        left_out.remove("steps")  # the learning rate of every step depends on how many there are
    return short_hash({name: v for name, v in unlike_default(settings, table).items() if name not in left_out})


def run_id(settings: Settings) -> str:
    """Eight hex digits that differ for settings that may give different results."""
    return short_hash(unlike_default(settings, table_of(settings)))


def unlike_default(settings: Settings, table: Mapping[str, Setting]) -> Settings:
    """The settings whose value is not the default of their field."""
    kept = {n: settings[n] for n, s in table.items() if n not in INCIDENTAL and settings[n] != plain(s.default)}
    return {"task": settings["task"], **kept}


def short_hash(data: Any) -> str:
    """Eight hex digits of plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]


NAMED = {"operation": "", "p": "p", "width": "width"}  # settings of the task in the name of a run, after these letters


def name_of(settings: Settings) -> str:
    """The name of a run: task, its unusual settings, optimizer, filter, learning rate, decay, seed, hash."""
    changed, filter = unlike_default(settings, table_of(settings)), filter_of(settings)
    shown = [f"{letters}{plain_word(str(changed[name]))}" for name, letters in NAMED.items() if name in changed]
    parts = [plain_word(settings["task"]), *shown, plain_word(settings["optimizer"])]
    parts.append("baseline" if filter is None else filters.short_name(filter))
    parts += [] if settings["two_stage"] is None else [f"from{settings['two_stage']}"]
    parts += [f"lr{settings['lr']:g}", f"wd{settings['weight_decay']:g}", f"s{settings['seed']}", run_id(settings)]
    return "-".join(parts)


def plain_word(text: str) -> str:
    """A path or a name as a word that can be part of a file's name."""
    return re.sub(r"\W+", "_", text.rpartition("/")[2])


# And back -------------------------------------------------------------------------------------------------------------


def unusual(settings: Settings) -> Settings:
    """The settings that differ from the task's usual ones: `resolve(task, **unusual(settings))` gives all again."""
    task, table = settings["task"], table_of(settings)
    # The usual values of others depend on these.
    deciding = {name: settings[name] for name in ("filter", "optimizer", "variant", "fast") if name in table}
    required = [] if settings["filter"] is None else filters.required_of(filters.FILTERS[settings["filter"]])
    needed = {n: settings[n] for n, found in table.items() if found.group == "filter" and found.field in required}
    given = {name: value for name, value in {**deciding, **needed}.items() if value is not None}
    usual, nothing_given = resolve(task, **given), resolve(task)
    departing = {name: value for name, value in given.items() if name in needed or value != nothing_given[name]}
    for name in table:
        value = settings[name]
        if name not in INCIDENTAL and value is not None and value != usual[name]:
            departing[name] = value
    return departing


def command_line(settings: Settings) -> str:
    """The shortest command that repeats a run."""
    return shlex.join(["grokfast", "train", settings["task"], *flag_words(unusual(settings))])


def flag_words(given: Settings) -> list[str]:
    """Settings as words on the command line."""
    return [word for name, value in given.items() if value is not None for word in words_of(name, value)]


def words_of(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    if name == "optimizer_option":
        return [word for key, part in value for word in (flag, f"{key}={literal_text(part)}")]
    return [flag, *(str(part) for part in plain(value if isinstance(value, tuple | list) else [value]))]
