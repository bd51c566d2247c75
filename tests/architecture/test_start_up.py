"""What is not imported by who only makes, opens or asks a network: each of these takes a second."""

import json
import subprocess
import sys

# One process for all, in the order in which more and more is asked.
STEPS = """
import contextlib, io, json, sys

HEAVY = "sympy", "torch._dynamo", "lightning", "torchmetrics", "scipy", "matplotlib", "triton"
found = {}

def loaded(step, *names):
    found[step] = [name for name in (*names, *HEAVY) if name in sys.modules]

from torchcaps.cli import main

for line in "--help", "train --help", "models", "models capsnet", "models capsnat":
    sys.argv = ["torchcaps", *line.split()]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        with contextlib.suppress(SystemExit):
            main()
    loaded(line, "torch")
assert "model 'capsnat' is unknown; did you mean 'capsnet'?" in said.getvalue()

import torchcaps as tc
import torchcaps.tasks, torchcaps.train
loaded("rooms", "torch")
tc.train.make_recipe(model="capsnet", data="mnist")
tc.train.Run
loaded("recipe")
import torch
routing = tc.layers.DynamicRouting()
layer = tc.layers.DenseCapsules(n_in=6, d_in=4, n_out=3, d_out=4, routing=routing)
layer(tc.Capsules(torch.rand(2, 6, 4))).parents.pose.sum().backward()
loaded("layer")
network = tc.create_model("mitterreiter_5x16")
tc.create_model("tsai_cnn_c10", image=(3, 48, 48))
loaded("create_model")
tc.save(network, "network.safetensors")
tc.load("network.safetensors")
tc.load("zoo:matrix_capsnet_mnist.mnist")
loaded("load")

import numpy
from PIL import Image

Image.fromarray(numpy.zeros((40, 40), "uint8")).save("picture.png")
sys.argv = ["torchcaps", "predict", "network.safetensors", "picture.png", "--json"]
try:
    main()
except SystemExit as end:
    assert end.code == 0
loaded("predict")
from torch.utils.flop_counter import flop_registry
from torchcaps.ops.costs import COSTS

assert {*COSTS, torch.ops.aten.baddbmm_} <= {*flop_registry}
print(json.dumps(found))
"""


def test_who_does_not_train_loads_no_compiler_and_no_trainer(tmp_path):
    line = [sys.executable, "-c", STEPS]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [*found][-6:] == ["rooms", "recipe", "layer", "create_model", "load", "predict"]
    assert {step: names for step, names in found.items() if names} == {}


def test_a_module_does_not_stand_in_the_place_of_its_function():
    import torchcaps.tasks.predict
    import torchcaps.train.fit  # noqa: F401, it would set train.fit to the module
    from torchcaps import tasks, train

    assert train.fit is sys.modules["torchcaps.train.fit"].fit
    assert tasks.predict is sys.modules["torchcaps.tasks.predict"].predict
