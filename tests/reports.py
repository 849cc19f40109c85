"""Reports written by hand, for the tests of the formats."""

from __future__ import annotations

from dataclasses import replace

from graphscope.events import Backward, OptimizerStep, ZeroGrad
from graphscope.findings import Confidence, Finding, Fix, Place, Role, Severity
from graphscope.graph import Graph, Root, SavedTensor, TensorMeta, TensorRef
from graphscope.location import Location
from graphscope.report import Report
from graphscope.trace import ModuleRef, OptimizerRef, Outcome, Trace

SOURCE = """\
import torch

net1 = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
net2 = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
opt1 = torch.optim.SGD(net1.parameters(), lr=0.1)
opt2 = torch.optim.SGD(net2.parameters(), lr=0.1)
x = torch.randn(32, 8, requires_grad=True)


def step():
    h = net1(x)
    loss_a = h.pow(2).mean()
    target = torch.from_numpy(h.detach().numpy())
    loss_b = (net2(h) - target).mean()
    opt1.zero_grad()
    loss_a.backward()
    loss_b.backward(
        torch.tensor(1.0),
    )
    opt2.step()


step()
"""


class Sketch:
    """A graph in the making; nodes may name targets that come later."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, object]] = []
        self.tensors: list[TensorRef] = []

    def tensor(self, name: str | None, shape: tuple[int, ...] = (), **facts: object) -> int:
        id = len(self.tensors)
        known = {"requires_grad": True, "is_leaf": False, "storage": id, "counter": id, "version": 0} | facts
        self.tensors.append(TensorRef(id, name, shape, "float32", "cpu", **known))  # type: ignore[arg-type]
        return id

    def leaf(self, name: str | None, shape: tuple[int, ...], *, parameter: bool = True) -> int:
        tensor = self.tensor(name, shape, is_leaf=True, is_parameter=parameter)
        return self.op("AccumulateGrad", shape, tensor=tensor)

    def op(
        self,
        op: str,
        shape: tuple[int, ...] = (),
        *targets: int,
        module: str | None = None,
        line: int | None = None,
        keeps: int = 0,
        freed: bool = False,
        tensor: int | None = None,
        custom: bool = False,
    ) -> int:
        saved = SavedTensor("result", shape, "float32", keeps, len(self.nodes), len(self.nodes), 0, freed=freed)
        facts = {"module": module, "line": line, "saved": (saved,) if keeps else (), "tensor": tensor}
        self.nodes.append({"op": op, "shape": shape, "targets": targets, "custom": custom, **facts})
        return len(self.nodes) - 1

    def graph(self, *roots: Root, file: str = "train.py") -> Graph:
        columns = {key: {n: node[key] for n, node in enumerate(self.nodes) if node[key]} for key in ("module", "saved")}
        return Graph(
            ops=[str(node["op"]) for node in self.nodes],
            sequences=[-1 if node["op"] == "AccumulateGrad" else n for n, node in enumerate(self.nodes)],
            outputs=[(TensorMeta(node["shape"], "float32", "cpu"),) for node in self.nodes],  # type: ignore[arg-type]
            targets=[tuple((target, 0) for target in node["targets"]) for node in self.nodes],  # type: ignore[attr-defined]
            saved=columns["saved"],  # type: ignore[arg-type]
            leaf_tensors={n: node["tensor"] for n, node in enumerate(self.nodes) if node["tensor"] is not None},  # type: ignore[misc]
            locations={n: at(node["line"], file=file) for n, node in enumerate(self.nodes) if node["line"]},  # type: ignore[arg-type]
            modules=columns["module"],  # type: ignore[arg-type]
            custom={n: True for n, node in enumerate(self.nodes) if node["custom"]},
            roots=roots,
            tensors=tuple(self.tensors),
        )


def at(line: int, end: int | None = None, *, file: str = "train.py") -> Location:
    return Location(file, line, end or line, "step")


def two_losses() -> Report:
    """Two losses share net1, whose buffers the first backward freed; a numpy hop feeds the second."""
    sketch = Sketch()
    x = sketch.leaf("x", (32, 8), parameter=False)
    below, shared, parameters = x, [], []
    for net, shapes in (("net1", ((16, 8), (4, 16))), ("net2", ((16, 4), (4, 16)))):
        for position, (out, into) in zip((0, 2), shapes, strict=True):
            bias = sketch.leaf(f"{net}.{position}.bias", (out,))
            weight = sketch.leaf(f"{net}.{position}.weight", (out, into))
            parameters += [sketch.nodes[weight]["tensor"], sketch.nodes[bias]["tensor"]]
            turned = sketch.op("TBackward0", (into, out), weight, module=f"{net}.{position}")
            name, line = f"{net}.{position}", 11 if net == "net1" else 14
            below = sketch.op(
                "AddmmBackward0", (32, out), bias, below, turned, module=name, line=line, keeps=128 * into
            )
            shared += [below] if net == "net1" else []
            if position == 0:
                kind = "ReluBackward0" if net == "net1" else "TanhBackward0"
                below = sketch.op(kind, (32, out), below, module=f"{net}.1", line=line, keeps=128 * out)
                shared += [below] if net == "net1" else []
    squares = sketch.op("PowBackward0", (32, 4), shared[-1], line=12, keeps=512)
    mean_a = sketch.op("MeanBackward0", (), squares, line=12)
    difference = sketch.op("SubBackward0", (32, 4), below, line=14)
    mean_b = sketch.op("MeanBackward0", (), difference, line=14)
    root_a = Root("loss_a", mean_a, sketch.tensor("loss_a", node=mean_a))
    root_b = Root("loss_b", mean_b, sketch.tensor("loss_b", node=mean_b))
    first = Backward(3, 0, at(16), (root_a,))
    error = "Trying to backward through the graph a second time"
    second = Backward(4, 0, at(17, 19), (root_b,), error=error)
    optimizers = tuple(
        OptimizerRef(n, f"opt{n + 1}", "SGD", (tuple(parameters[4 * n : 4 * n + 4]),), at(5 + n)) for n in (0, 1)
    )
    trace = Trace(
        graph=sketch.graph(root_a, root_b),
        events=(ZeroGrad(2, 0, at(15), optimizers[0].parameters, 0), first, second, OptimizerStep(5, 0, at(20), 1)),
        optimizers=optimizers,
        modules=tuple(ModuleRef(name, "Sequential", ()) for name in ("net1", "net2")),
        script="train.py",
        outcome=Outcome(1, f"RuntimeError: {error}", at(17, 19)),
        unseen=("2 backward calls in other threads",),
        sources={"train.py": SOURCE},
    )
    freed = Finding(
        "GS101",
        "backward-twice",
        Severity.ERROR,
        "`loss_b.backward()` goes through 3 nodes of `net1` whose saved tensors `loss_a.backward()` freed: "
        "Trying to backward through the graph a second time",
        (
            Place(at(17, 19), Role.FAILURE, "needs them again here"),
            Place(at(16), Role.CAUSE, "frees what `net1` saved"),
            Place(at(11), Role.RELATED, "the 3 shared nodes were made here"),
        ),
        fixes=(
            Fix("`(loss_a + loss_b).backward()`", at(16), changes_gradients=False, checked=True, bytes=0),
            Fix("`loss_a.backward(retain_graph=True)`", at(16), False, checked=True, bytes=5376),
            Fix(
                "`h.detach()` between the nets",
                works=False,
                reason="net1 would then learn from loss_a only, and the optimizers here hold both",
            ),
        ),
        nodes=tuple(reversed(shared)),
        facts={"freed_by": "loss_a.backward()"},
    )
    hop = Finding(
        "GS201",
        "numpy-hop",
        Severity.WARNING,
        "`target` was computed from `h` through numpy, so `loss_b` sends no gradient back along it",
        (
            Place(at(13), Role.CAUSE, "leaves torch and comes back without its history"),
            Place(at(14), Role.RELATED, "used here"),
        ),
        confidence=Confidence.LIKELY,
        fixes=(Fix("stay in torch: `target = h.clone()`", at(13), changes_gradients=True),),
        facts={"cut": {"location": at(13), "op": "numpy hop", "node": shared[-1]}},
    )
    return Report(trace, (freed, hop), (replace(hop, code="GS204"),))


def planned() -> Report:
    """A check of two losses and two optimizers, with nothing to say."""
    report = two_losses()
    calls = tuple(replace(call, ran=False, error=None) for call in report.trace.backwards)
    half = replace(report.trace.optimizers[1], groups=((0, *report.trace.optimizers[1].parameters),))
    optimizers = (report.trace.optimizers[0], half)
    trace = replace(report.trace, events=calls, optimizers=optimizers, script=None, outcome=Outcome(), unseen=())
    return Report(trace)


HOSTILE = '<b>&"\\ü{}|%\x1b[31m\u202e&lt;\\N]]>--'


def hostile() -> Report:
    """Names that mean something to a terminal, to XML, to DOT or to JSON, everywhere a name can be."""
    sketch = Sketch()
    leaf = sketch.leaf(HOSTILE, (2,))
    inner = sketch.op(HOSTILE, (2,), leaf, module=f"{HOSTILE}.a", line=1, keeps=8, custom=True)
    outer = sketch.op("MulBackward0", (), inner, inner, module=f"{HOSTILE}.b", line=1)
    root = Root(HOSTILE, outer, sketch.tensor(HOSTILE))
    place = at(1, file=HOSTILE)
    tensor = sketch.nodes[leaf]["tensor"]
    finding = Finding(
        "GS999",
        "hostile",
        Severity.NOTE,
        f"{HOSTILE} and {HOSTILE}",
        (Place(place, Role.CAUSE, HOSTILE), Place(at(7, file="other.py"), Role.RELATED, HOSTILE)),
        fixes=(Fix(HOSTILE, place), Fix(HOSTILE, works=False, reason=HOSTILE)),
        nodes=(inner,),
        facts={"cut": {"location": place, "op": HOSTILE, "node": leaf}},
    )
    trace = Trace(
        graph=sketch.graph(root, file=HOSTILE),
        events=(Backward(0, 0, place, (root,)),),
        optimizers=(OptimizerRef(0, HOSTILE, HOSTILE, ((tensor,),), place),),  # type: ignore[arg-type]
        modules=(ModuleRef(HOSTILE, HOSTILE, ()),),
        script=HOSTILE,
        unseen=(HOSTILE,),
        sources={HOSTILE: f"x = 1\t# {HOSTILE}\udc80\n"},
    )
    return Report(trace, (finding,))


def layers(number: int, *, modules: bool = True, chain: bool = False) -> Report:
    """A deep network: blocks with a residual connection, or one long chain without modules."""
    sketch = Sketch()
    below = sketch.leaf("x", (4, 4), parameter=False)
    for n in range(number):
        module = f"net.blocks.{n}" if modules else None
        weight = sketch.leaf(f"net.blocks.{n}.weight", (4, 4))
        inner = sketch.op("MmBackward0", (4, 4), below, weight, module=module and f"{module}.linear", keeps=64)
        inner = sketch.op("ReluBackward0", (4, 4), inner, module=module and f"{module}.act", keeps=64)
        below = inner if chain else sketch.op("AddBackward0", (4, 4), inner, below, module=module)
    loss = sketch.op("SumBackward0", (), below)
    return Report(Trace(graph=sketch.graph(Root("loss", loss, sketch.tensor("loss")))))
