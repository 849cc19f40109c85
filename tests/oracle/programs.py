"""Random small programs, as lists of statements that can be read and executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .world import NETS

Choose = Callable[[int], int]
"""Draws a number below the one given."""


@dataclass(frozen=True)
class Statement:
    """One line of a program; ``call`` describes it if it is a backward."""

    source: str
    call: Call | None = None
    target: str | None = None


@dataclass(frozen=True)
class Call:
    """``backward`` or, with a target, ``grad``."""

    roots: tuple[str, ...]
    inputs: tuple[str, ...] | None = None
    retain_graph: bool = False
    create_graph: bool = False
    target: str | None = None

    @property
    def keeps(self) -> bool:
        return self.retain_graph or self.create_graph

    @property
    def source(self) -> str:
        parts = [f"[{', '.join(self.roots)}]"]
        if self.inputs is not None:
            parts.append(f"{'' if self.target else 'inputs='}[{', '.join(self.inputs)}]")
        parts += ["retain_graph=True"] * self.retain_graph + ["create_graph=True"] * self.create_graph
        return (f"{self.target} = grad" if self.target else "backward") + f"({', '.join(parts)})"

    def statement(self) -> Statement:
        return Statement(self.source, self, self.target)

    def retained(self) -> Statement:
        return replace(self, retain_graph=True).statement()


UNARY = (
    "{a}.exp()", "{a}.sin()", "{a}.relu()", "{a}.tanh()", "{a} * 2.0", "{a} + 1.0", "-{a}", "{a} ** 2", "{a}.sigmoid()",
    "{a}.clone()", "{a}.softmax(-1)", "{a}.sum()", "{a}.mean(0)", "{a} / 3.0", "{a}.square()", "{a}.abs().sqrt()",
    "{a}.cumsum(-1)", "torch.nn.functional.layer_norm({a}, (2,)[:{a}.dim()])", "{a}.norm()", "{a}.max(-1).values",
    "{a}.expand(2, 2).sort(-1).values",
    "torch.nn.functional.dropout({a})", "torch.linalg.qr({a}.expand(2, 2)).Q", "{a}.expand(2, 2)[torch.tensor([1, 0])]",
    "{a}.clone().relu_()", "{a}.clone().exp_()", "torch.sigmoid_({a}.clone())",
)  # fmt: skip
VIEWS = (
    "{a}.detach()",
    "{a}.data",
    "{a}[0]",
    "{a}.t()",
    "{a}.view(-1)",
    "{a}.expand(2, 2)",
    "{a}[..., :1]",
    "{a}.view_as({a})",
    "{a}.unbind(0)[0]",
    "{a}.chunk(2)[0]",
    "{a}.split(1)[0]",
    "{a}.data[0]",
)
BINARY = (
    "{a} * {b}", "{a} + {b}", "{a} - {b}", "{a} / {b}", "{a} @ {b}", "{a}.pow({b})", "torch.where({b} > 0.5, {a}, {b})",
    "torch.maximum({a}, {b})", "torch.stack([{a}.sum(), {b}.sum()])", "torch.lerp({a}, {b}, 0.5)",
)  # fmt: skip
CUTS = (
    "hop({a})",
    "{a}.clone().data",
    "{a}.detach().clone()",
    "{a}.detach().requires_grad_()",
    "{a}.data.requires_grad_()",
    "torch.tensor({a}.tolist())",
)
CUSTOM = (
    "Reads.apply({a})", "Ignores.apply({a})", "ReadsNothing.apply({a})", "Pair.apply({a}, {b})[0]",
    "sum(Pair.apply({a}, {b}))", "Pair.apply({a}, {b})[1]", "Doubtful.apply({a})",
)  # fmt: skip
WRAPPED = ("again({f}, {a})", "again_reentrant({f}, {a})", "on_cpu({f}, {a})", "again(lambda t: (t * {p}).exp(), {a})",
           "again_reentrant(lambda t: (t * {p}).exp(), {a})", "on_cpu(lambda t: (t * {p}).exp(), {a})")  # fmt: skip
WRITES = (
    "{a}.add_(1.0)", "{a}.mul_(2.0)", "{a}.zero_()", "{a}.copy_({b})", "{a}[0] = 1.0", "{a}[0] = {b}[0]",
    "{a}[0].add_(1.0)", "{a}.clamp_(min=0.1)", "{a} += {b}", "torch.add({a}, 1.0, out={a})", "{a}.view(-1).mul_(3.0)",
    "whole({a}).mul_({b})", "whole({a}).addcmul_({a}, {b})", "{a}.t().mul_(2.0)",
)  # fmt: skip
HIDDEN = (
    "{a}.data = {b}.clone()",
    "{a}.data.add_(1.0)",
    "numpy_add({a})",
    "{a}.data[0] = 1.0",
    "{a}.detach().add_(1.0)",
)


class Writer:
    """Writes one program."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.statements: list[Statement] = []
        self.tensors: list[str] = []
        self.tracked: list[str] = []
        self.leaves: list[str] = []
        self.nets: list[str] = []
        self.optimizers: list[str] = []

    def pick(self, options: tuple[str, ...] | list[str]) -> str:
        return options[self.choose(len(options))]

    def recent(self) -> str:
        """A tensor, more often a recent one."""
        count = len(self.tensors)
        return self.tensors[-1 - min(self.choose(count), self.choose(count))]

    def add(self, source: str, target: str | None = None) -> None:
        self.statements.append(Statement(f"{target} = {source}" if target else source, target=target))

    def make(self, source: str, *, tracked: bool = True) -> None:
        name = f"t{len(self.tensors)}"
        a = self.recent()
        self.add(source.format(a=a, b=self.recent(), f=self.function(), p=self.pick(self.leaves)), name)
        self.tensors.append(name)
        if tracked and (self.tensors.index(a) == 0 or a in self.tracked or not self.choose(4)):
            self.tracked.append(name)

    def function(self) -> str:
        return self.pick(self.nets)

    def program(self) -> list[Statement]:
        for _ in range(1 + self.choose(2)):
            self.tensors.append(f"t{len(self.tensors)}")
            self.tracked.append(self.tensors[-1])
            self.leaves.append(self.tensors[-1])
            self.add("leaf()", self.tensors[-1])
        self.tensors.append(f"t{len(self.tensors)}")
        self.add("data()", self.tensors[-1])
        for position in range(1 + self.choose(3)):
            self.nets.append(f"n{position}")
            self.add(f"net({self.pick(list(NETS))!r})", self.nets[-1])
        for position in range(1 + self.choose(2)):
            self.optimizers.append(f"o{position}")
            held = self.pick(self.nets) if self.choose(3) else ", ".join(self.nets)
            self.add(f"optimizer({self.pick(['sgd', 'adam', 'momentum'])!r}, {held})", self.optimizers[-1])
        for _ in range(3 + self.choose(18)):
            self.statement()
        for _ in range(1 + self.choose(3)):
            self.call()
        return self.statements

    def statement(self) -> None:
        kind = self.choose(20)
        if kind < 4:
            self.make(self.pick(UNARY))
        elif kind < 6:
            self.make(self.pick(BINARY))
        elif kind < 9:
            self.make(f"{self.function()}({{a}})")
        elif kind < 10:
            self.make(self.pick(VIEWS + CUTS), tracked=False)
        elif kind < 11:
            self.make(self.pick(CUSTOM + WRAPPED))
        elif kind < 13:
            self.write()
        elif kind < 15:
            self.add(f"step({self.pick(self.optimizers)})")
        else:
            self.call()

    def write(self) -> None:
        source = self.pick(WRITES if self.choose(4) else HIDDEN).format(a=self.recent(), b=self.recent())
        self.add(source if self.choose(3) else f"with no_grad(): {source}")

    def call(self) -> None:
        roots = tuple(self.root() for _ in range(1 + (not self.choose(4))))
        is_grad = not self.choose(4)
        inputs = None
        if is_grad or not self.choose(5):
            inputs = tuple(self.pick(self.tracked) for _ in range(1 + (not self.choose(3))))
        retain, create = not self.choose(3), not self.choose(6)
        target = f"t{len(self.tensors)}" if is_grad else None
        self.statements.append(Call(roots, inputs, retain, create, target).statement())
        if target:
            self.tensors.append(target)
            if create:
                self.tracked.append(target)

    def root(self) -> str:
        count = len(self.tracked)
        return self.tracked[-1 - min(self.choose(count), self.choose(count))]


def write(choose: Choose) -> list[Statement]:
    """One random program."""
    return Writer(choose).program()


def text(program: list[Statement]) -> str:
    """A program to read."""
    return "\n".join(statement.source for statement in program)
