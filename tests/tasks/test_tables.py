"""Results as tables: every number under its heading, and every heading explained once."""

from dataclasses import dataclass

from torchcaps.analysis import CausalUse, ClassKeys, CouplingUse, Keys
from torchcaps.analysis.result import Result, quantity
from torchcaps.tasks.tables import MOST_TOLD, in_columns, lines_of


def text(result, **options):
    return "\n".join(lines_of(result, **options))


def test_keys_of_two_classes_on_paper():
    rows = (
        ClassKeys("0", 3, 2, 0.918296, 1.584963, (2, 1)),
        ClassKeys("1", 0, 0, 0.0, 0.0, ()),
    )
    found = Keys(3, 11, rows, 0.459148, 0.792481)
    assert (
        text(found, class_names=("draco", "lyra"))
        == """\
  images 3, levels 11
  entropy  0.4591  mean entropy of the classes (bit)
  bound    0.7925  mean bound of the classes (bit)

    class  images  keys  entropy  bound  counts
    draco       3     2   0.9183  1.585  2 1
    lyra        0     0        0      0  –
      images   images predicted as this class
      keys     different trees of the class
      entropy  entropy of the keys (bit)
      bound    entropy if every image had a key of its own (bit)
      counts   images of each key (images)"""
    )
    assert "    draco       3" in text(found, class_names=("draco",))
    assert "\n    1           0" in text(found, class_names=("draco",))
    assert "    name  images" in text(found)


def test_an_interval_is_told_and_rounding_is_not():
    row = CouplingUse("classes", "same class", 9, -1e-17, (-0.25, 0.125), 0.5)
    assert "    classes  same class       9     0  -0.25 to 0.125      0.5\n" in text(
        CausalUse(10, 0.9, (row,))
    )


@dataclass(frozen=True)
class Row:
    name: str
    share: float | None = quantity("share", "of something")
    bins: tuple[int, ...] = quantity("images", "images in each bin")


@dataclass(frozen=True)
class Several(Result):
    alone: Row
    another: Row
    layers: tuple[Row, ...]


def test_rows_that_stand_alone_share_a_table_and_a_kind_is_explained_once():
    many = tuple(range(MOST_TOLD + 1))
    found = text(Several(Row("a", 0.5, (1,)), Row("b", None, ()), (Row("c", 1.0, many),)))
    assert found.startswith(
        "\n    name  share  bins\n    a       0.5     1\n    b         –     –\n\n"
    )
    assert found.count("images in each bin") == 1
    # No more than twenty numbers of a list, and a sign that there are more.
    assert " 18 19 …\n" in found
    assert " 20" not in found


def test_a_table_without_rows_is_left_out():
    @dataclass(frozen=True)
    class Bare(Result):
        images: int
        layers: tuple[Row, ...] = ()

    assert text(Bare(5)) == "  images 5"


def test_columns_are_plain_and_as_wide_wherever_they_are_printed(monkeypatch):
    rows = [("name", "[b]seen[/b]", "1.5"), ("日本", "x", "10"), ("\x1b[2Jred", "", "–")]
    lines = in_columns(rows, right=[2], margin=" ")
    assert lines == [
        " name        [b]seen[/b]  1.5",
        # Two columns of a terminal each.
        " 日本        x             10",
        " \\x1b[2Jred                 –",
    ]
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "20", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    assert in_columns(rows, right=[2], margin=" ") == lines
    assert in_columns([]) == []
    long = in_columns([("a", "one two three")], width=12)
    assert long == ["a  one two", "   three"]
    assert in_columns([("a", "x" * 5000)]) == [f"a  {'x' * 5000}"]
