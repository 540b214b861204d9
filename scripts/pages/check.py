"""Checks the pages: links and anchors lead somewhere, and the commands, options, files and make targets that they name exist.

    python3 -m scripts.pages.check

Commands are looked up in the sources, so nothing has to be built. Standard library only.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

# Options of other programs that the text speaks of by themselves.
_FOREIGN = {"--enable-recovery", "--no-kill", "--help"}
_FOLDERS = ("src", "include", "scripts", "docs", "tests", "bench", "evaluate", "examples", "python", "fuzz", "cmake")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def pages() -> list[Path]:
    return [Path("README.md"), Path("CONTRIBUTING.md"), Path("CHANGELOG.md"), *sorted(Path("docs").rglob("*.md"))]


def breaches(found: list[Path]) -> list[str]:
    """One sentence for each, with the page and the line."""
    out = []
    for page in found:
        for number, kind, text in _parts(page.read_text()):
            if kind == "code" and page.name == "CHANGELOG.md":  # which speaks of what is gone, too
                continue
            checks = _bad_links(page, text) if kind == "text" else _bad_code(text)
            out += [f"{page}:{number}: {sentence}" for sentence in checks]
    return out


def _parts(text: str):
    """(line, kind, text): a line of text, an inline `code`, or a line of a block of shell code."""
    language = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            language = None if language is not None else fence[1]
        elif language is not None:
            if language in ("", "sh", "bash", "console"):
                yield number, "code", line
        elif line.startswith("    "):
            yield number, "code", line.strip()
        else:
            for code in re.findall(r"`([^`]+)`", line):
                yield number, "code", code
            yield number, "text", re.sub(r"`[^`]*`", "", line)


def _bad_links(page: Path, line: str):
    for target in re.findall(r"\]\(([^)\s]+)\)", line) + re.findall(r'(?:src|href)="([^"]+)"', line):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        if not there.exists():
            yield f"there is no {there}, to which it links"
        elif anchor and there.suffix == ".md" and anchor not in _anchors(there):
            yield f"{there} has no heading for #{anchor}"


@cache
def _anchors(page: Path) -> set[str]:
    """Of headings, as GitHub makes them; only those that MkDocs makes alike, since links must hold in both."""
    out = set()
    fenced = False
    for line in page.read_text().splitlines():
        fenced ^= line.startswith("```")
        heading = re.match(r"#+ (.*)", line)
        if heading and not fenced:
            words = re.sub(r"[^\w\s-]", "", heading[1].strip().lower())
            if re.sub(r"\s", "-", words) == re.sub(r"[-\s]+", "-", words):
                out.add(re.sub(r"\s", "-", words))
    return out


def _bad_code(line: str):
    line = re.sub(r"(^|\s)#\s.*", "", line).strip()
    if not line:
        return
    if line.startswith("--"):
        yield from _unknown(line, _all_options(), "any program")
        return
    for command in re.split(r"&&|\|(?!\w)|;", line):
        words = command.split()
        while words and (words[0] in ("sudo", "nice", "exec") or re.match(r"[A-Z_]+=", words[0])):
            words.pop(0)
        if words and words[0] == "mpirun" and "peel" in words:
            words = words[words.index("peel") :]
        if not words:
            continue
        program, rest = words[0], words[1:]
        if program == "peel":
            yield from _bad_peel(rest)
        elif program == "make":
            for target in rest:
                if re.fullmatch(r"[a-z-]+", target) and target not in _targets():
                    yield f"there is no `make {target}`"
        elif program in _programs():
            sources = [option for source in _programs()[program] for option in _options(source)]
            yield from _unknown(" ".join(rest), set(sources), program)
        for word in words:
            yield from _missing(word)


def _missing(word: str):
    word = word.strip("'\"(),:")
    named = re.fullmatch(r"[\w./-]+", word) and "/" in word and word.split("/")[0] in _FOLDERS
    if named and not re.search(r"[A-Z]{4}", word) and not Path(word).exists():  # NAME stands for any
        yield f"there is no {word}"


def _bad_peel(words: list[str]):
    command = [word for word in words[:2] if re.fullmatch(r"[a-z]+", word)]
    names = _subcommands()
    while command and "_".join(command) not in names:
        command.pop()
    if words and not command and re.fullmatch(r"[a-z]+", words[0]):
        yield f"there is no `peel {words[0]}`"
    elif command:
        own = set(_options(f"src/cli/{'_'.join(command)}.cpp")) | _shared_options()
        yield from _unknown(" ".join(words), own, f"peel {' '.join(command)}")


def _unknown(text: str, known: set[str], program: str):
    for option in _OPTION.findall(text):
        if option not in known | _FOREIGN:
            yield f"{program} has no option {option}"


@cache
def _subcommands() -> set[str]:
    """Each has a file of its name: bench_codec.cpp is `peel bench codec`."""
    text = "".join(path.read_text() for path in Path("src/cli").glob("*.cpp"))
    names = set(re.findall(r'add_subcommand\("(\w+)"', text))
    both = {f"{first}_{second}" for first in ("bench", "switch") for second in names | {"allreduce"}}
    return names | {name for name in both if Path(f"src/cli/{name}.cpp").exists()}


@cache
def _shared_options() -> set[str]:
    files = [path for path in Path("src/cli").glob("*.cpp") if path.stem not in _subcommands()]
    return {option for path in files for option in _options(str(path))}


@cache
def _options(source: str) -> set[str]:
    path = Path(source)
    return set(_OPTION.findall(" ".join(re.findall(r'"[^"\n]*"', path.read_text())))) if path.exists() else set()


@cache
def _programs() -> dict[str, list[str]]:
    """Programs of this repository, each with the files that know its options."""
    own = [path for folder in ("scripts", "bench/network", "examples", "tests/outside") for path in Path(folder).iterdir()]
    found = {str(path): [str(path)] for path in own if path.is_file()}
    examples = [str(path) for path in Path("examples").glob("*.py")]
    for example in examples:
        found[example] = [example, "examples/training.py"]
    shared = [str(path) for path in Path("src/cli").glob("*.cpp") if path.stem not in _subcommands()]
    found["bench/network/run"] += ["src/cli/bench_allreduce.cpp", *shared]
    found["bench/network/train"] += [*examples, "bench/network/sparse_sum.py"]
    found["scripts/evaluate"] += ["evaluate/__main__.py"]
    found["scripts/plots"] += ["scripts/figures/__main__.py"]
    return found


@cache
def _all_options() -> set[str]:
    sources = [source for files in _programs().values() for source in files]
    return {option for source in (*sources, *map(str, Path("src/cli").glob("*.cpp"))) for option in _options(source)}


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), re.MULTILINE))


if __name__ == "__main__":
    complaints = breaches(pages())
    print(*complaints, sep="\n", end="\n" if complaints else "")
    sys.exit(bool(complaints))
