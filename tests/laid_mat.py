"""MATLAB files laid down by hand from the format's description."""

import struct
import zlib

INT8, UINT8, INT32, UINT32, DOUBLE, MATRIX, PACKED = 1, 2, 5, 6, 9, 14, 15
A_STRUCT, A_TEXT, A_DOUBLE, A_BYTE = 2, 4, 6, 9


class Writer:
    """Elements in one byte order, put together as the format's description draws them."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def element(self, kind: int, content: bytes) -> bytes:
        tag = struct.pack(f"{self.order}II", kind, len(content))
        return tag + content + bytes(-len(content) % 8)

    def small(self, kind: int, content: bytes) -> bytes:
        """Up to four bytes lie in the tag, whose first word holds their number and type."""
        tag = struct.pack(f"{self.order}I", len(content) << 16 | kind)
        return tag + content.ljust(4, b"\0")

    def head(self, what: int, sizes: tuple[int, ...], name: bytes) -> bytes:
        shape = struct.pack(f"{self.order}{len(sizes)}i", *sizes)
        flags = struct.pack(f"{self.order}II", what, 0)
        named = self.small(INT8, name) if len(name) <= 4 else self.element(INT8, name)
        return self.element(UINT32, flags) + self.element(INT32, shape) + named

    def array(
        self, name: bytes, sizes: tuple[int, ...], content: bytes, *, what=A_BYTE, kind=UINT8
    ) -> bytes:
        return self.element(MATRIX, self.head(what, sizes, name) + self.element(kind, content))

    def struct(self, name: bytes, **fields: bytes) -> bytes:
        names = b"".join(each.encode().ljust(16, b"\0") for each in fields)
        return self.element(
            MATRIX,
            self.head(A_STRUCT, (1, 1), name)
            + self.small(INT32, struct.pack(f"{self.order}i", 16))
            + self.element(INT8, names)
            + b"".join(fields.values()),
        )

    def packed(self, element: bytes) -> bytes:
        """A compressed element is not filled up."""
        content = zlib.compress(element)
        return struct.pack(f"{self.order}II", PACKED, len(content)) + content

    def file(self, *elements: bytes) -> bytes:
        text = b"MATLAB 5.0 MAT-file, laid down by hand".ljust(124, b" ")
        mark = b"\x00\x01IM" if self.order == "<" else b"\x01\x00MI"
        return text + mark + b"".join(elements)


little, big = Writer("<"), Writer(">")

# SVHN's X is [row, column, channel, image], the row running fastest: the first image brightens
# downwards in red and to the right in green; the second is black.
RED = bytes(range(32)) * 32
GREEN = b"".join(bytes([column] * 32) for column in range(32))
X = RED + GREEN + bytes(1024) + bytes(3072)
SIZES = (32, 32, 3, 2)


def svhn_bytes(
    writer: Writer = little, *, packed: bool = False, images: bytes = X, labels: bytes = b"\x0a\x07"
) -> bytes:
    elements = [
        writer.array(b"X", (32, 32, 3, len(labels)), images),
        # Labels 10 and 7, numbers that MATLAB knows as doubles but stores as bytes.
        writer.array(b"y", (len(labels), 1), labels, what=A_DOUBLE),
    ]
    return writer.file(*(writer.packed(each) if packed else each for each in elements))


# affNIST keeps an image as one column of 1600 numbers, row by row.
COLUMN = b"".join(bytes([row] * 40) for row in range(40))


def affnist_bytes(
    *, packed: bool = False, labels: bytes = b"\x03\x09", images: bytes = COLUMN + bytes(1600)
) -> bytes:
    n = len(labels)
    maps = struct.pack(f"<{6 * n}d", *range(6 * n))
    fields = {
        "affine_trans": little.array(b"", (6, n), maps, what=A_DOUBLE, kind=DOUBLE),
        "human_transform": little.array(b"", (1, 3), b"abc", what=A_TEXT),
        "image": little.array(b"", (len(images) // n, n), images),
        "id": little.array(b"", (1, n), bytes(range(n)), what=A_DOUBLE),
        "label_one_of_n": little.array(b"", (10, n), bytes(10 * n), what=A_DOUBLE),
        "label_int": little.array(b"", (1, n), labels, what=A_DOUBLE),
    }
    element = little.struct(b"affNISTdata", **fields)
    return little.file(little.packed(element) if packed else element)
