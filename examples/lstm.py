"""A language model with many words (LSTM, projected, with sampled softmax), trained by several workers.

    torchrun --nproc-per-node 4 examples/lstm.py                # small: 2.9 million parameters
    torchrun --nproc-per-node 4 examples/lstm.py --full         # 426.5 million (the paper: 426)
    torchrun --nproc-per-node 4 examples/lstm.py --sparse       # gradients of embeddings as COO tensors
    torchrun --nproc-per-node 4 examples/lstm.py --reduce ddp   # without peelreduce

Text is drawn: words follow Zipf's law, and half of them are the one word that usually follows the word before, which
is what can be learned. A step touches the rows of its words and of its negatives; the gradient of all others is zero.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import Workload, draw_zipf, make_parser, register_hook, train, zipf_table

LENGTH = 20  # words of each text that are predicted


class LanguageModel(torch.nn.Module):
    def __init__(self, words: int, width: int, hidden: int, sparse: bool) -> None:
        super().__init__()
        self.inputs = torch.nn.Embedding(words, width, sparse=sparse)
        self.lstm = torch.nn.LSTM(width, hidden, batch_first=True)
        self.projection = torch.nn.Linear(hidden, width)
        # Embeddings, and no Linear layer: only the rows that are looked up take part in a step.
        self.outputs = torch.nn.Embedding(words, width, sparse=sparse)
        self.biases = torch.nn.Embedding(words, 1, sparse=sparse)
        with torch.no_grad():
            self.outputs.weight.mul_(width**-0.5)
            self.biases.weight.zero_()

    def forward(self, text: torch.Tensor, negatives: torch.Tensor, log_counts: torch.Tensor) -> torch.Tensor:
        """The loss. log_counts: logarithm of how often each negative was to be expected among them.

        Negatives stand for all words: log_counts, subtracted, make the sum of their exponentials an unbiased estimate
        of that over all words but the right one.
        """
        targets = text[:, 1:].flatten()
        states = self.projection(self.lstm(self.inputs(text[:, :-1]))[0]).flatten(0, 1)
        candidates = torch.cat([targets, negatives])  # looked up together, for one gradient of this size and not two
        rows, biases = self.outputs(candidates), self.biases(candidates).squeeze(1)
        right = targets.numel()
        right_scores = (states * rows[:right]).sum(1) + biases[:right]
        wrong_scores = torch.addmm(biases[right:] - log_counts, states, rows[right:].T)
        hits = targets[:, None] == negatives
        scores = torch.cat([right_scores[:, None], wrong_scores.masked_fill(hits, -torch.inf)], dim=1)
        return (scores.logsumexp(1) - right_scores).mean()


def make_followers(words: int) -> torch.Tensor:
    """The word that usually follows each: one about as frequent, so that the text keeps following Zipf's law."""
    draw = torch.Generator().manual_seed(1)
    return torch.argsort(torch.arange(1, words + 1).log() + torch.rand(words, generator=draw))


def make_workload(*, full: bool, batch: int | None = None, sparse: bool = False) -> Workload:
    words, width, hidden, negatives = (793_470, 256, 2048, 8192) if full else (20_000, 64, 256, 512)
    batch = batch or 64
    frequency = zipf_table(words, torch.float64)  # float32 cannot tell the rarest words apart
    log_counts = (negatives * torch.diff(frequency, prepend=frequency.new_zeros(1))).log().float()
    followers = make_followers(words)

    def draw_batch(step: int, rank: int) -> tuple[torch.Tensor, ...]:
        draw = torch.Generator().manual_seed(step * 1000 + rank)
        text = draw_zipf(frequency, (batch, LENGTH + 1), draw)
        follows = torch.rand(text.shape, generator=draw) < 0.5
        for place in range(1, LENGTH + 1):
            text[:, place] = torch.where(follows[:, place], followers[text[:, place - 1]], text[:, place])
        wrong = draw_zipf(frequency, (negatives,), draw)
        return text, wrong, log_counts[wrong]

    def loss_of(model: torch.nn.Module, *drawn: torch.Tensor) -> torch.Tensor:
        return model(*drawn)

    model = LanguageModel(words, width, hidden, sparse)
    return Workload(model, lambda parameters: torch.optim.SGD(parameters, lr=1.0), draw_batch, loss_of)


def main() -> None:
    full = "793,470 words, 2,048 hidden units and 8,192 negatives instead of 20,000, 256 and 512"
    parser = make_parser(__doc__, full, f"64 texts of {LENGTH} words")
    parser.add_argument("--sparse", action="store_true", help="gradients of embeddings as COO tensors")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    work = make_workload(full=options.full, batch=options.batch, sparse=options.sparse)
    # Gradients that are views of buckets: otherwise 1.7 GB more for each worker in full size.
    model = DistributedDataParallel(work.model, gradient_as_bucket_view=True)
    state = register_hook(options, model)
    train(options, work, model, state)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
