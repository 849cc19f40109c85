"""Which parameters the statement, or the optimizer, that is named in a finding was meant for."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path

import torch
from torch import nn

import graphscope
from graphscope.findings import Role, Severity
from graphscope.report import Report


def loud(report: Report):
    return [finding for finding in report.findings if finding.severity is not Severity.NOTE]


def test_optimizer_that_was_given_the_parameters_of_another_is_named() -> None:
    generator, critic = nn.Linear(2, 3), nn.Linear(3, 1)
    with graphscope.watch() as report:
        opt_g = torch.optim.SGD(generator.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(generator.parameters(), lr=0.1)
        for _ in range(3):
            fake = generator(torch.randn(4, 2))
            opt_d.zero_grad()
            (critic(fake.detach()).mean() - critic(torch.ones(4, 3)).mean()).backward()
            opt_d.step()
            opt_g.zero_grad()
            critic(fake).mean().neg().backward()
            opt_g.step()
    (finding,) = loud(report)
    assert finding.code == "GS208"
    assert finding.facts["parameters"] == ("critic.weight", "critic.bias")
    (cause,) = [place for place in finding.places if place.role is Role.CAUSE]
    assert cause.label == "`opt_d` is made here, without them"
    assert [fix.title for fix in finding.fixes] == ["give them to `opt_d`"]


def test_statement_that_switches_nothing_in_a_loop_is_told_once() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 1))
    with graphscope.watch() as report:
        for p in net[:3].parameters():
            p.requires_grads = False
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            opt.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            opt.step()
    (finding,) = loud(report)
    assert finding.code == "GS214"
    assert finding.facts["parameters"] == tuple(f"net.{n}.{name}" for n in (0, 2) for name in ("weight", "bias"))
    assert [fix.title for fix in finding.fixes] == ["write `p.requires_grad = False`"]


def test_all_statements_that_take_up_the_earlier_graph_are_to_detach() -> None:
    cell, table = nn.Linear(4, 2), torch.zeros(3, 2)
    with graphscope.watch() as report:
        try:
            for _ in range(2):
                read = torch.cat([table[:1], table[1:2]], dim=1)
                table = table.index_copy(0, torch.tensor([2]), cell(read))
                table.pow(2).sum().backward()
        except RuntimeError:
            pass
    (finding,) = loud(report)
    (fix, *_) = [fix for fix in finding.fixes if fix.title.startswith("detach()")]
    lines = sorted({place.location.line for place in finding.places})
    assert fix.location is not None
    assert fix.title == f"detach() what this statement, and line {fix.location.line + 1}, take from the earlier graph"
    assert fix.location.line in lines


def test_list_that_keeps_what_was_backpropagated_is_to_be_emptied() -> None:
    policy, kept = nn.Linear(2, 1), []
    opt = torch.optim.SGD(policy.parameters(), lr=0.1)
    with graphscope.watch() as report:
        try:
            for _ in range(2):
                for _ in range(3):
                    kept.append(policy(torch.ones(1, 2)).tanh())
                opt.zero_grad()
                torch.cat(kept).sum().backward()
                opt.step()
        except RuntimeError:
            pass
    (finding,) = [each for each in loud(report) if each.code == "GS101"]
    (fix,) = [each for each in finding.fixes if each.title.startswith("empty what keeps")]
    assert fix.location in {place.location for place in finding.places}


def test_features_that_a_loop_shares_are_no_list_to_be_emptied() -> None:
    net = nn.Linear(2, 1)
    with graphscope.watch() as report:
        features = [net(torch.full((1, 2), float(n))).tanh() for n in range(3)]
        try:
            for _ in range(2):
                torch.cat(features).sum().backward()
        except RuntimeError:
            pass
    (finding,) = [each for each in loud(report) if each.code == "GS101"]
    assert not [fix for fix in finding.fixes if fix.title.startswith("empty what keeps")]


def test_second_optimizer_of_a_network_is_not_said_to_be_meant_for_another() -> None:
    net, features = nn.Linear(2, 3), nn.Linear(3, 3)
    with graphscope.watch() as report:
        first = torch.optim.Adam(net.parameters(), lr=0.1)
        second = torch.optim.SGD(net.parameters(), lr=0.1)
        for opt in (first, first, second, second):
            opt.zero_grad()
            features(net(torch.ones(4, 2))).pow(2).mean().backward()
            opt.step()
    assert not [finding for finding in report.findings if "in their place" in finding.message]


def test_loss_of_detached_values_alone_still_trains_nothing() -> None:
    net, features = nn.Linear(2, 3), nn.Linear(3, 3)
    with graphscope.watch() as report:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            out = net(torch.ones(4, 2))
            opt.zero_grad()
            out.pow(2).mean().backward()
            seen = features(out.detach())
            perceptual = seen.pow(2).mean() + seen.abs().mean()
            perceptual.backward()
            opt.step()
    assert {finding.code for finding in loud(report)} == {"GS202"}


def test_value_without_its_history_is_told_to_be_written() -> None:
    net = nn.Linear(2, 3)
    with graphscope.watch() as report:
        hidden = net(torch.ones(4, 2))
        with contextlib.suppress(RuntimeError):
            hidden.requires_grad = False
    (finding,) = loud(report)
    assert finding.fixes[0].title.startswith("write `hidden = hidden.detach()`")


def test_critic_that_stays_frozen_is_told_of_beside_what_its_spectral_norm_does_itself() -> None:
    generator = nn.Linear(4, 2)
    critic = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 8)), nn.Linear(8, 1))
    opt_g, opt_c = torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)

    def freeze(net: nn.Module) -> None:
        for parameter in net.parameters():
            parameter.requires_grad_(False)

    with graphscope.watch() as report, contextlib.suppress(RuntimeError):
        for _ in range(2):
            opt_c.zero_grad()
            loss = torch.relu(1 - critic(torch.ones(4, 2))).mean() + critic(generator(torch.ones(4, 4)).detach()).mean()
            loss.backward()
            opt_c.step()
            freeze(critic)
            opt_g.zero_grad()
            (-critic(generator(torch.ones(4, 4))).mean()).backward()
            opt_g.step()
    (finding,) = loud(report)
    assert finding.code == "GS205"
    lines = [inspect.getsourcelines(freeze)[1] + 2, inspect.getsourcelines(freeze)[1] + 10]
    causes = [place.location.line for place in finding.places if place.label.startswith("frozen")]
    assert causes == lines


def test_term_that_is_only_shown_is_told_of_where_it_is_computed(tmp_path: Path, capfd) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "stem, main, aux = (torch.nn.Linear(4, 4) for _ in range(3))\n"
        "opt = torch.optim.SGD([*stem.parameters(), *main.parameters(), *aux.parameters()], lr=0.1)\n"
        "for _ in range(3):\n"
        "    h = stem(torch.ones(2, 4))\n"
        "    losses = {'main': main(h).pow(2).mean()}\n"
        "    aux_loss = aux(h).pow(2).mean()\n"
        "    opt.zero_grad()\n"
        "    sum(losses.values()).backward()\n"
        "    opt.step()\n"
        "    print(aux_loss.item())\n"
    )
    report = graphscope.inspect(script)
    (finding,) = loud(report)
    assert finding.code == "GS204"
    assert [place.location.line for place in finding.places if place.role is Role.CAUSE] == [7, 9, 11]


def test_parameter_made_of_a_result_is_where_its_history_ends() -> None:
    hyper, net = nn.Linear(4, 6), nn.Linear(3, 2, bias=False)
    with graphscope.watch() as report:
        opt = torch.optim.SGD(hyper.parameters(), lr=0.1)
        for _ in range(3):
            generated = hyper(torch.ones(4)).view(2, 3)
            net.weight = nn.Parameter(generated)
            opt.zero_grad()
            net(torch.ones(5, 3)).pow(2).mean().backward()
            opt.step()
    (finding,) = loud(report)
    assert finding.code == "GS203"
    assert finding.places[0].label.startswith("`Parameter` drops the history")
    assert finding.facts["cut"] is not None


def test_parameters_of_plain_memory_have_no_history_to_lose() -> None:
    net = nn.Linear(3, 3)
    with graphscope.watch() as report:
        net.register_parameter("scale", nn.Parameter(net.weight.detach().mean().clone()))
        twin = nn.Linear(3, 3)
        twin.weight = nn.Parameter(net.weight.data)
        opt = torch.optim.SGD([*net.parameters(), *twin.parameters()], lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            (twin(net(torch.ones(2, 3))) * net.scale).pow(2).mean().backward()
            opt.step()
    assert not [call for call in report.trace.calls if call.op == "Parameter" and any(call.needs_grad)]


def test_way_to_its_own_loss_is_looked_at_first() -> None:
    generator, critic = nn.Linear(3, 4), nn.Linear(4, 1)
    opt_g, opt_c = torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
    with graphscope.watch() as report:
        for _ in range(3):
            opt_c.zero_grad()
            with torch.no_grad():
                fake = torch.nn.functional.one_hot(generator(torch.ones(2, 3)).argmax(1), 4).float()
            critic(fake).mean().backward()
            opt_c.step()
            opt_g.zero_grad()
            words = torch.nn.functional.one_hot(generator(torch.ones(2, 3)).argmax(1), 4).float()
            (-critic(words).mean()).backward()
            opt_g.step()
    assert {finding.code for finding in loud(report)} == {"GS203", "GS206"}
    for finding in loud(report):
        causes = [place.label for place in finding.places if place.role is Role.CAUSE]
        assert causes == ["`argmax` has no gradient: the history ends here"]


def test_derivative_in_a_custom_backward_is_told_to_be_taken_with_gradients_on() -> None:
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, net):
            ctx.net = net
            ctx.save_for_backward(x)
            return net(x)

        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0].detach().requires_grad_(True)
            return torch.autograd.grad(ctx.net(x), x, grad)[0], None

    with graphscope.watch() as report, contextlib.suppress(RuntimeError):
        Again.apply(torch.ones(2, 3, requires_grad=True), nn.Linear(3, 3)).sum().backward()
    (finding,) = [each for each in loud(report) if each.code == "GS205"]
    assert finding.fixes[0].title == "compute it under `with torch.enable_grad():`"


def test_result_that_trains_parameters_is_not_told_to_be_made_a_leaf() -> None:
    net = nn.Linear(3, 3)
    with graphscope.watch() as report:
        hidden = net(torch.ones(2, 3))
        hidden.sum().backward()
        shifted = torch.ones(3, requires_grad=True) * 2
        shifted.sum().backward()
        assert hidden.grad is None
        assert shifted.grad is None
    fixes = [[fix.title[:24] for fix in each.fixes] for each in report.findings if each.code == "GS209"]
    assert fixes == [["call retain_grad() on it"], ["make it a leaf: .detach(", "or call retain_grad() on"]]
