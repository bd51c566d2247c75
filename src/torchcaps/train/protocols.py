"""The training protocols of the papers, by name: what `make_recipe(protocol=)` fills in.

What a paper leaves open is filled with what its public code does, or with the defaults of a recipe;
the comments say where. A protocol names no network, and no data unless it is made for them.

em_deep_mnist and em_matrix_mnist are ours: short courses in which networks with EM routing learn
MNIST, for peer_deep_em and matrix_capsnet_mnist (benchmarks/records/learning_em.json).

Ambiguities:
1. [gu2021] decays its learning rate and does not say how: constant here. Table 1 compares networks
   that stop at 99.22 % of expanded MNIST's test images: gu_transfer. Table 2 does not stop early
   and does not say for how long it trains: 50 epochs, gu. Table 3 does not say when it stops; its
   networks with small kernels cannot have been at 99.22 %, so all its rows train in full: gu.
2. [mitterreiter2023] gives an accuracy to reach and no optimiser: Adam at 0.001, batches of 128.
3. [peer2022] gives epochs and batch size; Adam at 0.0001 is its code's.
4. [tsai2020]'s momentum 0.9 and weight decay 0.0005 are its code's. "Steps" of its runs on
   DiverseMultiMNIST are epochs of 60,000 images.
   Its networks with EM routing are trained by spread loss, with a margin that is not told: it grows
   over all of the training.
5. [renzulli2025] stops after 200 epochs without a lower validation loss and names no last epoch:
   1,000 here.
6. [hinton2018]: rate and decay are those of its public code for the smaller network.
"""

from typing import Any

__all__ = ["PROTOCOLS"]

GU = {"batch_size": 128, "epochs": 50}
TSAI = {
    "batch_size": 128,
    "epochs": 350,
    "schedule": "steps",
    "milestones": (150, 250),
    "decay": 0.1,
}
TSAI_SGD = {
    **TSAI,
    "optimiser": "sgd",
    "learning_rate": 0.1,
    "momentum": 0.9,
    "weight_decay": 5e-4,
}
REM = {
    "batch_size": 128,
    "epochs": 1000,
    "schedule": "exponential",
    "decay": 0.99,
    "patience": 200,
    "keep": "best",
}
# A published accuracy on test images, where both networks are to be compared.
UNDER_TRAINED = {"data": "expanded-mnist", "stop_at": 0.9922, "stop_on": "test"}

PROTOCOLS: dict[str, dict[str, Any]] = {
    "em_deep_mnist": {"batch_size": 64, "epochs": 2, "schedule": "cosine"},
    "em_matrix_mnist": {
        "batch_size": 64,
        "epochs": 3,
        "loss": "spread",
        "spread_steps": 600,
        "learning_rate": 1e-2,
        "schedule": "cosine",
    },
    "gu": {**GU, "data": "expanded-mnist"},
    "gu_transfer": {**GU, **UNDER_TRAINED},
    "gu_multi_mnist": {**GU, "epochs": 1, "data": "multi-mnist-100"},
    "hinton_em": {
        "batch_size": 64,
        "epochs": 300,
        "loss": "spread",
        "learning_rate": 3e-3,
        "schedule": "exponential",
        "decay": 0.96,
        "decay_every": 20_000,
    },
    "mitterreiter": {"batch_size": 128, "epochs": 50, "stop_at": 0.992},
    "peer": {"batch_size": 256, "epochs": 50, "learning_rate": 1e-4},
    "rem": REM,
    "rem_transfer": {**REM, **UNDER_TRAINED},
    "tsai_cifar": {**TSAI_SGD, "augment": "crop4-flip"},
    "tsai_cifar_dynamic": {**TSAI, "learning_rate": 1e-3, "augment": "crop4-flip"},
    "tsai_cifar_em": {
        **TSAI,
        "learning_rate": 1e-2,
        "augment": "crop4-flip",
        "loss": "spread",
        "spread_steps": 350 * 391,
    },
    "tsai_dmm": {**TSAI_SGD, "data": "diverse-multi-mnist"},
}
