"""The reference of `make docs`: a page for each public module, and docstrings as reStructuredText.

Docstrings of this house are plain prose: `names` in backticks, formulas as they are typed, lines
`name: meaning` below "Arguments:", examples with prompts. Sphinx reads markup, in which a star or
a trailing underscore means something; so prose is escaped, and what has a form is given it.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from functools import cache
from pathlib import Path

import torchcaps

ENTRY = re.compile(r"(\w+(?:, \w+)*): (\S.*)")
# Pages with equations.
ROUTINGS = {path.stem for path in Path(__file__).parent.glob("routing/*.md")}
ITEM = re.compile(r"(\d+\.|-) ")
# What a reader of a page most likely came for; the rest follows in the order of the alphabet.
FIRST = {"torchcaps.layers": ("CapsuleHead", "DenseCapsules", "PrimaryCapsules")}


@cache
def modules():
    """torchcaps, and what lies in it; an underscore makes a module private."""
    inside = [each.name for each in pkgutil.iter_modules(torchcaps.__path__)]
    return ["torchcaps", *(f"torchcaps.{name}" for name in inside if not name.startswith("_"))]


def page(module):
    """The page of a module, as Sphinx names it."""
    return f"docs/reference/{module}"


@cache
def homes():
    """On which page each public name of each module is explained: (module, name) -> module.

    The names of `torchcaps` itself are those that users type; a name that two modules share is
    explained where it is shortest.
    """
    found, first = {}, {}
    for module in modules():
        room = importlib.import_module(module)
        for name in room.__all__:
            value = getattr(room, name)
            if not inspect.ismodule(value):
                found[module, name] = first.setdefault((name, id(value)), module)
    return found


@cache
def spoken():
    """What a docstring may call a public name -> its full name; a word with two meanings is none.

    A plain word such as `measure` is as often an argument: it needs the name of its module.
    """
    found = {}
    for (module, name), home in homes().items():
        short = module.removeprefix("torchcaps").removeprefix(".")
        calls = {f"{module}.{name}", f"tc.{short}.{name}".replace("..", ".")}
        if short:
            calls.add(f"{short}.{name}")
        if "_" in name or name != name.lower():
            calls.add(name)
        for call in calls:
            full = f"{home}.{name}"
            found[call] = full if found.get(call, full) == full else None
    return {call: full for call, full in found.items() if full is not None}


def write_pages(folder):
    """One page a module, made of the lists of public names alone."""
    folder.mkdir(exist_ok=True)
    for module in modules():
        text = page_text(module)
        path = folder / f"{module}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def page_text(module):
    """The page of a module: what it is, then its functions, classes and constants."""
    room = importlib.import_module(module)
    kinds = {"function": [], "class": [], "data": []}
    others = []
    for name in room.__all__:
        home = homes().get((module, name))
        if home == module:
            kinds[kind_of(getattr(room, name))].append(name)
        elif home is not None:
            others.append(f":py:obj:`{name} <{home}.{name}>`")
    parts = [f"{module}\n{'=' * len(module)}", f".. automodule:: {module}\n   :no-members:"]
    if module == "torchcaps":
        rooms = "\n".join(f"* :doc:`{each} <{each}>`" for each in modules()[1:])
        parts += ["Its modules:", rooms]
    if others:
        parts += [f"Also here, and explained elsewhere: {', '.join(others)}."]
    if first := FIRST.get(module, ()):
        parts += ["Begin with these\n----------------"]
        parts += [directive("class", f"{module}.{name}") for name in first]
    titles = {"function": "Functions", "class": "Classes", "data": "Constants and types"}
    for kind, names in kinds.items():
        if names := [name for name in names if name not in first]:
            parts += [f"{titles[kind]}\n{'-' * len(titles[kind])}"]
            parts += [directive(kind, f"{module}.{name}") for name in names]
    return "\n\n".join(parts) + "\n"


def kind_of(value):
    if inspect.isclass(value):
        return "class"
    return "function" if inspect.isfunction(inspect.unwrap(value)) else "data"


def directive(kind, name):
    option = {"function": "", "class": "\n   :members:", "data": "\n   :no-value:"}[kind]
    return f".. auto{kind}:: {name}{option}"


def process(_app, what, name, value, _options, lines):
    """autodoc-process-docstring: the docstring as markup, in place."""
    text = "\n".join(lines)
    if what == "data":
        text = comment_above(name)
    if what == "class" and text.startswith(f"{value.__name__}("):
        text = ""  # a data class repeats its signature where it says nothing
    names = set(fields_of(value)) if what == "class" else set()
    made = as_markup(text, names)
    if what == "class" and not any(line.startswith(":param") for line in made):
        made += [
            f":param {field}: {prose(said)}" for field, said in fields_of(value).items() if said
        ]
    lines[:] = made


def as_markup(text, names=frozenset()):
    """A docstring of this house as lines of reStructuredText; `names` are the object's fields."""
    made = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if not block.strip():
            continue
        made += ["", *_block(block.split("\n"), names)]
    return [*made, ""]


def _block(lines, names):
    if lines[0].startswith(">>>"):
        return lines
    if all(line.startswith("    ") for line in lines):
        return ["::", "", *lines]
    if lines[0] == "Arguments:":
        return _entries(textwrap.dedent("\n".join(lines[1:])).split("\n"))
    if _are_entries(lines, names):
        return _entries(lines)
    if len(lines) > 2 and sum("  " in line.strip() for line in lines) * 2 > len(lines):
        return ["::", "", *("    " + line for line in lines)]  # columns
    made, was_item = [], False
    for line in lines:
        is_item = ITEM.match(line) is not None
        if is_item and not was_item:
            made.append("")
        was_item = is_item or (was_item and line.startswith(" "))
        made.append(_item(line) if is_item else prose(line))
    return made


def _are_entries(lines, names):
    heads = [ENTRY.fullmatch(line) for line in lines if not line.startswith(" ")]
    return bool(names) and all(head and set(head[1].split(", ")) <= names for head in heads)


def _item(line):
    mark, _, rest = line.partition(" ")
    return f"{mark} {prose(rest)}"


def _entries(lines):
    """Lines `name: meaning` as a list of fields; a line that is indented goes on with the last."""
    said = []
    for line in lines:
        head = ENTRY.fullmatch(line)
        if head and not line.startswith(" "):
            said.append([head[1], head[2]])
        else:
            said[-1][1] += " " + line.strip()
    return [f":param {names}: {prose(meaning)}" for names, meaning in said]


def prose(text):
    """Words of everyday, escaped; what lies in backticks is code, or a link to a public name."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(_code(part[1:-1]) if _is_code(part) else _escaped(part) for part in parts)


def _is_code(part):
    return len(part) > 2 and part[0] == part[-1] == "`"


def _escaped(text):
    return re.sub(r"([\\*|`]|_\b|\b_)", r"\\\1", text)


def _code(word):
    if (equations := re.fullmatch(r"ops\.routing\.(\w+)", word)) and equations[1] in ROUTINGS:
        return f":doc:`{word} </docs/routing/{equations[1]}>`"
    full = spoken().get(word)
    if full is None:
        return f"``{word}``\\ "
    return f":py:obj:`{word} <{full}>`\\ "


def comment_above(name):
    """The comment above a constant, which is all that the source says of it."""
    module, _, short = name.rpartition(".")
    for source, tree in _sources(module):
        for node in tree.body:
            if short in _assigned(node):
                lines = source.split("\n")[: node.lineno - 1]
                said = []
                while lines and lines[-1].startswith("# "):
                    said.insert(0, lines.pop()[2:])
                return "\n".join(said)
    return ""


def _sources(module):
    home = Path(importlib.import_module(module).__file__)
    for path in sorted(home.parent.rglob("*.py")) if home.stem == "__init__" else [home]:
        source = path.read_text(encoding="utf-8")
        yield source, ast.parse(source)


def _assigned(node):
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def fields_of(kind):
    """The fields of a data class or named tuple, and the comment that stands beside each."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    found = {}
    for node in ast.parse(source).body[0].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = source.split("\n")[node.end_lineno - 1]
            found[node.target.id] = last[node.end_col_offset :].partition("# ")[2].strip()
    return found


def skip(_app, _what, name, value, skipped, _options):
    """autodoc-skip-member: a module's `forward` is worth a line; a tuple's fields are listed."""
    if name == "forward":
        return False
    return True if type(value).__name__ == "_tuplegetter" else skipped


def resolve(app, _env, node, content):
    """missing-reference: a public name by the name of the file that makes it; other types stay."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    home = _made_in().get(target)
    if home is None:
        return content if target not in set(spoken().values()) else None
    domain = app.env.domains["py"]
    return domain.resolve_xref(app.env, node["refdoc"], app.builder, "obj", home, node, content)


@cache
def _made_in():
    found = {}
    for (module, name), home in homes().items():
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value):
            found[f"{value.__module__}.{value.__qualname__}"] = f"{home}.{name}"
    return found
