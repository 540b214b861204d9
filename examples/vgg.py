"""A network for images (VGG) on Fashion-MNIST, trained by several workers.

    sudo apt-get install dataset-fashion-mnist                  # 10 kinds of clothes, 60,000 images to learn from
    torchrun --nproc-per-node 4 examples/vgg.py                 # small: 1.1 million parameters, 28 x 28
    torchrun --nproc-per-node 4 examples/vgg.py --full          # VGG19: 139.6 million, 224 x 224 (the paper: 140)
    torchrun --nproc-per-node 4 examples/vgg.py --reduce ddp    # without peelreduce

Its gradient is mostly not zero, unlike that of an embedding: an example of what gains little.
"""

import gzip
import pathlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, interpolate
from torch.nn.parallel import DistributedDataParallel
from training import Workload, make_parser, register_hook, train

PACKAGE = pathlib.Path("/usr/share/datasets/fashion-mnist")  # of Debian and Ubuntu
CLASSES = 10
SMALL = [[32], [64], [128, 128]]  # channels of the layers between two poolings
VGG19 = [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4]


class VGG(torch.nn.Module):
    def __init__(self, side: int, blocks: list[list[int]], hidden: int) -> None:
        super().__init__()
        self.side = side
        layers: list[torch.nn.Module] = []
        channels = 3
        for block in blocks:
            for width in block:
                layers += [torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.ReLU()]
                channels = width
            layers.append(torch.nn.MaxPool2d(2))
        self.features = torch.nn.Sequential(*layers)
        output = torch.nn.Linear(hidden, CLASSES)
        self.classifier = torch.nn.Sequential(
            torch.nn.Linear(channels * (side >> len(blocks)) ** 2, hidden), torch.nn.ReLU(), torch.nn.Dropout(),
            torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Dropout(),
            output,
        )  # fmt: skip
        for layer in self.modules():  # for ReLU: the signal keeps its size through all layers
            if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
                torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        torch.nn.init.normal_(output.weight, std=0.01)  # or the first steps undo confident guesses

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Bytes in; grey images become three channels, which VGG expects."""
        pixels = images.unsqueeze(1).float() / 255 - 0.5
        if self.side != pixels.shape[-1]:
            pixels = interpolate(pixels, size=(self.side, self.side), mode="bilinear")
        return self.classifier(self.features(pixels.expand(-1, 3, -1, -1)).flatten(1))


def read_images(folder: pathlib.Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and their classes, from IDX files: a header of four bytes and four for each dimension, then bytes."""
    images = bytearray(gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes()))
    labels = bytearray(gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes()))
    pixels = torch.frombuffer(images, dtype=torch.uint8, offset=16).view(-1, 28, 28)
    return pixels, torch.frombuffer(labels, dtype=torch.uint8, offset=8).long()


def accuracy(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    network.eval()
    with torch.no_grad():
        guesses = torch.cat([network(some).argmax(1) for some in images.split(50)])
    return (guesses == labels).float().mean().item()


def make_workload(images: torch.Tensor, labels: torch.Tensor, *, full: bool, batch: int | None = None) -> Workload:
    batch = batch or (128 if full else 32)

    def draw_batch(step: int, rank: int) -> tuple[torch.Tensor, ...]:
        chosen = torch.randint(len(labels), (batch,), generator=torch.Generator().manual_seed(step * 1000 + rank))
        return images[chosen], labels[chosen]

    def loss_of(model: torch.nn.Module, some: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(some), known)

    def make_optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.003 if full else 0.01, momentum=0.9)

    model = VGG(224, VGG19, 4096) if full else VGG(28, SMALL, 512)
    return Workload(model, make_optimizer, draw_batch, loss_of)


def main() -> None:
    parser = make_parser(__doc__, "VGG19 at 224 x 224 instead of seven layers at 28 x 28", "32, or 128 with --full")
    parser.add_argument("--data", type=pathlib.Path, default=PACKAGE, help="folder of the four files of Fashion-MNIST")
    options = parser.parse_args()
    try:
        images, labels = read_images(options.data, "train")
        test_images, test_labels = read_images(options.data, "t10k")
    except OSError as error:
        raise SystemExit(
            f"vgg.py: Fashion-MNIST cannot be read ({error}); install the package dataset-fashion-mnist, or give the "
            "folder of its four .gz files with --data."
        ) from None
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    work = make_workload(images, labels, full=options.full, batch=options.batch)
    model = DistributedDataParallel(work.model)
    state = register_hook(options, model)
    train(options, work, model, state)
    if dist.get_rank() == 0:
        tested = 100 if options.full else 1000  # VGG19 takes a processor core 0.4 s for each image
        right = accuracy(work.model, test_images[:tested], test_labels[:tested])
        print(f"{right:.1%} of {tested} test images are classified right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
