"""Data sets that others publish: where their files are, which bytes they are, what may be done.

The SHA-256 and sizes are those of tensorflow_datasets' url_checksums; those of MNIST and
Fashion-MNIST were computed again from the files themselves. Each file lies where its reader looks.
"""

from dataclasses import dataclass

__all__ = ["PUBLISHED", "PublishedSet", "RemoteFile"]


@dataclass(frozen=True)
class RemoteFile:
    """One file as it is published."""

    path: str  # below the root that readers are given
    size: int
    sha256: str
    mirrors: tuple[str, ...]
    # The folder, below the same root, for the .mat files of a zip. Other archives are read packed.
    unpack: str | None = None


@dataclass(frozen=True)
class PublishedSet:
    """The files of one data set, both splits."""

    holds: str
    terms: str
    home: str
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)


def _at(
    folder: str, mirrors: tuple[str, ...], *files: tuple[str, int, str]
) -> tuple[RemoteFile, ...]:
    """Files (name, size, SHA-256) that lie in one folder here and in one on each mirror."""
    return tuple(
        RemoteFile(f"{folder}{name}", size, sha256, tuple(f"{mirror}{name}" for mirror in mirrors))
        for name, size, sha256 in files
    )


_TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_AFFNIST = "https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed"

PUBLISHED: dict[str, PublishedSet] = {
    "affnist": PublishedSet(
        "1,600,000 + 320,000 grey digits moved, turned and sheared, 40 × 40",
        "no licence is stated; made from MNIST",
        "https://www.cs.toronto.edu/~tijmen/affNIST/",
        (
            RemoteFile(
                "affNIST/training_batches.zip",
                608_848_875,
                "b6aa79e6d659111ff4c704c241cc86b828e468a5d6f7a1c5b888e6a3af3b3963",
                (f"{_AFFNIST}/training_batches.zip",),
                unpack="affNIST/training_batches",
            ),
            RemoteFile(
                "affNIST/test.mat.zip",
                121_743_191,
                "2cde38ec83ee2ebfd7b901f8be5a09efb17a1bda04771f9b4905751eb945c01a",
                (f"{_AFFNIST}/test.mat.zip",),
                unpack="affNIST",
            ),
        ),
    ),
    "cifar10": PublishedSet(
        "50,000 + 10,000 colour pictures of 10 things, 32 × 32",
        "no licence is stated; the author asks to be cited",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        _at(
            "",
            _TORONTO,
            (
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
    ),
    "cifar100": PublishedSet(
        "50,000 + 10,000 colour pictures of 100 things, 32 × 32",
        "no licence is stated; the author asks to be cited",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        _at(
            "",
            _TORONTO,
            (
                "cifar-100-binary.tar.gz",
                168_513_733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
        ),
    ),
    "fashion-mnist": PublishedSet(
        "60,000 + 10,000 grey clothes, 28 × 28",
        "MIT licence, Zalando SE",
        "https://github.com/zalandoresearch/fashion-mnist",
        _at(
            "FashionMNIST/raw/",
            (
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ),
            (
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
    ),
    "mnist": PublishedSet(
        "60,000 + 10,000 grey digits, 28 × 28",
        "CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
        "http://yann.lecun.com/exdb/mnist/",
        _at(
            "MNIST/raw/",
            (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            (
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    "smallnorb": PublishedSet(
        "24,300 + 24,300 pairs of grey photographs of toys, 96 × 96",
        "for research; it may not be sold, and its authors ask to be cited",
        "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
        _at(
            "smallNORB/",
            ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",),
            (
                "smallnorb-5x46789x9x18x6x2x96x96-training-dat.mat.gz",
                131_896_188,
                "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
            ),
            (
                "smallnorb-5x46789x9x18x6x2x96x96-training-cat.mat.gz",
                348,
                "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
            ),
            (
                "smallnorb-5x46789x9x18x6x2x96x96-training-info.mat.gz",
                71_052,
                "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
            ),
            (
                "smallnorb-5x01235x9x18x6x2x96x96-testing-dat.mat.gz",
                130_799_817,
                "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
            ),
            (
                "smallnorb-5x01235x9x18x6x2x96x96-testing-cat.mat.gz",
                347,
                "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
            ),
            (
                "smallnorb-5x01235x9x18x6x2x96x96-testing-info.mat.gz",
                10_428,
                "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
            ),
        ),
    ),
    "svhn": PublishedSet(
        "73,257 + 26,032 colour photographs of digits, 32 × 32",
        "for non-commercial use only",
        "http://ufldl.stanford.edu/housenumbers/",
        _at(
            "SVHN/",
            ("http://ufldl.stanford.edu/housenumbers/",),
            (
                "train_32x32.mat",
                182_040_794,
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            (
                "test_32x32.mat",
                64_275_384,
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
    ),
}
