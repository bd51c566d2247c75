"""What a paper says of runs that were laid by hand: every word, and every sign that is escaped."""

import csv
import json
import re

import pytest

from error_text import text_of
from laid_runs import lay_run, small_network
from torchcaps import create_model
from torchcaps._paths import write_whole
from torchcaps.study import paper as of_paper
from torchcaps.study import write_paper
from torchcaps.study.paper import _papers_of
from torchcaps.train import Recipe, Run

FILES = ["methods.md", "methods.tex", "references.bib", "table.csv", "table.md", "table.tex"]
ABOUT = {
    "torchcaps": "0.1.0",
    "commit": "abc123",
    "torch": "2.13.0",
    "python": "3.11.7",
    "machine": "Linux x86_64, 2 cores",
    "threads": 1,
    "command": "torchcaps train",
}
MEASURED = {
    "accuracy": {"value": 0.85, "interval": [0.7672, 0.9069]},
    "balanced_accuracy": {"value": 0.5, "interval": [0.4, 0.6]},
}
RESULT = {
    "test_accuracy": 0.85,
    "test_images": 100,
    "training_images": 1060,
    "class_names": ["benign", "malignant"],
    "commonest": {"class": "benign", "share": 0.85},
    "measures": MEASURED,
    "groups": {"train": 9, "test": 3, "parted": "parted by 12 groups"},
}


@pytest.fixture
def lay(tmp_path):
    """Lays a finished run of a folder of pictures and returns its folder."""

    def lay(name="run", result=RESULT, **fields):
        fields = {"model": "capsnet", "data": "folder", "groups": "(p[0-9]+)_", **fields}
        network = small_network("mitterreiter_5x16")
        run = lay_run(tmp_path / name, result, network=network, **fields)
        run.write(run.environment_file, json.dumps({**ABOUT, "root": "/data/his_tology"}))
        rows = [{"epoch": k, "seconds": 60.0} for k in (1, 2, 3)]
        write_whole(run.metrics_file, "".join(json.dumps(row) + "\n" for row in rows))
        return run.folder

    return lay


def written(runs, out):
    write_paper(runs, out, figures=False)
    return {name: (out / name).read_text(encoding="utf-8") for name in FILES}


def test_methods_say_what_the_records_say_and_nothing_else(lay, tmp_path):
    more = {"best_epoch": 2}
    run = lay(result={**RESULT, **more}, keep="best", epochs=5, patience=2, weight_decay=0.01)
    files = written([run], tmp_path / "out")
    assert files["methods.md"] == (
        "**Data.** Networks were trained on the folder his\\_tology (training images: 1,060; "
        "classes: benign, malignant) and tested on the test images (100). Before that, 10 % of the "
        "images to train on were held out for validation, drawn by the seed of each run. Groups of "
        "images (named by (p\\[0-9\\]+)\\_) were kept together: parted by 12 groups. Always "
        "answering benign is right for 85 % of the test images.\n\n"
        "**Images.** The network sees images of (channels, height, width) 1 × 24 × 24. Training "
        "images were not augmented.\n\n"
        "**Network.** The network is capsnet [@sabour2017; @gu2021; @renzulli2025], routed by "
        "dynamic [@sabour2017]. Its number of parameters is 1,354,592.\n\n"
        "**Training.** It was trained by Adam [@kingma2015] at the learning rate 0.001 (constant) "
        "in batches of 128 for at most 5 epochs, by margin loss and 0.0005 times the squared "
        "error of what the decoder draws. Other settings: weight\\_decay = 0.01.\n\n"
        "**Stopping.** Training stopped after 2 epochs without a better one, told by the lowest "
        "validation loss. The weights are those of the best epoch, told by the lowest validation "
        "loss: epoch 2 of 3 with the seed 0.\n\n"
        "**Hardware.** Training took 3.0 min in all, by torchcaps on PyTorch [@paszke2019]. It ran "
        "on Linux x86\\_64, 2 cores (threads: 1), with torchcaps 0.1.0 (commit abc123), PyTorch "
        "2.13.0 and Python 3.11.7.\n"
    )


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("capsnet", {"reconstruction_weight": 0}, "by margin loss."),
        ("convnet_avg", {}, "by cross-entropy."),
        ("convnet_avg", {"loss": "focal"}, "by focal loss."),
    ],
)
def test_the_loss_is_the_one_that_was_minimised(tmp_path, name, fields, said):
    """It said "auto", which no reader knows, and nothing of the reconstruction."""
    network = create_model(name, image=(1, 24, 24), n_classes=2)
    run = lay_run(tmp_path / "run", RESULT, network=network, model=name, data="folder", **fields)
    assert said in written([run.folder], tmp_path / "out")["methods.md"]


def test_a_run_that_other_code_went_on_with_says_so(lay, tmp_path):
    run = Run(lay())
    more = {"commit": None, "went_on_with": ["def456"]}
    run.write(run.environment_file, json.dumps({**ABOUT, **more}))
    text = written([run.folder], tmp_path / "out")["methods.md"]
    assert "torchcaps 0.1.0 (commit not recorded, then def456)" in text


def test_the_same_runs_give_the_same_bytes_and_cite_what_they_list(lay, tmp_path):
    runs = [lay("a"), lay("b", seed=1)]
    files = written(runs, tmp_path / "one")
    assert files == written(runs, tmp_path / "two")
    cited = set(re.findall(r"@(\w+)", files["methods.md"]))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", files["references.bib"], re.M))
    assert cited == {
        k for x in re.findall(r"cite\{(.*?)\}", files["methods.tex"]) for k in x.split(",")
    }


def test_a_row_of_one_seed_has_the_interval_of_its_images(lay, tmp_path):
    files = written([lay()], tmp_path / "out")
    rows = list(csv.DictReader(files["table.csv"].splitlines()))
    assert rows[1] == {
        "network": "capsnet",
        "statistic": "balanced_accuracy",
        "unit": "%",
        "mean": "50.0",
        "low": "40.0",
        "high": "60.0",
        "interval over": "test images",
        "n": "1",
    }
    low, high = (float(rows[0][end]) for end in ("low", "high"))
    assert (low, high) == pytest.approx((76.72, 90.69), abs=0.01)
    # Nobody can read of an accuracy without what it has to beat.
    for name in ("table.md", "table.tex"):
        assert "which always saying 'benign' would give" in files[name]


def test_seeds_are_one_row_with_the_interval_of_compare(lay, tmp_path):
    runs = [lay("a"), lay("b", {**RESULT, "test_accuracy": 0.87}, seed=1)]
    files = written([*runs, lay("c", epochs=9)], tmp_path / "out")
    # 86 ± 12.706 · 1.414 / √2, in percent.
    assert "| epochs=3 | 2 | 86 [73.29, 98.71] | 50, the same in all seeds |" in files["table.md"]
    assert "epoch 3 of 3 with the seed 0; epoch 3 of 3 with the seed 1." in files["methods.md"]
    # What differs stands behind the name of the network, what does not stands once.
    assert "epochs=9: It was trained by" in files["methods.md"]
    assert files["methods.md"].count("The network is capsnet") == 1


HOSTILE = r"=1|_a&b% {x}\\ ~^#$ <b> [y] *"


def test_a_hostile_name_is_text_in_every_file(lay, tmp_path):
    names = [HOSTILE, "b\x1b[2J\nnext"]
    result = {**RESULT, "class_names": names, "commonest": {"class": HOSTILE, "share": 0.85}}
    files = written([lay(result=result, options={"class_squash": "hinton"})], tmp_path / "out")
    escaped = (
        r"=1\textbar{}\_a\&b\% \{x\}\textbackslash{}\textbackslash{} \textasciitilde{}"
        r"\textasciicircum{}\#\$ \textless{}b\textgreater{} {[}y{]} {*}"
    )
    for name in ("methods.tex", "table.tex"):
        assert (
            escaped in files[name]
            or escaped.replace("\\textbackslash{}", 2 * "\\textbackslash{}") in files[name]
        )
        # What is left of commands and groups is our own.
        assert "\x1b" not in files[name]
        rest = re.sub(r"\\[a-zA-Z]+|\\[&%$#_{}\\]", "", files[name])
        assert rest.count("{") == rest.count("}")
        assert not re.search(r"[$#~^]", rest.replace("~", "", files[name].count("~\\cite")))
    assert r"\|\_a\&b% \{x\}" in files["methods.md"]
    assert "\x1b" not in "".join(files.values())


def test_what_is_unknown_is_said(lay, tmp_path):
    run = lay(result={"test_accuracy": 0.5}, groups=None)
    (run / "environment.json").unlink()
    (run / "model.safetensors").write_bytes(b"")
    text = written([run], tmp_path / "out")["methods.md"]
    for words in (
        "training images: not recorded; classes: not recorded",
        "so it is not known whether images of one origin, such as one patient, are both",
        "(channels, height, width) not recorded",
        "Its number of parameters is not recorded.",
        "a machine that was not recorded (threads: not recorded), with torchcaps not recorded",
    ):
        assert words in text
    assert "85" not in text


@pytest.mark.parametrize(
    "fields",
    [
        {"augment": "shift2"},
        {"image_size": (48, 64), "crop": (40, 44)},
        {
            "optimiser": "sgd",
            "momentum": 0.9,
            "schedule": "steps",
            "milestones": (3, 7),
            "decay": 0.5,
        },
        {"stop_at": 0.99, "stop_every": 77},
        {"train_images": 4321, "precision": "bfloat16"},
        {"loss": "margin", "m_plus": 0.81, "standardise": "set", "validation_share": 0.0},
        {"fold": (2, 5), "class_weights": "balanced", "begins_with": "0123456789ab"},
        {"prune": "magnitude", "prune_to": 0.75, "prune_ramp": 2},
        {"model": "gu_capsnet", "options": {"kernel": 7, "bias": True}, "accumulate": 4},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_nothing_that_a_recipe_sets_is_left_out(lay, tmp_path, fields):
    run = lay(**fields)
    text = written([run], tmp_path / "out")["methods.md"].replace("\\", "").replace(",", "")
    words = {"standardise": "deviation 1", "validation_share": "No images were held out"}
    words |= {"optimiser": "SGD", "stop_at": "0.99", "validation_share": "No images were held"}
    for name, value in fields.items():
        values = value.values() if isinstance(value, dict) else value
        for each in values if isinstance(values, (tuple, type({}.values()))) else [values]:
            assert words.get(name, str(each)) in text, name
    assert set(fields) <= set(Recipe.model_fields)


def test_every_data_set_routing_and_optimiser_has_its_paper():
    assert _papers_of("smallnorb-azimuth-familiar") == ["lecun2004"]
    assert _papers_of("affnist-style-gu") == ["gu2021"]
    assert _papers_of("multi-mnist-100") == ["sabour2017"]
    assert _papers_of("cifar100") == ["krizhevsky2009"]
    assert _papers_of("mnist") == ["lecun1998"]
    assert _papers_of("part-whole") == _papers_of("uniform") == _papers_of("own") == []
    assert _papers_of("adamw") == ["loshchilov2019"]
    assert _papers_of("capsnet") == ["sabour2017", "gu2021", "renzulli2025"]


def test_figures_are_of_the_first_seed_of_each_network(lay, tmp_path, monkeypatch):
    runs = [lay("b", seed=1), lay("a"), lay("c", epochs=9)]
    drawn = []
    monkeypatch.setattr(of_paper, "evaluate_file", lambda run, **how: drawn.append((run, how)))
    (tmp_path / "out/figures").mkdir(parents=True)
    write_paper(runs, tmp_path / "out", root=tmp_path)
    folders = [tmp_path / "out/figures" / number for number in "12"]
    assert drawn == [
        (str(run), {"root": tmp_path, "figures": folder})
        for run, folder in zip((runs[1], runs[2]), folders, strict=True)
    ]
    assert {"accuracy.svg", "accuracy.pdf"} <= {
        x.name for x in (tmp_path / "out/figures").iterdir()
    }


def test_a_run_without_a_result_is_refused_before_a_folder_is_made(tmp_path):
    lay_run(tmp_path / "run", model="capsnet", data="mnist")
    said = text_of(lambda: write_paper([tmp_path / "run"], tmp_path / "out"))
    assert "has no result yet" in said
    assert not (tmp_path / "out").exists()


def test_folds_of_one_network_are_one_network(lay, tmp_path):
    names = {"parted": "parted by 12 groups"}
    runs = []
    for fold, share in ((1, 0.85), (2, 0.8)):
        line = {"class": "benign", "share": share}
        result = {**RESULT, "groups": names, "commonest": line, "test_images": 100 * fold}
        runs.append(lay(f"f{fold}", result, fold=(fold, 2)))
        lay(f"g{fold}", result, fold=(fold, 2), epochs=9)
    text = written([tmp_path], tmp_path / "out")["methods.md"]
    assert "fold=" not in text
    assert text.count("In cross-validation, networks were trained on the folder his\\_tology") == 1
    assert (
        "(classes: benign, malignant) but for one fold, and tested on that fold. Of the 2 folds "
        "there are number 1 (training images: 1,060; test images: 100), number 2 (training images: "
        "1,060; test images: 200)." in text
    )
    assert "kept together: in fold 1, parted by 12 groups. Always answering benign is right" in text
    assert (
        "for 85 % of the test images of fold 1; benign is right for 80 % of the test images of "
        "fold 2." in text
    )
    assert "2 folds epochs=9: It was trained by Adam" in text
    assert "epoch 3 of 3 with the seed 0 in fold 1; epoch 3 of 3 with the seed 0 in fold 2." in text
    alone = written([runs[0]], tmp_path / "alone")["methods.md"]
    assert "The test images are the fold 1 of 2 of all images." in alone


def test_folds_of_a_cross_validation_are_one_row(lay, tmp_path):
    """What crossval wrote stands in the table, with its tests, in the place of a row a fold."""
    made = [Run(lay(f"cv/{k}{x}", fold=(k, 2), epochs=x)) for x in (3, 9) for k in (1, 2)]
    lay("apart", epochs=5)
    apart = {"value": None, "interval": None, "why": "no image is of the class 'x'"}
    share = {"value": 0.25, "interval": [0.125, 0.5]}
    networks = [
        {
            "label": label,
            "recipe": run.recipe.model_dump(mode="json") | {"fold": None},
            "measures": {"accuracy": share, "balanced_accuracy": share, "auroc": apart},
        }
        for label, run in zip(("few", "many"), made[::2], strict=True)
    ]
    test = {"difference": -0.1, "interval": None, "alone": None, "p_corrected": 0.5, "why": None}
    pair = {"networks": ["few", "many"], "balanced_accuracy": test, "auroc": test, "accuracy": test}
    folds = [{"groups": 3, "of benign": n, "of in_situ": 2} for n in (900, 700)]
    numbers = {"folds": folds, "networks": networks, "comparisons": [pair]}
    file = tmp_path / "cv" / "crossval.json"
    file.write_text(json.dumps(numbers | {"words": ["To beat: 85.0%.", "few is ahead."]}))
    files = written([tmp_path / "cv", tmp_path / "apart"], tmp_path / "out")
    for end, row in ((".md", "| {} | {} | {} | {} |"), (".tex", "{} & {} & {} & {} \\\\")):
        table = files[f"table{end}"].splitlines()
        cells = [line.strip() for line in table if re.match(r"\W*(few|many|epochs|fold)", line)]
        assert cells == [
            row.format("few", "2 folds", "25 [12.5, 50]", "25 [12.5, 50]"),
            row.format("many", "2 folds", "25 [12.5, 50]", "25 [12.5, 50]"),
            row.format("epochs=5", 1, "85 [76.72, 90.69]", "50 [40, 60]"),
        ]
        caption = " ".join(table)
        assert "all test images together, and in brackets 95" in caption
        assert "intervals over groups of images. To beat: 85.0" in caption
        assert (
            "few less many: balanced accuracy, over the folds: -10.0 points, p = 0.500" in caption
        )
        assert "AUROC, DeLong: -10.0 points" in caption
        assert "always saying 'benign' would give" in caption
    rows = list(csv.DictReader(files["table.csv"].splitlines()))
    assert [row["interval over"] for row in rows if row["network"] == "few"] == 2 * [
        "groups of images"
    ]
    methods = files["methods.md"]
    assert "Every image was judged once, by networks trained without it and without any" in methods
    assert "test images: 100). Together they test 1,600 of benign, 4 of in\\_situ." in methods
    tests = "[@nadeau2003], AUROC by the test of DeLong [@delong1988], accuracy by the exact test"
    assert tests in methods
    assert "a group counts as one draw [@obuchowski1997]." in methods
    assert "corrected for" not in methods
    # A later call left runs of another network there: these are rows of their own.
    numbers["networks"] = networks[:1]
    file.write_text(json.dumps(numbers | {"comparisons": [], "words": []}))
    alone = written([tmp_path / "cv"], tmp_path / "alone")
    assert alone["table.md"].count("fold=(") == 2
    assert "nadeau2003" not in alone["methods.md"]
    for broken in ("{", "[]", '{"folds": []}', '{"folds": [{}], "networks": [1]}'):
        file.write_text(broken)
        said = text_of(lambda: written([tmp_path / "cv"], tmp_path / "broken"))
        assert f"{file} cannot be read (it is not as crossval wrote it)" in said
