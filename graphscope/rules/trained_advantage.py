"""GS311: a policy term whose advantage keeps its way to the critic trains the critic too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .._plain import dataclass
from ..events import Backward
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._parameters import listed
from ._source import parsed
from ._steps import backwards_in, how_often, uses_of

_LOG_PROB = re.compile(r"log_?p|ratio", re.IGNORECASE)
_SAMPLED = re.compile(r"log_prob\s*\(|log_softmax|cross_entropy|nll_loss")
_ADVANTAGE = re.compile(r"adv|gae|delta|\btd|error|return|value|baseline|critic|reward", re.IGNORECASE)
_REGRESSIONS = ("Pow", "MseLoss", "SmoothL1Loss", "HuberLoss")


class TrainedAdvantage(Rule):
    """A policy term multiplies a log-probability by an advantage that still has its way to the critic.

    The policy gradient takes the advantage for a number. If it was computed from the critic and not detached, the
    policy term also trains the critic: to make the advantage of likely actions large, not to estimate it well.

    Bad::

        import torch, graphscope

        actor, critic = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                state, returns = torch.randn(8, 4), torch.randn(8)
                policy = torch.distributions.Categorical(logits=actor(state))
                advantage = returns - critic(state).squeeze(1)
                policy_loss = -(policy.log_prob(policy.sample()) * advantage).mean()  # GS311
                optimizer.zero_grad()
                (policy_loss + advantage.pow(2).mean()).backward()
                optimizer.step()

    Bad (the ratio of PPO)::

        import torch, graphscope

        actor, critic = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                state, returns, action = torch.randn(8, 4), torch.randn(8), torch.randint(3, (8,))
                log_prob = torch.distributions.Categorical(logits=actor(state)).log_prob(action)
                ratio = (log_prob - log_prob.detach()).exp()
                value = critic(state).squeeze(1)
                adv = returns - value
                surrogate = torch.min(
                    ratio * adv,  # GS311
                    ratio.clamp(0.8, 1.2) * adv,
                )
                optimizer.zero_grad()
                (torch.nn.functional.mse_loss(value, returns) - surrogate.mean()).backward()
                optimizer.step()

    Good::

        import torch, graphscope

        actor, critic = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                state, returns = torch.randn(8, 4), torch.randn(8)
                policy = torch.distributions.Categorical(logits=actor(state))
                advantage = returns - critic(state).squeeze(1)
                policy_loss = -(policy.log_prob(policy.sample()) * advantage.detach()).mean()
                optimizer.zero_grad()
                (policy_loss + advantage.pow(2).mean()).backward()
                optimizer.step()

    Good: what the policy term leaves in the critic is zeroed::

        import torch, graphscope

        actor, critic = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)
        opt_a = torch.optim.SGD(actor.parameters(), lr=0.1)
        opt_c = torch.optim.SGD(critic.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                state, returns = torch.randn(8, 4), torch.randn(8)
                policy = torch.distributions.Categorical(logits=actor(state))
                advantage = returns - critic(state).squeeze(1)
                policy_loss = -(policy.log_prob(policy.sample()) * advantage).mean()
                opt_a.zero_grad()
                policy_loss.backward(retain_graph=True)
                opt_a.step()
                opt_c.zero_grad()
                advantage.pow(2).mean().backward()
                opt_c.step()
    """

    code = "GS311"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each statement that multiplies the two, if a step uses what then reaches the critic."""
        for product in _products(trace):
            leaks = [(event, leaked) for event in trace.backwards if (leaked := _leaked(trace, event, product))]
            used = [(event, kept) for event, leaked in leaks if (kept := _stepped_on(trace, event, leaked))]
            if used:
                yield self._finding(trace, product, used)

    def _finding(self, trace: Trace, product: _Product, used: list[tuple[Backward, frozenset[int]]]) -> Finding:
        event, critic = used[-1]
        of = sum(1 for each in trace.backwards if each.location == event.location)
        factor = product.factor
        is_sum = isinstance(ast.parse(factor, mode="eval").body, ast.BinOp | ast.UnaryOp)
        detached = f"({factor}).detach()" if is_sum else f"{factor}.detach()"
        return self.finding(
            f"the policy term trains the critic too, {how_often(len(used), of, 'backward')}: `{factor}`, by which it "
            f"multiplies the log-probability, was computed from {listed(trace, sorted(critic))} and is not detached; "
            f"that is trained by a loss of its own",
            places=[
                *(Place(each, Role.CAUSE, f"`{factor}` should be a constant here") for each in product.locations),
                Place(event.location, Role.RELATED, "this backward takes the gradient of both into the critic"),
            ],
            fixes=[Fix(f"write `{detached}` in the policy term", product.locations[0], changes_gradients=True)],
            confidence=Confidence.LIKELY,
            count=len(used),
        )


@dataclass(frozen=True, slots=True)
class _Product:
    """The multiplications of log-probabilities by one ``factor``, as written, in a function, and their nodes."""

    locations: tuple[Location, ...]
    factor: str
    nodes: frozenset[int]


def _products(trace: Trace) -> Iterator[_Product]:
    """The statements that multiply, as the source has it, something called a log-probability by an advantage."""
    graph = trace.graph
    by_place: dict[Location, set[int]] = {}
    for id, op in enumerate(graph.ops):
        if op.startswith("MulBackward") and id in graph.locations and min(t for t, _ in graph.targets[id]) >= 0:
            by_place.setdefault(graph.locations[id], set()).add(id)
    alike: dict[tuple[str, str, str], list[Location]] = {}
    for location in sorted(by_place):
        if factor := _factor(trace.sources.get(location.file, ""), location):
            alike.setdefault((location.file, location.function, factor), []).append(location)
    for (_, _, factor), locations in alike.items():
        yield _Product(tuple(locations), factor, frozenset().union(*(by_place[each] for each in locations)))


def _factor(source: str, location: Location) -> str | None:
    if not _LOG_PROB.search(source):
        return None
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        if not location.line <= node.lineno <= (node.end_lineno or node.lineno) <= location.end_line:
            continue
        one, other = ast.unparse(node.left), ast.unparse(node.right)
        for policy, factor in ((one, other), (other, one)):
            if _LOG_PROB.search(policy) and not _LOG_PROB.search(factor) and _ADVANTAGE.search(factor):
                return factor
    return None


def _leaked(trace: Trace, event: Backward, product: _Product) -> frozenset[int]:
    """What this backward trains through the factor alone, and what another of its terms, or losses, regresses."""
    if not event.accumulates or event.error is not None:
        return frozenset()
    graph = trace.graph
    behind = graph.reachable(root.node for root in event.roots if root.node is not None)
    found: set[int] = set()
    for id in product.nodes & behind:
        sides = [graph.reachable([target]) for target, _ in graph.targets[id]]
        for policy, advantage in (sides, sides[::-1]):
            if any(_is_sampled(trace, each) for each in policy - advantage):
                critic = {graph.leaf_tensors[leaf] for leaf in advantage - policy if leaf in graph.leaf_tensors}
                actor = {graph.leaf_tensors[leaf] for leaf in policy - advantage if leaf in graph.leaf_tensors}
                if actor:
                    found |= critic
    return frozenset(found & trace.reached(event) & _regressed(trace, product)) if found else frozenset()


def _is_sampled(trace: Trace, node: int) -> bool:
    """Whether a statement that takes a log-probability made it."""
    location = trace.graph.locations.get(node)
    if location is None:
        return False
    lines = trace.sources.get(location.file, "").splitlines()[location.line - 1 : location.end_line]
    return bool(_SAMPLED.search("\n".join(lines)))


def _regressed(trace: Trace, product: _Product) -> set[int]:
    """The parameters that a squared error, or one of its kin, trains by another way than through the product."""
    graph = trace.graph
    roots = {root.node for event in trace.backwards if event.accumulates for root in event.roots}
    outside = graph.reachable((node for node in roots if node is not None), stops=product.nodes)
    errors = [id for id in outside if graph.ops[id].startswith(_REGRESSIONS)]
    computed = [target for id in errors for target, _ in graph.targets[id] if target >= 0]
    return set(graph.reached_tensors(target for target in computed if target not in graph.leaf_tensors))


def _stepped_on(trace: Trace, event: Backward, leaked: frozenset[int]) -> frozenset[int]:
    """Those whose gradients of this backward some step used."""
    found: set[int] = set()
    for optimizer in trace.optimizers:
        if not leaked.isdisjoint(optimizer.parameters):
            for use in uses_of(trace, optimizer):
                for holding, parameters in use.parts:
                    if event in backwards_in(holding):
                        found |= leaked.intersection(parameters)
    return frozenset(found)
