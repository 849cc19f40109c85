"""Edits change what they are asked to and nothing else, or are refused."""

from __future__ import annotations

import textwrap

import pytest

from graphscope.edits import apply
from graphscope.findings import Action, Edit
from graphscope.location import Location


def at(line: int) -> Location:
    return Location("train.py", line, line)


def edited(source: str, *edits: Edit) -> str | None:
    """What becomes of a source, without its indentation here."""
    return apply(textwrap.dedent(source).lstrip("\n"), edits)


def line(source: str, action: Action, name: str | None = None) -> str | None:
    """What becomes of the last line of a program."""
    text = f"import torch\n{source}\n"
    result = apply(text, [Edit(action, at(text.count("\n")), name=name)])
    return result and result.removeprefix("import torch\n").removesuffix("\n")


def retained(call: str) -> str | None:
    return line(call, Action.RETAIN_GRAPH)


def written(statement: str, name: str | None = None) -> str | None:
    return line(statement, Action.OUT_OF_PLACE, name)


def detached(statement: str, name: str | None = None) -> str | None:
    return line(statement, Action.DETACH, name)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss.backward()", "loss.backward(retain_graph=True)"),
        ("loss.backward( )  # once", "loss.backward( retain_graph=True)  # once"),
        ("(a + b).backward()", "(a + b).backward(retain_graph=True)"),
        ("z.backward(t)", "z.backward(t, retain_graph=True)"),
        ("z.backward(inputs=(w,),)", "z.backward(inputs=(w,), retain_graph=True,)"),
        ("loss.backward(retain_graph=False)", "loss.backward(retain_graph=True)"),
        ("loss.backward(retain_graph = (keep))", "loss.backward(retain_graph = True)"),
        ("loss.backward(None, False)", "loss.backward(None, True)"),
        ("torch.autograd.backward([a, b])", "torch.autograd.backward([a, b], retain_graph=True)"),
        ("g, = torch.autograd.grad(y, x)", "g, = torch.autograd.grad(y, x, retain_graph=True)"),
        ("g, = torch.autograd.grad(y, x, None, False)", "g, = torch.autograd.grad(y, x, None, True)"),
        ("if on: größe.backward(); step()", "if on: größe.backward(retain_graph=True); step()"),
        ("losses['a'].backward()", "losses['a'].backward(retain_graph=True)"),
    ],
)
def test_retain_graph_is_passed(before: str, after: str) -> None:
    assert retained(before) == after


@pytest.mark.parametrize(
    "call",
    [
        "a.backward(); b.backward()",  # which one?
        "loss.backward(*options)",
        "loss.backward(**options)",
        "loss.backward(retain_graph=True)",
        "train(loss)",
        "model.grad(x)",
    ],
)
def test_retain_graph_is_refused(call: str) -> None:
    assert retained(call) is None


def test_a_call_over_lines_keeps_its_comments() -> None:
    source = """
        @decorated
        def step():
            loss.backward(
                torch.tensor(1.0),  # seed
            )  # end
        """
    result = edited(source, Edit(Action.RETAIN_GRAPH, at(3)))
    assert result is not None and "torch.tensor(1.0), retain_graph=True,  # seed\n    )  # end\n" in result


def test_tabs_line_ends_quotes_and_a_mark_are_kept() -> None:
    source = "\ufeffdef f():\r\n\ts = 'ß'\r\n\tif s:\r\n\t\tloss.backward()\t# ä\r\n\r\n\r\n"
    result = apply(source, [Edit(Action.RETAIN_GRAPH, at(4))])
    assert result == source.replace("backward()", "backward(retain_graph=True)")


def test_a_sum_drops_the_first_backward() -> None:
    source = """
        for x in data:
            a = f(x)
            a.backward()  # first
            b = g(x)
            # the second
            b.backward()
            opt.step()
        """
    assert edited(source, Edit(Action.SUM, at(3), at(6))) == textwrap.dedent(
        """
        for x in data:
            a = f(x)
            b = g(x)
            # the second
            (a + b).backward()
            opt.step()
        """
    ).lstrip("\n")


def test_a_sum_of_sums_and_of_three_needs_no_parentheses() -> None:
    source = "(a + b).backward()\nself.c.backward(); print(1)\n(2 * d).backward(retain_graph=True)\n"
    edits = [Edit(Action.SUM, at(1), at(3)), Edit(Action.SUM, at(2), at(3))]
    assert apply(source, edits) == "print(1)\n(a + b + self.c + (2 * d)).backward(retain_graph=True)\n"


def test_a_sum_at_the_earlier_place() -> None:
    edits = [Edit(Action.SUM, at(3), at(1))]
    assert apply("a.backward()\nopt.step()\nb.backward()\n", edits) == "(a + b).backward()\nopt.step()\n"


@pytest.mark.parametrize(
    "between",
    ["a = f(x)", "a += 1", "for a in x: pass", "with open(f) as a: pass", "if x:\n    a = 1", "(a := 1)"],
)
def test_a_sum_is_refused_where_the_loss_changes(between: str) -> None:
    source = f"a.backward()\n{between}\nb.backward()\n"
    assert apply(source, [Edit(Action.SUM, at(1), at(source.count(chr(10))))]) is None


@pytest.mark.parametrize(
    "source",
    [
        "if x:\n    a.backward()\nb.backward()\n",
        "f(x).backward()\npass\nb.backward()\n",
        "a.backward(g)\npass\nb.backward()\n",
        "a.backward(inputs=w)\npass\nb.backward()\n",
        "y = a.backward()\npass\nb.backward()\n",
    ],
)
def test_a_sum_is_refused_for_anything_but_plain_losses_of_one_block(source: str) -> None:
    assert apply(source, [Edit(Action.SUM, at(1 + source.startswith("if")), at(3))]) is None


def test_the_losses_of_a_loop_are_added_up() -> None:
    source = """
        def step(losses):
            for head in heads:
                loss = head(x)
                loss.backward()  # each
            opt.step()
        """
    assert edited(source, Edit(Action.SUM, at(4), at(4))) == textwrap.dedent(
        """
        def step(losses):
            losses2 = []
            for head in heads:
                loss = head(x)
                losses2.append(loss)  # each
            sum(losses2).backward()
            opt.step()
        """
    ).lstrip("\n")


def test_a_step_moves_with_its_comment() -> None:
    source = "a.backward(retain_graph=True)\nopt.step()  # one\nopt.zero_grad()\nb.backward()"
    edits = [Edit(Action.MOVE_AFTER, at(3), at(4)), Edit(Action.MOVE_AFTER, at(2), at(4))]
    assert apply(source, edits[1:]) == (
        "a.backward(retain_graph=True)\nopt.zero_grad()\nb.backward()\nopt.step()  # one"
    )
    assert apply(source + "\n", edits) == (
        "a.backward(retain_graph=True)\nb.backward()\nopt.step()  # one\nopt.zero_grad()\n"
    )


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("opt.step()\nif x:\n    b.backward()\n", (1, 3)),
        ("b.backward()\nopt.step()\n", (2, 1)),
        ("y = f(x)\nb = y\nb.backward()\n", (1, 3)),
        ("opt.step()\nopt = None\nb.backward()\n", (1, 3)),
        ("opt.step(); f()\nb.backward()\n", (1, 2)),
        ("import x\nb.backward()\n", (1, 2)),
    ],
)
def test_a_move_is_refused(source: str, lines: tuple[int, int]) -> None:
    assert apply(source, [Edit(Action.MOVE_AFTER, at(lines[0]), at(lines[1]))]) is None


def test_a_backward_moves_before_a_step() -> None:
    source = "opt.step()\n# the other\nb.backward()  # two"
    assert apply(source, [Edit(Action.MOVE_BEFORE, at(3), at(1))]) == "b.backward()  # two\nopt.step()\n# the other\n"


@pytest.mark.parametrize(
    "source",
    [
        "opt.step()\nb = f(x)\nb.backward()\n",
        "opt.step()\nif stop: break\nb.backward()\n",
        "opt.step()\ndel b\nb.backward()\n",
        "g = f(x)\nopt.step(g)\ng = grad(y, x)\n",
        "if x:\n    opt.step()\nb.backward()\n",
    ],
)
def test_a_backward_that_depends_on_what_comes_before_it_stays(source: str) -> None:
    last = source.count("\n")
    assert apply(source, [Edit(Action.MOVE_BEFORE, at(last), at(1 + source.startswith("if")))]) is None


def again(source: str, *lines: int) -> str | None:
    """What becomes of a program of which some lines are repeated before the last one."""
    last = at(source.count("\n"))
    return apply(source, [Edit(Action.COMPUTE_AGAIN, at(line), last) for line in lines])


def test_a_forward_is_repeated_before_its_backward() -> None:
    source = "h = f(x)\nh = g(h)  # two\nloss, _ = h.sum(), 1\nopt.step()\nloss.backward()\n"
    forward = source.splitlines(keepends=True)[:3]
    assert again(source, 1, 2, 3) == "".join([*forward, "opt.step()\n", *forward, "loss.backward()\n"])


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("h = g(h)\nopt.step()\nh.backward()\n", (1,)),  # it would go on from where it got
        ("h = f(x)\nx = next_batch\nopt.step()\nh.backward()\n", (1,)),
        ("h = f(x)\nfor x in y: pass\nh.backward()\n", (1,)),
        ("h = f(x)\nh = h + 1\nloss = h.sum()\nloss.backward()\n", (1, 3)),
        ("h = f(x)\nh = None\nopt.step()\nh.backward()\n", (1,)),
        ("h = f(next(data))\nopt.step()\nh.backward()\n", (1,)),
        ("h = f(x)\nlosses.append(h)\nt = sum(losses)\nt.backward()\n", (1, 3)),
        ("h += f(x)\nopt.step()\nh.backward()\n", (1,)),
        ("self.h = f(x)\nopt.step()\nself.h.backward()\n", (1,)),
        ("if x:\n    h = f(x)\nh.backward()\n", (2,)),
    ],
)
def test_a_forward_that_would_not_be_the_same_is_not_repeated(source: str, lines: tuple[int, ...]) -> None:
    assert again(source, *lines) is None


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        ("y = d(fake)", "fake", "y = d(fake.detach())"),
        ("y = d(fake, (fake), fake=fake.x)", "fake", "y = d(fake.detach(), (fake.detach()), fake=fake.detach().x)"),
        ("out, h = rnn(x, h)", None, "out, h = rnn(x, h.detach())"),
        ("self.h = self.cell(x, self.h)", None, "self.h = self.cell(x, self.h.detach())"),
        ("for y in net(h): pass", "h", "for y in net(h.detach()): pass"),
        ("hs[0] = rnn(x, hs[0])", "hs[0]", "hs[0] = rnn(x, hs[0].detach())"),
        ("h = (a, b)\no, h = f(x, h)", None, "h = (a, b)\no, h = f(x, tuple(s.detach() for s in h))"),
        (
            "self.lstm = torch.nn.LSTM(1, 1)\no, s = self.lstm(x, s)",
            None,
            "self.lstm = torch.nn.LSTM(1, 1)\no, s = self.lstm(x, tuple(state.detach() for state in s))",
        ),
    ],
)
def test_a_use_is_detached(before: str, name: str | None, after: str) -> None:
    assert detached(before, name) == after


def test_a_state_that_begins_as_none_is_detached_from_the_second_turn_on() -> None:
    assert detached("h = None\no, h = f(x, h)") == "h = None\no, h = f(x, h if h is None else h.detach())"
    assert detached("h = None\nh = h + f(x)") == "h = None\nh = (h if h is None else h.detach()) + f(x)"
    source = "def f(x, s=None):\n    a, b = s\n    s = g(x, s)"
    assert detached(source) == source[:-2] + "s if s is None else tuple(state.detach() for state in s))"


def test_a_total_that_begins_as_a_number_is_detached_from_the_second_turn_on() -> None:
    after = "total = 0.0\ntotal = (total if isinstance(total, float) else total.detach()) + f(x)"
    assert detached("total = 0.0\ntotal = total + f(x)") == after


@pytest.mark.parametrize(
    ("statement", "name"),
    [("y = d(x)", "fake"), ("fake = d(x)", "fake"), ("y = d(x, z)", None), ("y = d(x.detach())", "x")],
)
def test_a_detach_is_refused(statement: str, name: str | None) -> None:
    assert detached(statement, name) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x += y", "x = x + y"),
        ("self.x *= a + b  # scale", "self.x = self.x * (a + b)  # scale"),
        ("x -= 0.1 * x.grad", "x = x - 0.1 * x.grad"),
        ("x +=(\n    y)", "x = x +(\n    y)"),
        ("x.add_(y)", "x = x.add(y)"),
        ("x.add_(y).mul_(z)", "x = x.add(y).mul(z)"),
        ("x.data.clamp_(a, b)", "x = x.clamp(a, b)"),
        ("x = x.relu_()", "x = x.relu()"),
        ("y = x.relu_()", "y = x = x.relu()"),
        ("y = f(x).relu_()", "y = f(x).relu()"),
        ("def f(x): return x.relu_()", "def f(x): return x.relu()"),
        ("torch.relu_(x)", "x = torch.relu(x)"),
        ("F.relu(x, inplace=True)", "x = F.relu(x)"),
        ("torch.add(x, 1, out=y)", "y = torch.add(x, 1)"),
        ("y = F.dropout(x, 0.5, inplace=True, training=on)", "y = x = F.dropout(x, 0.5, training=on)"),
        ("x = relu(x, inplace=True)", "x = relu(x)"),
        ("act = nn.ReLU(inplace=True)", "act = nn.ReLU()"),
        ("act = nn.ELU(inplace = True, alpha=2)", "act = nn.ELU(alpha=2)"),
        ("act = nn.ReLU(True)", "act = nn.ReLU()"),
        ("self.act = nn.ReLU(inplace=True,)\ny = self.act(x)", "self.act = nn.ReLU()\ny = self.act(x)"),
    ],
)
def test_a_write_makes_a_new_tensor(before: str, after: str) -> None:
    assert written(before) == after


@pytest.mark.parametrize(
    "statement",
    [
        "x[0] = y",
        "x[0] += y",
        "x[0].add_(y)",
        "x.view(-1).add_(y)",
        "x.zero_()",
        "x.normal_()",
        "nn.init.normal_(x)",
        "x.__iadd__(y)",
        "z = f(x.relu_())",
        "x.add_(1); y.add_(1)",
        "f(x).add_(y)",
        "z = x + y",
    ],
)
def test_a_write_is_refused(statement: str) -> None:
    assert written(statement) is None


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(x):\n    x *= 2\n", 2),  # the caller's
        ("for p in parameters:\n    p.mul_(2)\n", 2),  # the list's
        ("row = table[0]\nrow += 1\nprint(table)\n", 2),  # the base's
        ("def f(x):\n    y = x.view(-1)\n    y.relu_()\n    return x\n", 3),
    ],
)
def test_a_write_that_others_see_stays(source: str, line: int) -> None:
    assert apply(source, [Edit(Action.OUT_OF_PLACE, at(line))]) is None
    assert apply(source, [Edit(Action.CLONE, at(line))]) is None


def test_a_write_that_nobody_else_sees_goes() -> None:
    assert written("def f(x):\n    y = x.view(-1)\n    y += x\n    return y\ny += 1") is not None
    assert apply("def f(x):\n    x *= 2\n    return x\n", [Edit(Action.OUT_OF_PLACE, at(2))]) is not None
    assert apply("for x in xs:\n    x *= 2\n    f(x)\n", [Edit(Action.OUT_OF_PLACE, at(2))]) is not None


def test_a_name_chooses_among_writes() -> None:
    assert written("x.add_(1); y.add_(1)", "y") == "x.add_(1); y = y.add(1)"


def test_a_copy_is_made_before_the_write() -> None:
    assert line("if a:\n\tx[0] = y  # set", Action.CLONE, "x") == "if a:\n\tx = x.clone()\n\tx[0] = y  # set"
    assert line("x[0] = y", Action.CLONE, "z") is None
    assert line("if a: x[0] = y", Action.CLONE, "x") is None
    assert line("x[0] = y", Action.CLONE) == "x = x.clone()\nx[0] = y"
    assert line("x += y", Action.CLONE) == "x = x.clone()\nx += y"
    assert line("f(x)", Action.CLONE) is None


def test_an_update_goes_under_no_grad() -> None:
    source = "class A:\n  def f(self):\n    # by hand\n    w.sub_(\n      g,  # slope\n\n    )  # done\n"
    wrapped = "    with torch.no_grad():\n      w.sub_(\n        g,  # slope\n\n      )  # done\n"
    head = "import torch\nclass A:\n  def f(self):\n    # by hand\n"
    assert apply("import torch\n" + source, [Edit(Action.NO_GRAD, at(5))]) == head + wrapped
    assert apply(source, [Edit(Action.NO_GRAD, at(4))]) is None
    aliased = apply("import torch as th\nw -= 1\n", [Edit(Action.NO_GRAD, at(2))])
    assert aliased == "import torch as th\nwith th.no_grad():\n    w -= 1\n"


def test_a_string_over_lines_is_not_indented() -> None:
    text = "import torch\nw -= f('''a\nb''')\n"
    assert apply(text, [Edit(Action.NO_GRAD, at(2))]) == (
        "import torch\nwith torch.no_grad():\n    w -= f('''a\nb''')\n"
    )


def test_edits_go_together_or_not_at_all() -> None:
    source = "a.backward()\nx += 1\nb.backward()\n"
    both = [Edit(Action.RETAIN_GRAPH, at(1)), Edit(Action.OUT_OF_PLACE, at(2))]
    assert apply(source, both) == "a.backward(retain_graph=True)\nx = x + 1\nb.backward()\n"
    assert apply(source, [*both, Edit(Action.RETAIN_GRAPH, at(2))]) is None
    assert apply(source, [Edit(Action.SUM, at(1), at(3)), both[0]]) is None
    assert apply("a.backward(\n", both[:1]) is None
