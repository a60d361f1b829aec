"""A hash of what a module computes, for the rules that are cheap to run again.

Snakemake sees the text of a ``shell:`` command but not the code behind it. The fingerprint covers
the module and all that it imports from this package; docstrings, comments and formatting are left
out, so that editing them reruns nothing.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
PACKAGE = __package__ or "speedstudy"


def fingerprint(*modules: str) -> str:
    """Return ten hex digits for modules of this package, given by their dotted names.

    Raises:
        ValueError: There is no such module.
    """
    sha = hashlib.sha256()
    starts = [_file_of(module) or _missing(module) for module in modules]
    for path in sorted(set().union(*map(_closure, starts))):
        sha.update(path.relative_to(ROOT).as_posix().encode())
        sha.update(_parse(path)[0].encode())
    return sha.hexdigest()[:10]


def _missing(module: str) -> Path:
    raise ValueError(f"no module {module} in {PACKAGE}")


def _file_of(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    base = ROOT.joinpath(*parts[1:])
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _closure(start: Path) -> set[Path]:
    seen: set[Path] = set()
    queue = [start]
    while queue:
        path = queue.pop()
        if path not in seen:
            seen.add(path)
            queue.extend(_parse(path)[1])
    return seen


@cache
def _parse(path: Path) -> tuple[str, tuple[Path, ...]]:
    """Return the code without docstrings, and the package's files that it imports.

    Cached for one process: a parse asks for the same files once per rule.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
            and isinstance(node.body[0].value.value, str)
        ):
            node.body = node.body[1:] or [ast.Pass()]
    imported = tuple(found for name in names if (found := _file_of(name)) is not None)
    return ast.dump(tree), imported
