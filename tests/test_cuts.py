"""Where a gradient stops: small training steps, each with one line that cuts it, or none that matters.

A comment ``# GS206`` marks a line that a finding of this code must point at; a step without a mark must give no error
and no warning.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import graphscope
from graphscope.findings import Confidence, Severity

SETUP = """\
import math
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
enc, dec, head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters(), *head.parameters()], lr=0.1)
lam = 0.37
for step in range(3):
    x = torch.randn(8, 4)
    opt.zero_grad()
    z = enc(x)
    rec = (dec(z) - x).pow(2).mean()
    adv = head(z).sigmoid().mean()
"""
END = """
    loss.backward()
    opt.step()
"""

DEAD_TERMS = {
    "a term made a float under its own name": """
        value = adv.item()  # GS202
        loss = rec + adv + 0.1 * value
    """,
    "float()": """
        value = float(z.pow(2).mean())  # GS202
        loss = rec + adv - value
    """,
    "a weight that is no constant of the source": """
        value = z.pow(2).mean().item()  # GS202
        loss = rec + adv + lam * math.sqrt(value)
    """,
    "in the very statement": """
        loss = rec + adv + lam * z.pow(2).mean().item()  # GS202
    """,
    "a mean over numbers": """
        value = np.mean([row.pow(2).mean().item() for row in z])  # GS202
        loss = rec + adv + value
    """,
    "a number in a dict": """
        losses = {"rec": rec, "adv": adv}
        losses["norm"] = z.pow(2).mean().item()  # GS202
        loss = sum(losses.values())
    """,
    "an element of a list": """
        losses = [rec, adv, z.pow(2).mean().detach()]  # GS202
        loss = sum(losses)
    """,
    "a list that is stacked": """
        norm = z.pow(2).mean().data  # GS202
        loss = torch.stack([rec, adv, norm]).mean()
    """,
    "added in place": """
        loss = rec + adv
        with torch.no_grad():  # GS202
            norm = z.pow(2).mean()
        loss += 0.5 * norm
    """,
    "a weighted sum in a loop": """
        loss = 0.0
        for weight, term in ((1.0, rec), (0.5, adv), (0.1, z.pow(2).mean().detach())):  # GS202
            loss = loss + weight * term
    """,
    "a sum that is scaled": """
        norm = z.pow(2).mean().detach()  # GS202
        loss = (rec + adv + norm) / 3
    """,
    "a number that is made a leaf": """
        norm = torch.tensor(z.pow(2).mean().item(), requires_grad=True)  # GS202
        loss = rec + adv + 0.1 * norm
    """,
    "a detached term that is made a leaf": """
        norm = z.pow(2).mean().detach().requires_grad_()  # GS202
        loss = rec + adv + norm
    """,
    "a number that a loop over an array adds up": """
        rows = z.detach().numpy()  # GS202
        total = 0.0
        for row in rows:
            total += float(row @ row) / 8
        loss = rec + adv + torch.tensor(total)
    """,
    "an element of an array of its own": """
        def longest(z):
            rows = z.detach().cpu().numpy()  # GS202
            table = np.zeros(len(rows) + 1)
            for i in range(len(rows)):
                table[i + 1] = max(table[i], rows[i][0] ** 2)
            return torch.tensor(table[-1], dtype=torch.float32, requires_grad=True)
        loss = rec + adv + 0.3 * longest(z)
    """,
    "numbers in a list, sorted": """
        norms = z.norm(dim=1).tolist()  # GS202
        order = sorted(2 * each for each in norms)
        loss = torch.stack([rec, adv, torch.tensor(order[3], requires_grad=True)]).mean()
    """,
}

FORGOTTEN = {
    "a loss that another overwrites": """
        loss = F.mse_loss(dec(z), x)  # GS204
        loss = adv
    """,
    "a layer whose result is not used": """
        norm = norm if step else nn.LayerNorm(4)
        opt = opt if step else torch.optim.SGD([*norm.parameters(), *enc.parameters()], lr=0.1)
        norm(z)  # GS204
        loss = z.pow(2).mean()
    """,
    "a loss that each turn of a loop overwrites": """
        heads = heads if step else nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        opt = opt if step else torch.optim.SGD([*heads.parameters(), *enc.parameters()], lr=0.1)
        for weight, layer in zip((1.0, 0.5, 0.25), heads):
            loss = weight * F.mse_loss(layer(z), x)  # GS204
    """,
    "a loss that is left out of the sum": """
        losses = {"rec": dec(z).abs().mean(), "adv": adv}  # GS204
        loss = sum(value for key, value in losses.items() if key == "adv")
    """,
}

NO_GRADIENT = {
    "a term of choices": """
        wrong = (z.argmax(1) != 2).float().mean()  # GS206
        loss = rec + adv + wrong
    """,
    "a term of rounded values": """
        loss = rec + adv + z.round().pow(2).mean()  # GS206
    """,
    "a term of counted values": """
        used = torch.bucketize(z, torch.tensor([0.0, 1.0])).float().mean()  # GS206
        loss = rec + adv + used
    """,
    "the sign of a code": """
        code = torch.sign(enc(x))  # GS206
        loss = dec(code).mean() + head(code).mean()
    """,
    "a whole number": """
        code = enc(x).long().float()  # GS206
        loss = dec(code).mean() + head(code).mean()
    """,
    "a hard threshold": """
        gate = (enc(x) > 0).float()  # GS206
        loss = dec(gate * x).mean() + head(gate * x).mean()
    """,
    "the index of a maximum": """
        index = enc(x).max(1).indices  # GS206
        code = F.one_hot(index, 4).float()
        loss = dec(code).mean() + head(code).mean()
    """,
    "a sample": """
        code = F.one_hot(torch.multinomial(enc(x).softmax(1), 1)[:, 0], 4).float()  # GS206
        loss = dec(code).mean() + head(code).mean()
    """,
    "a coin": """
        code = torch.bernoulli(enc(x).sigmoid())  # GS206
        loss = dec(code).mean() + head(code).mean()
    """,
    "noise compared with a probability": """
        code = (torch.rand(8, 4) < enc(x).sigmoid()).float()  # GS206
        loss = dec(code).mean() + head(code).mean()
    """,
    "a step function": """
        code = torch.heaviside(enc(x), torch.tensor(0.5))  # GS206
        loss = dec(code).mean() + head(code).mean()
    """,
}

REENTRANT = {
    "a checkpoint of a module whose input is in a dict": """
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.LayerNorm(4)
            def forward(self, state):
                return dec(self.norm(state["hidden"]))
        h = checkpoint(Block(), {"hidden": z}, use_reentrant=True)  # GS204
        loss = head(h).mean()
    """,
    "a checkpoint that is given data only": """
        from torch.utils.checkpoint import checkpoint
        h = checkpoint(lambda x: dec(enc(x)), x, use_reentrant=True)  # GS204
        loss = head(h).mean()
    """,
}

SHOWN = {
    "a head whose loss is only printed": """
        heads = heads if step else nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        opt = opt if step else torch.optim.SGD([*heads.parameters(), *enc.parameters()], lr=0.1)
        first, second = F.mse_loss(heads[0](z), x), F.mse_loss(heads[1](z), x)
        print(second.item())  # GS204
        loss = first
    """,
    "a head whose loss is kept in a list of numbers": """
        heads = heads if step else nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        opt = opt if step else torch.optim.SGD([*heads.parameters(), *enc.parameters()], lr=0.1)
        terms = [F.mse_loss(heads[0](enc(x)), x)]
        value = F.mse_loss(heads[1](enc(x)), x).item()  # GS204
        terms.append(value)
        loss = sum(terms)
    """,
}

CUTS = DEAD_TERMS | SHOWN | FORGOTTEN | NO_GRADIENT | REENTRANT

RIGHT = {
    "logging": """
        loss = rec + adv
        history = [] if step == 0 else history
        history.append(loss.item())
        print(f"{rec.item():.3f} {float(adv):.3f} {np.mean(history):.3f}", z.argmax(1).tolist())
    """,
    "accuracy": """
        loss = rec + adv
        accuracy = (z.argmax(1) == 0).float().mean()
        best = accuracy + 0.5
    """,
    "a weight that is measured": """
        scale = rec.item() / (adv.item() + 1e-6)
        loss = rec + scale * adv + 0.25
    """,
    "a mask by intent": """
        mask = (z.detach() > 0).float()
        loss = rec + adv + (mask * z).pow(2).mean()
    """,
    "a mask of labels": """
        keep = x[:, 0] > 0
        loss = rec + adv + F.cross_entropy(z[keep], x[keep].argmax(1))
    """,
    "targets of its own making": """
        loss = rec + adv + F.cross_entropy(z, z.argmax(1))
    """,
    "straight-through": """
        code = z + (z.round() - z).detach()
        loss = rec + adv + dec(code).mean()
    """,
    "a straight-through sum": """
        loss = rec + adv + (z.pow(2).mean() - adv).detach()
    """,
    "hard gumbel": """
        loss = rec + adv + dec(F.gumbel_softmax(z, hard=True)).mean()
    """,
    "reinforce": """
        dist = torch.distributions.Categorical(logits=z)
        action = dist.sample()
        reward = (action == 1).float()
        loss = rec + adv - (dist.log_prob(action) * (reward - reward.mean())).mean()
    """,
    "a reparameterised sample": """
        dist = torch.distributions.Normal(z, 1.0)
        loss = rec + adv + dist.rsample().pow(2).mean()
    """,
    "a baseline that is a number": """
        loss = rec + adv - (z.mean() * (1.0 - adv.item()))
    """,
    "clipping by value": """
        loss = rec + adv + z.clamp(-1, 1).pow(2).mean() + torch.relu(z).mean()
    """,
    "a regression on detached features": """
        loss = rec + adv + head(z.detach()).pow(2).mean()
    """,
    "a loss that one of several heads gives": """
        heads = heads if step else nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
        opt = opt if step else torch.optim.SGD([*heads.parameters(), *enc.parameters()], lr=0.1)
        every = []
        for layer in heads:
            one = F.mse_loss(layer(z), x)
            every.append(one)
        loss = every[step]
    """,
    "heads that are only looked at so far": """
        heads = heads if step else nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
        opt = opt if step else torch.optim.SGD([*heads.parameters(), *enc.parameters()], lr=0.1)
        loss = F.mse_loss(heads[step](z), x)
        for number, layer in enumerate(heads):
            print(number, F.mse_loss(layer(enc(x)), x).item())
    """,
    "heads whose losses are named, logged and kept": """
        heads = heads if step else nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
        opt = opt if step else torch.optim.SGD([*heads.parameters(), *enc.parameters()], lr=0.1)
        loss, history = F.mse_loss(heads[step](z), x), []
        for number, layer in enumerate(heads):
            value = F.mse_loss(layer(enc(x)), x).item()
            print(f"{number} {value:.3f}")
            history.append(value)
    """,
    "flooding": """
        loss = (rec + adv - 0.05).abs() + 0.05
    """,
    "a sum that begins with a leaf": """
        rows = z.detach().numpy()
        print(float(rows[0] @ rows[0]))
        loss = torch.tensor(0.0, requires_grad=True)
        for term in (rec, adv):
            loss = loss + term
    """,
    "a constant by the size of an array": """
        rows = z.detach().numpy()
        count = rows.shape[0] * len(rows)
        loss = rec + adv + torch.tensor(0.3 / count)
    """,
    "a weight that is a new tensor": """
        share = [value * 0.5 for value in (rec.item(), adv.item())]
        loss = torch.tensor(share[0]) * rec + torch.tensor(share[1]) * adv
    """,
    "a sum of a library's own numbers, whose arguments it has checked": """
        loss = 0.0
        prior = torch.distributions.Normal(dec(x), head(x).exp())
        for scale in (0.5, 2.0):
            posterior = torch.distributions.Normal(z, scale * head(x).exp())
            loss = loss + torch.distributions.kl_divergence(posterior, prior).mean()
    """,
    "a gradient that is cached and given on": """
        features = z.detach().requires_grad_()
        near, far = features.pow(2).mean(), features[:4].abs().mean()
        (near + far).backward()
        loss = rec + adv + (z * features.grad).sum()
    """,
    "a loss that is computed again": """
        from torch.utils.checkpoint import checkpoint
        loss = rec + adv + checkpoint(lambda h: h.pow(2).mean() + h.abs().mean(), z, use_reentrant=True)
    """,
}


SWITCHED_BY_TORCH = """
        class Rounded(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round() * 1.0
            @staticmethod
            def backward(ctx, grad):
                return grad
        loss = rec + adv + dec(Rounded.apply(z)).mean()
"""


def inspected(step: str, folder: Path) -> tuple[str, graphscope.Report]:
    """The program of a training step, and the report on it."""
    source = SETUP + textwrap.indent(textwrap.dedent(step), "    ") + END
    file = folder / "train.py"
    file.write_text(source)
    return source, graphscope.inspect(file)


@pytest.mark.parametrize("step", CUTS.values(), ids=CUTS)
def test_cut_is_found_at_its_line(step: str, tmp_path: Path, capfd) -> None:
    source, report = inspected(step, tmp_path)
    lines = enumerate(source.splitlines(), start=1)
    marks = {(mark[1], line) for line, text in lines if (mark := re.search(r"# (GS\d+)$", text))}
    found = {
        (finding.code, place.location.line) for finding in report.at_least(Severity.WARNING) for place in finding.places
    }
    assert marks <= found, str(report)


@pytest.mark.parametrize("step", RIGHT.values(), ids=RIGHT)
def test_cut_that_costs_nothing_is_no_fault(step: str, tmp_path: Path, capfd) -> None:
    _, report = inspected(step, tmp_path)
    assert report.trace.outcome.exception is None
    assert not report.at_least(Severity.WARNING), str(report)


def test_forward_of_a_custom_function_is_not_said_to_switch_gradients_off(tmp_path: Path, capfd) -> None:
    source, report = inspected(SWITCHED_BY_TORCH, tmp_path)
    assert not report.at_least(Severity.WARNING), str(report)
    (cleared,) = [each for each in report.cleared if "`round`" in each.message]
    assert source.splitlines()[cleared.location.line - 1].strip() == "return x.round() * 1.0"
    assert "switching" not in cleared.message


@pytest.mark.parametrize("step", REENTRANT.values(), ids=REENTRANT)
def test_reentrant_checkpoint_is_told_of_by_itself(step: str, tmp_path: Path, capfd) -> None:
    _, report = inspected(step, tmp_path)
    (finding,) = report.at_least(Severity.WARNING)
    assert "reentrant checkpoint" in finding.message and "use_reentrant=False" in finding.fixes[0].title
    switched = [place for place in finding.places if place.label == "gradients are switched off here"]
    assert [place.location.line for place in switched] == [step[: step.index("# GS204")].count("\n") + 16]


@pytest.mark.parametrize(
    ("step", "said"),
    [(FORGOTTEN["a loss that each turn of a loop overwrites"], True), ("rec = dec(z).mean()\nloss = adv", False)],
    ids=["a loop of terms", "the loop of steps"],
)
def test_loop_that_overwrites_is_one_within_a_step(step: str, said: bool, tmp_path: Path, capfd) -> None:
    _, report = inspected(step, tmp_path)
    (finding,) = report.at_least(Severity.WARNING)
    assert ("each turn of the loop overwrites" in finding.message) is said
    assert ("total = total + term" in finding.fixes[0].title) is said


def test_name_of_the_term_is_told(tmp_path: Path, capfd) -> None:
    _, report = inspected("norm = z.pow(2).mean().detach()\nloss = rec + adv + norm", tmp_path)
    (finding,) = report.findings
    assert finding.facts["term"] == "the term `norm`" and finding.confidence is Confidence.CERTAIN


def test_number_is_likely_where_only_its_value_tells(tmp_path: Path, capfd) -> None:
    _, by_value = inspected(
        "take = lambda t: t.item()\nvalue = take(z.pow(2).mean())\nloss = rec + adv + value", tmp_path
    )
    _, by_both = inspected("value = z.pow(2).mean().item()\nloss = rec + adv + value", tmp_path)
    assert [f.confidence for f in by_value.findings] == [Confidence.LIKELY]
    assert [f.confidence for f in by_both.findings] == [Confidence.CERTAIN]


CLEARED = {
    "detach in a sum that trains otherwise": ("loss = rec + adv + head(z.detach()).mean()", "GS202", "`detach` keeps"),
    "logging": ("loss = rec + adv\n_ = loss.item()", "GS201", "only looked at"),
    "evaluation": ("loss = rec + adv\nwith torch.no_grad():\n    _ = dec(enc(x)).mean()", "GS202", "gradients are off"),
    "accuracy": ("loss = rec + adv\n_ = (z.argmax(1) == 0).float().mean()", "GS206", "`argmax`"),
    "straight-through": ("loss = rec + adv + (z + (z.round() - z).detach()).mean()", "GS202", "by another way"),
}


@pytest.mark.parametrize(("step", "code", "words"), CLEARED.values(), ids=CLEARED)
def test_what_is_right_is_cleared_once_with_its_line_and_reason(
    step: str, code: str, words: str, tmp_path: Path, capfd
) -> None:
    _, report = inspected(step, tmp_path)
    cleared = [each for each in report.cleared if each.code == code]
    assert [words in each.message for each in cleared] == [True], report.cleared
    assert cleared[0].location.line >= len(SETUP.splitlines())


def test_target_and_frozen_part_are_cleared(tmp_path: Path, capfd) -> None:
    step = """
        if step == 0:
            import copy
            target, frozen = copy.deepcopy(enc), nn.Linear(4, 4).requires_grad_(False)
        with torch.no_grad():
            goal = target(x)
        loss = rec + adv + (frozen(z) - goal).pow(2).mean()
    """
    _, report = inspected(step, tmp_path)
    messages = {each.code: each.message for each in report.cleared}
    assert "`target`, which no optimizer holds" in messages["GS202"]
    assert "`frozen` is frozen: 2 of its 2 parameters" in messages["GS204"]


def test_what_is_frozen_for_one_loss_is_not_laid_on_the_operation(tmp_path: Path, capfd) -> None:
    step = """
        enc.requires_grad_(False)
        judged = dec(enc(x)).pow(2).mean()
        enc.requires_grad_(True)
        loss = rec + adv + judged
    """
    _, report = inspected(step, tmp_path)
    cleared = [each.message for each in report.cleared if each.code == "GS202"]
    assert cleared and all(message.startswith("freezing keeps `loss` from `enc` here") for message in cleared)


def test_what_a_finding_points_at_is_not_cleared(tmp_path: Path, capfd) -> None:
    _, report = inspected("loss = rec + adv + z.pow(2).mean().detach()", tmp_path)
    assert [finding.code for finding in report.findings] == ["GS202"] and not report.cleared
