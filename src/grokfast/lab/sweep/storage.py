"""The file that holds a study: it appears complete or not at all, and is checked before it is used."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import optuna

from grokfast.lab.runs.directory import RunError


def open_study(path: Path, name: str) -> tuple[optuna.Study, Callable[[], None]]:
    """The study of that name in a file, made if there is none, and a function that closes it; else RunError."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if not path.exists():
        draft = path.with_name(f".{path.name}.new")
        for left in path.parent.glob(f"{draft.name}*"):  # by a process that was killed here, with its journal
            left.unlink()
        storage, close = connect(draft)
        optuna.create_study(study_name=name, storage=storage, direction="minimize")
        close()
        draft.replace(path)
    check_storage(path, name)
    try:
        storage, close = connect(path)
        return optuna.load_study(study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler()), close
    except (RuntimeError, KeyError, optuna.exceptions.OptunaError) as error:
        raise RunError(f"{path} was written by another version of Optuna: {error}") from error


def connect(path: Path) -> tuple[optuna.storages.RDBStorage, Callable[[], None]]:
    if set("?{}") & set(str(path.absolute())):
        raise RunError(f"the path of a sweep must not contain ?, {{ or }}, got {path.absolute()}")
    storage = optuna.storages.RDBStorage(f"sqlite:///{path.absolute()}", {"connect_args": {"timeout": 120}})

    def close() -> None:
        storage.remove_session()
        storage.engine.dispose()

    return storage, close


def check_storage(path: Path, name: str) -> None:
    """Refuse a file that SQLite cannot read to its end, or that is not the study of this sweep."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as storage:
            (sound,) = storage.execute("PRAGMA quick_check").fetchone()
            names = storage.execute("SELECT study_name FROM studies").fetchall() if sound == "ok" else []
    except sqlite3.Error as error:
        raise RunError(f"{path} is damaged, or not the storage of this sweep: {error}") from error
    if sound != "ok" or names != [(name,)]:
        raise RunError(f"{path} is {'not the storage of this sweep' if sound == 'ok' else f'damaged: {sound}'}")
