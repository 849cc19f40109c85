"""What graphs keep for their backwards: held against what is really gone afterwards, and on small programs."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile

import graphscope

SAMPLES = sorted((Path(__file__).parent.parent / "samples").glob("*.py"))
KIB = 1024


def saved_storages(tensors: tuple[torch.Tensor, ...]) -> list[tuple[StorageWeakRef, int]]:
    """Each storage that the nodes behind some tensors saved something of, weakly, with its size."""
    found, seen, waiting = {}, set(), [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [target for target, _ in node.next_functions]
        for name in dir(node):
            raw = getattr(node, name) if name.startswith("_raw_saved_") else ()
            for saved in raw if isinstance(raw, tuple) else (raw,):
                if isinstance(saved.data, torch.Tensor) and saved.unpack_hook is None:
                    storage = saved.data.untyped_storage()
                    found[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
    return list(found.values())


@pytest.fixture
def census(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each backward, the bytes of the saved storages that are gone after it."""
    gone: list[int] = []
    engine = torch.autograd._engine_run_backward

    def counted(tensors, *args, **kwargs):
        watched = saved_storages(tensors)
        result = engine(tensors, *args, **kwargs)
        gone.append(sum(size for storage, size in watched if storage.expired()))
        return result

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", counted)
    return gone


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_what_a_backward_releases_is_what_is_gone_after_it(sample: Path, census: list[int]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        report = graphscope.inspect(sample)
    assert [each.released for each in report.memory.passes] == census[: len(report.memory.passes)]


NETWORKS = {
    "mlp": (nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), (32, 16)),
    "cnn": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), (4, 3, 16, 16)),
    "transformer": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (8, 24, 16)),
}


def allocated(network: nn.Module, batch: torch.Tensor, *, backward: bool) -> int:
    """What the allocator says is in use beyond what was: the profiler sees only what it saw being allocated."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = network(batch).pow(2).mean()
        if backward:
            loss.backward()  # into gradients that are there: nothing that it allocates stays
    return sum(event.self_cpu_memory_usage for event in profiler.events())


@pytest.mark.parametrize("network, shape", NETWORKS.values(), ids=NETWORKS)
def test_freed_bytes_are_what_the_allocator_gets_back(network: nn.Module, shape: tuple[int, ...]) -> None:
    batch = torch.randn(shape)
    network(batch).pow(2).mean().backward()
    with graphscope.watch() as report:
        network(batch).pow(2).mean().backward()
    (only,) = report.memory.passes
    after_forward, after_backward = (allocated(network, batch, backward=each) for each in (False, True))
    assert only.freed == only.released == after_forward - after_backward


def test_a_storage_counts_once_whatever_views_of_it_are_saved() -> None:
    x = torch.ones(256, 4, requires_grad=True)
    with graphscope.watch() as report:
        y = x.neg()
        (y[:128].exp().sum() + y[128:].pow(2).sum() + y.t().pow(3).sum()).backward()
    memory = report.memory
    assert [(each.bytes, each.nodes) for each in memory.largest if each.kind == "activation"] == [
        (4 * KIB, 2),  # y, whole, for both powers
        (2 * KIB, 1),  # the result of exp
    ]


def test_an_expanded_tensor_takes_what_its_storage_takes() -> None:
    x = torch.ones(1, requires_grad=True)
    with graphscope.watch() as report:
        x.neg().expand(1000).pow(2).sum().backward()
    assert report.memory.peak.bytes == 4


def test_parameters_and_data_are_told_apart_from_activations() -> None:
    net, batch = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 1)), torch.ones(32, 8)
    net[0].weight.requires_grad_(False)
    with graphscope.watch() as report:
        net(batch).sum().backward()
    memory = report.memory
    assert (memory.total("activation"), memory.total("data")) == (32 * 16 * 4, 0)  # frozen weights need no batch
    assert memory.total("parameter") == 16 * 4


def test_a_retained_graph_doubles_the_peak_until_its_loss_is_overwritten() -> None:
    net, batch = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), torch.ones(32, 8)
    peaks = {}
    for retain in (False, True):
        with graphscope.watch() as report:
            for _ in range(3):
                loss = net(batch).sum()
                loss.backward(retain_graph=retain)
        peaks[retain] = report.memory.peak.bytes
    assert peaks == {False: 2 * KIB, True: 4 * KIB}
    first, _, last = report.memory.passes
    assert (first.retained, last.retained) == (2 * KIB, 2 * KIB)
    assert report.memory.end(first).line == report.memory.end(report.memory.passes[1]).line  # the forward's line
    assert last.until is None


def test_losses_that_share_a_trunk_are_compared_with_one_sum() -> None:
    trunk = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
    heads = [nn.Sequential(nn.Linear(16, 32), nn.Tanh()) for _ in range(3)]
    with graphscope.watch() as report:
        features = trunk(torch.ones(32, 8))
        losses = [head(features).sum() for head in heads]
        for loss in losses[:2]:
            loss.backward(retain_graph=True)
        losses[2].backward()
    shared, own = 32 * 16 * 4, 32 * 32 * 4
    assert report.memory.plans == {
        "sum then one backward": shared + 3 * own,
        "backward per loss": shared + own,
        "accumulation in two halves": (shared + 3 * own) // 2,
    }
    assert [share.bytes for share in report.memory.losses] == [shared + own] * 3
    assert report.memory.peak.bytes == shared + 3 * own


def test_accumulation_keeps_one_micro_batch_at_a_time() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
    with graphscope.watch() as report:
        for batch in torch.ones(4, 32, 8):
            net(batch).sum().backward()
    one = 32 * 16 * 4
    assert report.memory.peak.bytes == one
    assert report.memory.plans["backward per loss"] == one
    assert report.memory.plans["sum then one backward"] == 4 * one


def test_shares_add_up_to_the_peak() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
    with graphscope.watch() as report:
        out = net(torch.ones(32, 8))
        out.pow(2).mean().backward()
    memory = report.memory
    for shares in (memory.lines, memory.modules):
        assert sum(share.bytes for share in shares) == memory.peak.bytes == memory.total("activation")
    assert {share.what for share in memory.modules} >= {"net.1", "net.3"}


def test_a_check_tells_what_its_losses_keep() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
    report = graphscope.check(net(torch.ones(32, 8, requires_grad=True)).sum())
    assert report.memory.peak.bytes == 2 * KIB
    assert [each.freed for each in report.memory.passes] == [2 * KIB]


def test_checkpointed_activations_are_counted_apart() -> None:
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
    with graphscope.watch() as report:
        checkpoint(net, torch.ones(32, 8, requires_grad=True), use_reentrant=False).sum().backward()
    assert report.memory.hooked > 0
    assert report.memory.peak is None or report.memory.peak.bytes < 2 * KIB
