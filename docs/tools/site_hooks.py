"""ProperDocs hooks: pages for files outside of docs/, and folders in the navigation of properdocs.yml.

The pages are written for the repository, where a link may lead to an example or to a module. On the site each such file
is a page of its own. It shows Markdown as it is, other files as code, and a folder as a list of its files.

An entry of the navigation that ends with a slash stands for all pages of that folder. An entry without a page is left
out. ProperDocs reports pages without an entry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files, InclusionLevel
from properdocs.structure.pages import Page

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
"""A link of Markdown to a file: its path, and its anchor."""

_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
_GLUED = re.compile(r"^(?![-*#|>\s]|\d+\. )(.+)\n(?=(?:[-*]|\d+\.) )", re.MULTILINE)
_STATES = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_SPAN = re.compile(r"`[^`\n]+`")
_SERVED = (".md", ".svg", ".png", ".css")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh", ".java": "java", ".toml": "toml"}


def on_config(config: ProperDocsConfig) -> ProperDocsConfig:
    """Replace `folder/` in the navigation by the pages of that folder."""
    config.nav = list(_expanded(config.nav or []))
    return config


def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Add a page for each linked file outside of docs/, and for the files those link to."""
    top = sorted(ROOT.glob("*.md"))
    waiting, done = [DOCS / file.src_uri for file in files.documentation_pages()], set[Path]()
    while waiting or top:
        found = set(top) if top else set(_outside(waiting.pop())) - done
        done, top = done | found, []
        for target in sorted(found):
            files.append(_generated(config, target))
            waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: ProperDocsConfig, files: Files) -> str:  # noqa: ARG001 - given by name
    """Turn links to files outside into links to their pages, and GitHub's Markdown into that of the site.

    GitHub accepts a list right below a paragraph, and requires that a bar inside code in a table is escaped.
    """
    source, here = _source(page.file.src_uri), page.file.src_uri

    def change(text: str) -> str:
        text = LINK.sub(lambda link: _moved(link, source, here), _GLUED.sub(r"\1\n\n", text))
        return _ROW.sub(lambda row: _SPAN.sub(lambda span: span[0].replace(r"\|", "|"), row[0]), text)

    return _prose(_STATES.sub(_table, markdown), change)


def page_of(path: Path) -> str:
    """Path on the site of a file or folder of the repository.

    A page of docs/ keeps its path; README.md, SCOPE.md and the like are in `project/`; the rest is in `source/`.
    """
    if _on_site(path):
        return path.relative_to(DOCS).as_posix()
    inside = path.relative_to(ROOT)
    if path.is_dir():
        return f"source/{inside.as_posix()}/index.md"
    if inside.suffix != ".md":
        return f"source/{inside.as_posix()}.md"
    return f"project/about-{inside.name.lower()}" if len(inside.parts) == 1 else f"source/{inside.as_posix()}"


def _expanded(entries: Iterable[Any]) -> Iterator[Any]:
    """The entries of a part of the navigation."""
    for entry in entries:
        if isinstance(entry, str):
            yield from _folder(entry) if entry.endswith("/") else [entry] if _source(entry).exists() else []
            continue
        ((title, inside),) = entry.items()
        one = isinstance(inside, str) and not inside.endswith("/")
        pages = list(_expanded([inside] if isinstance(inside, str) else inside))
        if pages:
            yield {title: pages[0] if one else pages}


def _folder(entry: str) -> list[str]:
    """The pages of `folder/`. README.md comes first: the site uses it as the folder's index."""
    names = sorted((path.name for path in (DOCS / entry).glob("*.md")), key=lambda name: (name != "README.md", name))
    return [f"{entry}{name}" for name in names]


def _outside(page: Path) -> Iterator[Path]:
    """The files outside of docs/ that a page links to."""
    for target, _ in LINK.findall(_FENCE.sub("", page.read_text())):
        path = Path(os.path.normpath(page.parent / target))
        if path.exists() and not _on_site(path):
            yield path


def _on_site(path: Path) -> bool:
    """Whether ProperDocs itself adds a file or folder to the site."""
    return path.is_relative_to(DOCS) and (path.is_dir() or path.suffix in _SERVED)


def _generated(config: ProperDocsConfig, path: Path) -> File:
    """A page for a file or folder. The navigation shows it only if properdocs.yml names it."""
    file = File.generated(config, page_of(path), content=_content(path))
    file.inclusion = InclusionLevel.NOT_IN_NAV
    return file


def _content(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        inside = sorted(each.name for each in path.iterdir() if not each.name.startswith(("_", ".")))
        return f"# {name}/\n\n" + "\n".join(f"- `{each}`" for each in inside)
    if path.suffix == ".md":
        return path.read_text()
    return f"# {path.name}\n\n`{name}`\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}````\n"


def _source(uri: str) -> Path:
    """The file of the repository behind a page of the site."""
    if uri.startswith("project/about-"):
        name = uri.removeprefix("project/about-")
        return next(path for path in ROOT.glob("*.md") if path.name.lower() == name)
    return ROOT / uri.removeprefix("source/") if uri.startswith("source/") else DOCS / uri


def _moved(link: re.Match[str], source: Path, here: str) -> str:
    target = Path(os.path.normpath(source.parent / link[1]))
    if target.is_dir() and target.is_relative_to(DOCS):
        target /= "README.md"
    elif not target.exists() or (_on_site(target) and source.is_relative_to(DOCS)):
        return link[0]  # ProperDocs resolves it, or reports that it is broken
    return os.path.relpath(page_of(target), Path(here).parent) + (link[2] or "")


def _table(diagram: re.Match[str]) -> str:
    """The arrows of a state diagram as table rows: a script that draws it would come from another host."""
    arrows = re.findall(r"^ *(\S+) --> (\w+)(?:: (.+))?$", diagram[1], re.MULTILINE)
    rows = [f"| {'' if begin == '[*]' else f'`{begin}`'} | {event} | `{end}` |" for begin, end, event in arrows]
    return "\n".join(["| from | what happens | to |", "|---|---|---|", *rows])


def _prose(markdown: str, change: Callable[[str], str]) -> str:
    """`markdown` with `change` applied outside of code blocks."""
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])
