"""``check``, ``plan``, ``trace`` and ``watch``: what they say, and that they change nothing."""

from __future__ import annotations

import copy
import gc
import json
import linecache
import weakref

import pytest
import torch
from torch import nn

import graphscope
from graphscope import GraphscopeError, GraphscopeWarning

pytestmark = pytest.mark.filterwarnings("ignore::graphscope.GraphscopeWarning")


class Nets:
    """net1 -> net2, a loss and an optimizer on each."""

    def __init__(self, *, deep: bool = True) -> None:
        layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4)] if deep else [nn.Linear(3, 4)]
        self.net1, self.net2 = nn.Sequential(*layers), nn.Linear(4, 1)
        self.opt1 = torch.optim.SGD(self.net1.parameters(), lr=0.1)
        self.opt2 = torch.optim.SGD(self.net2.parameters(), lr=0.1)
        hidden = self.net1(torch.randn(2, 3))
        self.loss1, self.loss2 = hidden.sum(), self.net2(hidden).pow(2).sum()


def codes(report: graphscope.Report) -> list[str]:
    return [finding.code for finding in report.findings]


def test_check_predicts_the_second_backward_of_a_shared_net() -> None:
    nets = Nets()
    report = graphscope.check(nets.loss1, nets.loss2, nets.opt1, nets.opt2)
    assert codes(report) == ["GS101"]
    assert not report.ok
    with pytest.raises(RuntimeError, match="second time"):
        nets.loss1.backward()
        nets.loss2.backward()


def test_check_with_retain_graph_is_silent() -> None:
    nets = Nets()
    assert graphscope.check(nets.loss2, nets.loss1, nets.opt1, nets.opt2, retain_graph=True).ok


def test_check_takes_pairs_and_modules() -> None:
    nets = Nets()
    report = graphscope.check((nets.loss2, nets.opt2), nets.opt1, nets.net1)
    assert report.ok


def test_check_changes_no_gradient_version_or_buffer() -> None:
    nets = Nets()
    before = {name: (p._version, p.grad) for name, p in nets.net1.named_parameters()}
    random = torch.random.get_rng_state()
    state = copy.deepcopy(nets.opt1.state_dict())
    graphscope.check(nets.loss1, nets.loss2, nets.opt1, nets.opt2)
    assert {name: (p._version, p.grad) for name, p in nets.net1.named_parameters()} == before
    assert torch.equal(torch.random.get_rng_state(), random)
    assert nets.opt1.state_dict() == state
    nets.loss2.backward()


def test_each_finding_of_check_is_a_warning_at_the_callers_line() -> None:
    nets = Nets()
    with pytest.warns(GraphscopeWarning, match="GS101") as caught:
        graphscope.check(nets.loss1, nets.loss2)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_plan_with_the_step_of_the_other_network_between_is_fine() -> None:
    nets = Nets()
    plan = graphscope.plan().backward(nets.loss2, retain_graph=True).step(nets.opt2).backward(nets.loss1)
    assert plan.step(nets.opt1).check().ok
    nets.loss2.backward(retain_graph=True)
    nets.opt2.step()
    nets.loss1.backward()


def test_plan_predicts_that_a_step_overwrites_what_the_next_backward_needs() -> None:
    nets = Nets()
    plan = graphscope.plan().backward(nets.loss1, retain_graph=True).step(nets.opt1).backward(nets.loss2)
    (finding,) = plan.check().findings
    assert finding.code == "GS102"
    assert finding.facts["written_by"] == ("nets.opt1.step()",) or "opt1" in str(finding.facts["written_by"])
    nets.loss1.backward(retain_graph=True)
    nets.opt1.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        nets.loss2.backward()


def test_an_optimizer_that_the_plan_does_not_name_holds_its_parameters_all_the_same() -> None:
    nets = Nets()
    assert graphscope.plan().backward(nets.loss2).step(nets.opt1).check().ok
    del nets.opt2
    assert codes(graphscope.plan().backward(nets.loss2).step(nets.opt1).check()) == ["GS208"]


def test_plan_tells_outdated_weights_where_torch_is_silent() -> None:
    nets = Nets(deep=False)
    plan = graphscope.plan().backward(nets.loss1, retain_graph=True).step(nets.opt1).backward(nets.loss2)
    assert codes(plan.check()) == ["GS108"]
    nets.loss1.backward(retain_graph=True)
    nets.opt1.step()
    nets.loss2.backward()


def test_plan_with_inputs_frees_only_what_lies_on_the_way() -> None:
    nets = Nets()
    weight = nets.net2.weight
    assert graphscope.plan().grad(nets.loss2, weight).backward(nets.loss1).check().ok
    torch.autograd.grad(nets.loss2, weight)
    nets.loss1.backward()


def test_plan_with_a_write_to_a_saved_tensor_fails() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    assert codes(graphscope.plan().write(y).backward(y.sum()).check()) == ["GS102"]
    assert y._version == 0


def test_a_saved_tensor_that_is_already_stale_is_told() -> None:
    x = torch.randn(3, requires_grad=True)
    y = x.exp()
    y.mul_(2)
    assert codes(graphscope.check(y.sum())) == ["GS102"]


def test_a_graph_that_is_already_freed_is_told() -> None:
    nets = Nets()
    nets.loss2.backward()
    (finding,) = graphscope.check(nets.loss2).findings
    assert finding.code == "GS101"
    assert finding.facts["freed_by"] == ()


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: graphscope.check(), "at least one loss"),
        (lambda: graphscope.check(3), "losses, optimizers and modules"),
        (lambda: graphscope.trace("loss"), "takes tensors"),
        (lambda: graphscope.trace(), "at least one tensor"),
        (lambda: graphscope.plan().check(), "needs a backward"),
        (lambda: graphscope.plan().backward(1), "takes tensors"),
        (lambda: graphscope.plan().step(1), "takes an optimizer"),
        (lambda: graphscope.inspect("no_such_script.py"), "no such script"),
    ],
)
def test_misuse_names_the_call_that_works(call, expected: str) -> None:
    with pytest.raises(GraphscopeError, match=expected):
        call()


def test_trace_keeps_nothing_alive() -> None:
    nets = Nets()
    graph = graphscope.trace(nets.loss1, nets.loss2)
    watched = [weakref.ref(nets.loss1), weakref.ref(nets.net1[0].weight)]
    del nets
    gc.collect()
    assert [ref() for ref in watched] == [None, None]
    assert len(graph.shared) > 0


def test_a_tensor_without_graph_is_a_root_without_node() -> None:
    assert graphscope.trace(torch.ones(2)).roots[0].node is None


def test_graph_saves_itself_as_json_and_picture(tmp_path) -> None:
    nets = Nets()
    graph = graphscope.trace(nets.loss2)
    graph.save(tmp_path / "graph.json")
    data = json.loads((tmp_path / "graph.json").read_text())
    assert len(data["nodes"]) == len(graph)
    assert {node["tensor"] for node in data["nodes"]} >= {"nets.net1.0.weight", "nets.net2.bias"}
    graph.save(tmp_path / "graph.svg")
    assert "<svg" in (tmp_path / "graph.svg").read_text()
    with pytest.raises(GraphscopeError, match="cannot tell a format"):
        graph.save(tmp_path / "graph.xyz")


def test_watch_reports_when_the_block_ends() -> None:
    nets = Nets()
    with graphscope.watch() as report, pytest.raises(RuntimeError):
        nets.loss1.backward()
        nets.loss2.backward()
    assert codes(report) == ["GS101"]
    (finding,) = report.findings
    assert {place.role.value for place in finding.places} >= {"cause", "failure"}
    assert all(place.location.file.endswith("test_api.py") for place in finding.places)


def test_report_of_watch_is_not_there_before() -> None:
    with graphscope.watch() as report, pytest.raises(GraphscopeError, match="filled when the block ends"):
        _ = report.findings


def test_what_is_right_is_cleared_with_its_reason() -> None:
    nets = Nets()
    with graphscope.watch() as report:
        nets.loss1.backward(retain_graph=True)
        nets.loss2.backward()
    (cleared,) = report.cleared
    assert cleared.code == "GS103" and "nets.loss2" in cleared.message
    assert linecache.getline(__file__, cleared.location.line).strip() == "nets.loss1.backward(retain_graph=True)"
    assert json.loads(report.to_json())["cleared"][0]["location"]["line"] == cleared.location.line
