"""What options of named networks mean; `torchcaps models NAME` prints it."""

from collections.abc import Mapping
from types import MappingProxyType

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "activations": "parents have activations beside their poses, as EM routing gives them",
        "agreement": "what v·û is multiplied by before it is added to a logit",
        "backbone": "the convolutions in front: plain, residual, or by name: resnet18, resnet34, "
        "resnet50, timm:NAME",
        "bias": "a vector is added to every parent before it is squashed; odd is a control whose "
        "sign goes with the input",
        "class_squash": "the function that sets the lengths of the class capsules",
        "compete": "a child of several windows is shared between them (all), or is whole in each",
        "d_class": "numbers in the pose of a class capsule",
        "d_pose": "numbers in the pose of a capsule; a square for matrices",
        "d_primary": "numbers in the pose of a primary capsule",
        "decoder": "a decoder draws the image again from the class capsules",
        "detach": "what routing takes as constant when gradients go back",
        "dropout": "the share of components of parents silenced in each iteration of training",
        "head": "one linear unit for all classes reads the pose of each, and scores are logits",
        "heads": "heads of the self-attention",
        "hidden": "capsules in one more layer below the classes; 0 is no such layer",
        "init": "first weights: as the paper has them, or scaled until lengths keep from layer to "
        "layer",
        "iterations": "how often routing goes round",
        "kernel": "side of the convolution kernels, in pixels",
        "lambda_": "how sharp EM routing is: the factor λ, or the limit that it grows to",
        "lambda_schedule": "λ grows from iteration to iteration, or stays",
        "layer_norm": "poses are normalised in each iteration of inverted attention",
        "margin": "scores are lengths of a kind, trained by the margin loss",
        "mask": "the decoder sees the class that is there, or all classes",
        "n_capsules": "capsules in every layer",
        "n_hidden": "capsules in the hidden layer",
        "n_layers": "layers of capsules",
        "norm": "a batch normalisation after the stem",
        "normalise": "uniform couplings: 1/parents (softmax), or a mean over children",
        "pose": "whether poses are vectors or matrices",
        "primary_bias": "the convolution of the primary capsules has a bias",
        "primary_relu": "a ReLU before the primary capsules are squashed",
        "primary_squash": "the function that sets the lengths of the primary capsules",
        "prior": "logits that routing starts from: zero, or learned",
        "reconstruction": "a decoder draws the image again from the last features",
        "routing": "how children choose their parents; docs/models.md says what each network takes",
        "scale": "distances are measured over the batch, or over each image, and window, alone",
        "scaled": "agreements are divided by the square root of the pose's size",
        "schedule": "layers route all at once, or one after the other",
        "sharing": "matrices of its own for each child, one for each type, or one for all",
        "sizes": "A-B-C-D: channels of the stem, and capsule types of the layers above",
        "squash": "the function that sets the lengths of parents",
        "squash_over": "the squash of 3-D routing sees a whole map of a type, or one pose",
        "start": "where inverted attention's parents start: at zero, drawn once, or learned",
        "stereo": "the convolutions in front are those for pairs of stereo images",
        "trunk": "the convolutions in front: trained with the rest, or a ResNet-18 that is frozen",
        "types": "types of primary capsules at each place",
        "unit_poses": "parents of EM routing have poses of length one, times their activation",
        "variant": "EM routing as its paper prints it, as its authors' code has it, or as "
        "[gritzman2019] corrects it",
        "weight_std": "standard deviation of the first weights between capsules",
        "weights": "of a named backbone: random, a file, or pretrained, what torch.hub or Hugging "
        "Face hold in the cache",
        "width": "channels of the convolutions in front",
        "widths": "capsules in each layer below the classes, with commas between",
    }
)
