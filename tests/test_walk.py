"""Laws of the traced graph, and what a walk must not do to the program."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import networkx
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import graphscope


def tangled(seed: int = 0) -> list[torch.Tensor]:
    """Some losses over shared parts, with parallel edges, views, unused outputs and a constant."""
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(3, 3, generator=generator).requires_grad_() for _ in range(3)]
    for _ in range(12):
        first, second, kind = torch.randint(len(values), (3,), generator=generator).tolist()
        x, y = values[first], values[second]
        values.append([x * y, x + y, x @ x.T, torch.cat((*x.split(1)[1:], y[:1])), x * torch.ones(3)][kind % 5])
    return [value.sum() for value in values[-3:]]


def recursion(losses: list[torch.Tensor]) -> tuple[dict, dict]:
    """An independent walk: what each node is, and its edges, by node."""
    nodes, edges = {}, {}

    def visit(node):
        if node not in nodes:
            nodes[node] = node.name()
            edges[node] = [(target, output) for target, output in node.next_functions]
            for target, _ in edges[node]:
                if target is not None:
                    visit(target)

    for loss in losses:
        visit(loss.grad_fn)
    return nodes, edges


def shape_of(graph) -> list:
    """The graph without ids: for each root a nest of names and inputs, shared parts spelled out."""

    def spell(id):
        if id not in known:
            known[id] = (
                graph.ops[id].rpartition("::")[2],
                graph.sequences[id],
                tuple((spell(target), output) if target >= 0 else None for target, output in graph.targets[id]),
            )
        return known[id]

    known = {}
    return sorted((root.name, hash(spell(root.node)), root.output) for root in graph.roots)


@pytest.mark.parametrize("seed", range(8))
def test_graph_is_acyclic_and_equals_a_recursive_walk(seed):
    losses = tangled(seed)
    graph = graphscope.trace(*losses)
    assert networkx.is_directed_acyclic_graph(graph.to_networkx())
    nodes, edges = recursion(losses)
    assert sorted(op.rpartition("::")[2] for op in graph.ops) == sorted(
        name.rpartition("::")[2] for name in nodes.values()
    )
    assert len(list(graph.edges)) == sum(target is not None for targets in edges.values() for target, _ in targets)
    assert max(graph.sequences) == max(node._sequence_nr() for node in nodes if "Accumulate" not in node.name())


@pytest.mark.parametrize("seed", range(4))
def test_order_of_roots_does_not_matter(seed):
    one, two, three = tangled(seed)
    assert shape_of(graphscope.trace(one, two, three)) == shape_of(graphscope.trace(three, one, two))


def test_two_traces_are_equal():
    losses = tangled()
    first, second = graphscope.trace(*losses), graphscope.trace(*losses)
    assert list(first.nodes) == list(second.nodes) and list(first.edges) == list(second.edges)
    assert first.roots == second.roots and first.tensors == second.tensors


def test_square_has_two_edges():
    x = torch.ones(2, requires_grad=True)
    graph = graphscope.trace((x * x).sum())
    assert [(edge.input, edge.output) for edge in graph.edges] == [(0, 0), (0, 0), (1, 0)]


def test_edges_say_which_output_they_take():
    x = torch.ones(4, requires_grad=True)
    _, second = x.chunk(2)
    graph = graphscope.trace(second.sum())
    assert [edge.output for edge in graph.edges] == [1, 0]


def test_leaves_have_the_names_of_variables_and_modules():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1, bias=False))
    scale = torch.ones(1, requires_grad=True)
    graph = graphscope.trace((net(torch.ones(1, 2)) * scale).sum())
    names = {graph.tensor(node.tensor).name for node in graph.leaves}
    assert names == {"net.0.weight", "net.0.bias", "net.1.weight", "scale"}


def test_shared_nodes_are_those_that_several_roots_reach():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    one, two = y.sum(), y.prod()
    graph = graphscope.trace(one, two)
    assert {graph.ops[id] for id in graph.shared} == {"ExpBackward0", "AccumulateGrad"}
    assert [root.name for root in graph.roots] == ["one", "two"]


def test_freed_is_seen_after_backward_only():
    loss = torch.ones(2, requires_grad=True).exp().sum()
    assert not graphscope.trace(loss).freed
    loss.backward()
    graph = graphscope.trace(loss)
    assert [graph.ops[id] for id in graph.freed] == ["ExpBackward0"]


def test_unpack_hooks_do_not_run():
    unpacked = []
    x = torch.ones(2, requires_grad=True)
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: unpacked.append(1) or tensor):
        loss = x.exp().sum()
    graph = graphscope.trace(loss)
    assert not unpacked
    assert [saved.hooked for node in graph.nodes for saved in node.saved] == [True]
    loss.backward()
    assert [graph.ops[id] for id in graphscope.trace(loss).freed] in ([], ["ExpBackward0"]) and len(unpacked) == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_does_not_recompute(reentrant):
    calls = []
    x = torch.ones(2, requires_grad=True)
    loss = checkpoint(lambda x: calls.append(1) or x.exp(), x, use_reentrant=reentrant).sum()
    graphscope.trace(loss)
    assert len(calls) == 1
    loss.backward()
    assert len(calls) == 2


def test_save_on_cpu_does_not_copy(monkeypatch):
    with torch.autograd.graph.save_on_cpu():
        loss = torch.ones(2, requires_grad=True).exp().sum()
    copies = []
    monkeypatch.setattr(torch.Tensor, "to", lambda *_, **__: copies.append(1))
    graphscope.trace(loss)
    assert not copies


def test_leaf_is_a_root_by_itself():
    weight = torch.ones(2, requires_grad=True)
    graph = graphscope.trace(weight)
    assert len(graph) == 1 and graph.node(graph.roots[0].node).is_leaf


def test_tensor_without_grad_is_a_root_without_a_node():
    constant = torch.ones(2)
    (root,) = graphscope.trace(constant).roots
    assert (root.name, root.node) == ("constant", None)


@pytest.mark.parametrize("nothing", [(), (3,), ("loss",), ([torch.ones(1)],)])
def test_anything_but_tensors_is_refused(nothing):
    with pytest.raises(graphscope.GraphscopeError, match=r"trace\(\) takes"):
        graphscope.trace(*nothing)


def test_nothing_is_kept_alive():
    x = torch.ones(1000, requires_grad=True)
    hidden = x.exp()
    loss = hidden.sum()
    storage = torch.multiprocessing.reductions.StorageWeakRef(hidden.untyped_storage())
    tensors = [weakref.ref(each) for each in (x, hidden, loss)]
    graph = graphscope.trace(loss)
    del x, hidden, loss
    gc.collect()
    assert [tensor() for tensor in tensors] == [None] * 3 and storage.expired() and len(graph) == 3


def test_backward_frees_what_it_would_free_without_a_trace():
    hidden = torch.ones(1000, requires_grad=True).exp()
    loss = hidden.sum()
    graphscope.trace(loss)
    storage = torch.multiprocessing.reductions.StorageWeakRef(hidden.untyped_storage())
    del hidden
    assert not storage.expired()
    loss.backward()
    assert storage.expired()


def test_networkx_has_what_is_documented():
    x = torch.ones(2, 3, requires_grad=True)
    graph = graphscope.trace(x.exp().sum())
    made = graph.to_networkx()
    assert isinstance(made, networkx.MultiDiGraph) and made is graph.to_networkx()
    assert set(made.nodes[0]) == {"op", "sequence", "outputs", "saved", "tensor", "location", "module"}
    assert made.nodes[2]["tensor"] == "x" and made.nodes[1]["outputs"][0].shape == (2, 3)
    assert made.edges[0, 1, 0] == {"input": 0, "output": 0}
    assert graph.path(0, 2) == (0, 1, 2) and graph.path(2, 0) == ()


def test_graph_of_two_threads_has_all_its_nodes():
    import threading

    made = []
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):  # sequence numbers are counted per thread
        thread = threading.Thread(target=lambda: made.append(x.exp().sin()))
        thread.start()
        thread.join()
    graph = graphscope.trace((made[0] + made[1]).sum())
    assert sorted(op for op in graph.ops if op[:3] in ("Exp", "Sin")) == ["ExpBackward0"] * 2 + ["SinBackward0"] * 2


DEEP = """
import torch, graphscope
x = torch.ones(1, requires_grad=True)
y = x
for _ in range(1_000_000):
    y = y + 1
graph = graphscope.trace(y)
print(len(graph), sum(1 for _ in graph.edges))
del y
print("alive")
"""


def test_process_survives_the_death_of_a_deep_graph():
    ended = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1000001 1000000\nalive\n", "")


def test_structure_alone_is_that_of_the_whole():
    x = torch.randn(3, requires_grad=True)
    loss = (x.exp() * x).sum()
    whole, alone = graphscope.trace(loss), graphscope.trace(loss, facts=False)
    assert (alone.ops, alone.targets, alone.leaf_tensors) == (whole.ops, whole.targets, whole.leaf_tensors)
    assert not any(alone.outputs) and not any(alone.saved)
    assert any(whole.saved)
    assert alone.to_networkx().number_of_edges() == whole.to_networkx().number_of_edges()
