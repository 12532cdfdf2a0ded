"""Reads a Dockerfile as far as ours goes: stages of ARG, FROM, RUN, COPY, ENV, LABEL, USER, WORKDIR and ENTRYPOINT."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

_STEPS = ("RUN", "COPY")
_NOTES = ("ENV", "LABEL", "USER", "WORKDIR", "ENTRYPOINT")


class DockerfileError(ValueError):
    """An instruction that we do not know; says which and where."""


@dataclass(frozen=True)
class Step:
    """RUN or COPY. flags: its ``--name=value`` options, as pairs; words: the rest of the line."""

    name: str
    flags: tuple[tuple[str, str], ...]
    words: str
    environment: dict[str, str]


@dataclass
class Stage:
    """From one FROM to the next. base: an image, or the name of an earlier stage."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """USER, WORKDIR and ENTRYPOINT, as written."""
    arguments: dict[str, str] = field(default_factory=dict)


def stages(file: Path) -> list[Stage]:
    """The stages of a Dockerfile in order. Raises `DockerfileError`."""
    found: list[Stage] = []
    arguments: dict[str, str] = {}
    for line in lines(file.read_text()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append(_from(rest, arguments, len(found)))
        elif name == "ARG" and not found:
            arguments.update(_pairs(rest))
        elif found:
            _add(found[-1], name, rest.strip())
        else:
            raise DockerfileError(f"{line!r} stands before FROM")
    return found


def lines(text: str) -> list[str]:
    """Instructions, each on one line, without comments."""
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(kept)).splitlines()


def _from(rest: str, arguments: dict[str, str], number: int) -> Stage:
    words = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], rest).split()
    return Stage(base=words[0], name=words[2] if len(words) > 1 else str(number))


def _add(stage: Stage, name: str, rest: str) -> None:
    if name in _STEPS:
        options, words = _options(rest)
        stage.steps.append(Step(name, options, words, {**stage.arguments, **stage.environment}))
    elif name == "ARG":
        stage.arguments.update(_pairs(rest))
    elif name in {"ENV", "LABEL"}:
        (stage.environment if name == "ENV" else stage.labels).update(_pairs(rest))
    elif name in _NOTES:
        stage.notes[name] = rest
    else:
        raise DockerfileError(f"{name} {rest!r}: none of {', '.join(('FROM', 'ARG', *_STEPS, *_NOTES))}")


def _options(rest: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """The options in front, and what they are options of."""
    found = []
    while match := re.match(r"--([a-z]+)=(\S+)\s+", rest):
        found.append((match[1], match[2]))
        rest = rest[match.end() :]
    return tuple(found), rest


def _pairs(rest: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(rest))


def entrypoint(stage: Stage) -> list[str]:
    """The words of ENTRYPOINT."""
    return list(json.loads(stage.notes["ENTRYPOINT"]))


def mounts(step: Step) -> list[dict[str, str]]:
    """The ``--mount`` options of a RUN, each as its fields."""
    return [_pairs(value.replace(",", " ")) for name, value in step.flags if name == "mount"]
