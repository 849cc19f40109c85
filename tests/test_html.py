"""The HTML report in a real browser, and what it is made of."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from reports import HOSTILE, Sketch, at, hostile, layers, planned, two_losses

from graphscope.events import Backward
from graphscope.findings import Cleared
from graphscope.graph import Graph, Root
from graphscope.renderers._contents import contents
from graphscope.renderers._tree import MOST, Box, tree
from graphscope.report import Report, render
from graphscope.trace import Trace

SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        problem = "no Chromium on this machine: apt install chromium"
        pytest.fail(problem) if "GRAPHSCOPE_BROWSER" in os.environ else pytest.skip(problem)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


class Desk:
    """Opens reports, and remembers whatever a page complained of or asked for."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, report: Report, *, width: int = 1280, height: int = 800, dark: bool = False) -> Page:
        file = self.folder / "report.html"
        file.write_text(str(render(report, "html")), encoding="utf-8")
        page = self.browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        return page


@pytest.fixture
def desk(browser: Browser, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(browser, tmp_path)
    yield desk
    for context in browser.contexts:
        context.close()
    assert desk.complaints == []
    assert set(desk.requests) <= {(tmp_path / "report.html").as_uri()}


def marked_lines(page: Page) -> list[int]:
    return [int(line.get_attribute("data-line") or 0) for line in page.locator(".line.chosen").all()]


def search(page: Page, text: str) -> str:
    """Search, take the first result, and give the heading of the details then shown."""
    page.keyboard.press("/")
    page.locator("#search").fill(text)
    page.keyboard.press("Enter")
    return page.inner_text("#details h2")


# ---- findings, source, graph


def test_opens_with_the_first_finding_beside_its_lines_and_nodes(desk: Desk) -> None:
    page = desk.open(two_losses())
    assert page.inner_text("#summary").startswith("1 error")
    assert page.locator("article.chosen").inner_text().count("GS101") == 1
    assert marked_lines(page) == [11, 16, 17, 18, 19]
    assert "fails: needs them again here" in page.inner_text("#lines")
    assert page.locator("#details li").all_inner_texts() == [
        "Addmm (32, 16) net1.0",
        "Relu (32, 16) net1.1",
        "Addmm (32, 4) net1.2",
    ]
    assert page.locator("#event").inner_text().startswith("2 of 4")  # the moment before the call that fails


def test_click_on_a_finding_shows_its_lines(desk: Desk) -> None:
    page = desk.open(two_losses())
    page.click("#card-1 button")
    assert marked_lines(page) == [13, 14]
    assert page.get_attribute("#card-1 button", "aria-expanded") == "true"
    assert not page.locator("#finding-0").is_visible()
    assert "stay in torch: target = h.clone()" in page.inner_text("#finding-1")
    assert "The gradient stops at numpy hop train.py:13" in page.inner_text("#details")


def test_click_on_a_place_scrolls_the_source_to_it(desk: Desk) -> None:
    page = desk.open(two_losses())
    page.click("#finding-0 .places button >> nth=2")
    assert page.locator(".line[data-line='11']").is_visible()
    assert "selected" in (page.get_attribute(".line[data-line='11']", "class") or "")


def test_click_on_a_node_tells_all_about_it(desk: Desk) -> None:
    page = desk.open(two_losses())
    search(page, "TanhBackward0")  # brings it into the middle
    page.keyboard.press("Escape")
    assert page.inner_text("#details h2") == "The graph"
    middle = page.locator("#canvas").bounding_box()
    assert middle is not None
    page.mouse.click(middle["x"] + middle["width"] / 2, middle["y"] + middle["height"] / 2)
    told = page.inner_text("#details")
    for fact in ("TanhBackward0", "(32, 16)", "train.py:14", "net2", "2.0 KiB", "loss_b", "gradient comes from"):
        assert fact in told
    assert page.locator(".line.selected").get_attribute("data-line") == "14"


def test_click_on_a_line_shows_the_nodes_made_there(desk: Desk) -> None:
    page = desk.open(two_losses())
    page.click(".line[data-line='12'] button")
    assert page.locator("#details li").all_inner_texts() == ["Pow (32, 4)", "Mean ()"]


def test_search_finds_names_operators_lines_losses_and_modules_or_says_that_there_is_nothing(desk: Desk) -> None:
    page = desk.open(two_losses())
    for name in ("net1.2.bias", "TanhBackward0", "train.py:12", "loss_b", "net2"):
        assert search(page, name.lower()) == name
    page.fill("#search", "no such thing")
    assert page.inner_text("#results") == "nothing found"


def test_modules_open_and_close_in_outline_and_drawing_alike(desk: Desk) -> None:
    page = desk.open(layers(12))
    page.click("#tab-outline")
    page.click("#collapse")
    top = page.locator("[role=treeitem][aria-level='1'][aria-expanded]").first
    assert top.get_attribute("aria-expanded") == "false"
    top.focus()
    page.keyboard.press("ArrowRight")
    assert top.get_attribute("aria-expanded") == "true"
    assert page.inner_text("#live").endswith("nodes")
    page.click("#expand")
    assert page.locator("[role=treeitem][aria-expanded=false]").count() == 0
    assert page.inner_text("#live") == "all modules are open"


def test_path_is_shown_or_where_it_ends(desk: Desk) -> None:
    page = desk.open(two_losses())
    page.select_option("#from", label="loss_b")
    page.select_option("#to", label="net1.0.weight")
    page.click("button#way")
    assert page.inner_text("#details h2") == "From loss_b to net1.0.weight"
    assert page.locator("#details li").first.inner_text() == "Mean ()"
    page.select_option("#from", label="loss_a")
    page.select_option("#to", label="net2.0.weight")
    page.click("button#way")
    assert page.inner_text("#details h2") == "loss_a does not reach net2.0.weight"


# ---- time, memory, reach, examined


def test_scrubber_tells_what_is_alive_freed_and_by_what(desk: Desk) -> None:
    page = desk.open(two_losses())
    search(page, "ReluBackward0")
    page.focus("#scrubber")
    page.keyboard.press("Home")
    assert page.get_attribute("#scrubber", "aria-valuetext") == "before the first event"
    assert "buffers alive" in page.inner_text("#details")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "loss_a.backward(), frees 4 nodes" in (page.get_attribute("#scrubber", "aria-valuetext") or "")
    assert "freed by loss_a.backward()" in page.inner_text("#details")
    page.keyboard.press("End")
    assert page.inner_text("#event").startswith("4 of 4 · opt2.step()")
    page.click("#whole")
    assert page.get_attribute("#whole", "aria-pressed") == "true"


def test_memory_is_counted_by_module_and_line_at_the_moment_shown(desk: Desk) -> None:
    page = desk.open(two_losses())
    page.click("#tab-memory")
    kept = sum(held.bytes for held in two_losses().memory.held if held.kind == "activation")
    page.press("#scrubber", "Home")
    assert page.inner_text("#memory h2") == f"{kept / 1024:.1f} KiB of activations kept for backward"
    assert "net1.2" in page.inner_text("#memory table >> nth=0")
    page.press("#scrubber", "End")
    assert "net1.2" not in page.inner_text("#memory")


def test_reach_is_a_table_of_losses_and_parameters_that_leads_to_the_path(desk: Desk) -> None:
    page = desk.open(two_losses())
    page.click("#tab-reach")
    rows = [row.inner_text().split("\t") for row in page.locator("#reach tbody tr").all()]
    assert ["net1.0", "opt1", "✓ all 2", "✓ all 2"] in rows
    assert ["net2.2", "opt2", "✗ none of 2", "✓ all 2"] in rows
    page.click("#reach button >> text=net2.2")
    assert page.locator("#reach th.indent").all_inner_texts() == ["net2.2.bias", "net2.2.weight"]
    page.click("#reach tr:has-text('net2.2.bias') td.all button")
    assert page.inner_text("#details h2") == "From loss_b to net2.2.bias"
    assert page.locator("#canvas").is_visible()


def test_parameters_in_no_graph_are_shown_as_reached_by_nothing(desk: Desk) -> None:
    sketch = Sketch()
    weight = sketch.leaf("net.weight", (4,))
    lost = sketch.tensor("lost.weight", (4,), is_leaf=True, is_parameter=True)
    loss = sketch.op("SumBackward0", (), weight)
    optimizer = replace(two_losses().trace.optimizers[0], groups=((0, lost),))
    graph = sketch.graph(Root("loss", loss, sketch.tensor("loss")))
    page = desk.open(Report(Trace(graph=graph, optimizers=(optimizer,))))
    page.click("#tab-reach")
    assert "lost.weight\topt1\t✗" in page.inner_text("#reach tbody >> nth=1")
    assert search(page, "lost.weight") == "lost.weight"


def test_what_was_not_examined_and_what_was_judged_right_are_listed(desk: Desk) -> None:
    cleared = Cleared("GS204", "`frozen` is meant to be frozen", at(3))
    page = desk.open(replace(two_losses(), cleared=(cleared,)))
    page.click("#tab-examined")
    told = page.inner_text("#examined")
    assert "2 backward calls in other threads" in told
    assert "frozen is meant to be frozen GS204" in told


# ---- keyboard, sizes, colours, print


def test_keyboard_alone_reaches_everything(desk: Desk) -> None:
    page = desk.open(two_losses())
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"search", "theme", "head", "tab-lines", "lines", "tab-graph", "fit", "from", "way", "canvas"} <= reached
    assert "scrubber" in reached
    page.keyboard.press("n")
    assert page.get_attribute("#card-1 button", "aria-expanded") == "true"
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("ArrowDown")
    seen = [page.inner_text("#details h2")]
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        seen.append(page.inner_text("#details h2"))
    assert seen == ["loss_a", "MeanBackward0", "PowBackward0", "net1"]
    page.keyboard.press("Enter")
    assert page.inner_text("#live").startswith("net1: closed")
    page.keyboard.press("]")
    page.keyboard.press("]")
    assert page.inner_text("#event").startswith("1 of 4")
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    page.focus("#tab-graph")
    page.keyboard.press("ArrowRight")
    assert page.locator("#memory").is_visible()


def brightness(page: Page) -> int:
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(", ")))


def test_dark_when_the_system_is_or_the_button_says_so(desk: Desk) -> None:
    page = desk.open(two_losses(), dark=True)
    assert brightness(page) < 150
    page.click("#theme")
    assert brightness(page) > 600
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    assert brightness(page) < 150


def test_phone_width_shows_all_without_scrolling_sideways(desk: Desk) -> None:
    page = desk.open(two_losses(), width=390, height=800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for part in ("#findings", "#lines", "#canvas", "#details", "#scrubber"):
        assert (page.locator(part).bounding_box() or {"width": 0})["width"] > 300
    page.click("nav >> text=Graph")
    assert page.locator("#canvas").bounding_box()["y"] < 400  # type: ignore[index]


def test_prints_on_light_paper_and_is_as_before_then(desk: Desk) -> None:
    page = desk.open(two_losses(), dark=True)
    page.evaluate("addEventListener('beforeprint', () => (window.seen = document.querySelector('#finding-1').hidden))")
    assert page.pdf().startswith(b"%PDF")
    assert page.evaluate("window.seen") is False
    assert brightness(page) < 150
    assert not page.locator("#finding-1").is_visible()


@pytest.mark.parametrize("dark, width", [(False, 1280), (True, 390)])
def test_axe_finds_no_serious_fault(desk: Desk, dark: bool, width: int) -> None:
    page = desk.open(two_losses(), dark=dark, width=width)
    for tab in ("outline", "memory", "reach", "examined", "graph"):
        page.click(f"#tab-{tab}")
    page.evaluate("for (const panel of document.querySelectorAll('[role=tabpanel]')) panel.hidden = false")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")] == []


# ---- what came from the program is text


def test_hostile_names_are_shown_as_text_in_every_part(desk: Desk) -> None:
    report = hostile()
    report = replace(
        report,
        cleared=(Cleared("GS999", HOSTILE, at(1, file=HOSTILE)),),
        suppressed=report.findings,
        trace=replace(report.trace, outcome=replace(report.trace.outcome, exception=HOSTILE)),
    )
    page = desk.open(report)
    page.press("#scrubber", "End")
    shown = " ".join(SHOWN.split())
    assert shown in page.title()
    for part in ("#findings", "#lines", "header", "#event", "#file", "#from", "#to"):
        assert shown in " ".join(page.locator(part).text_content().split()), part  # type: ignore[union-attr]
    page.click("#tab-outline")
    for tab in ("memory", "reach", "examined"):
        page.click(f"#tab-{tab}")
        assert shown in " ".join(page.inner_text(f"#{tab}").split()), tab
    for place in range(5):  # loss, parameter, modules, line, node
        page.fill("#search", "<b>")
        page.click(f"#result-{place}")
        assert shown in " ".join(page.inner_text("#details").split()), place
    assert page.locator("b, img, object, iframe").count() == 0


def test_script_in_a_name_neither_ends_the_data_nor_runs(desk: Desk) -> None:
    bad = "</script><script>document.title='ran'</script>{{script}}<!--"
    report = two_losses()
    finding = replace(report.findings[0], message=bad)
    page = desk.open(Report(replace(report.trace, script=bad, sources={"train.py": bad}), (finding,)))
    assert page.title() == f"graphscope: {bad}"
    assert bad in page.inner_text("#findings")
    assert page.locator("script").count() == 2


def test_page_forbids_all_scripts_but_its_own_and_all_requests() -> None:
    page = str(render(two_losses(), "html"))
    policy = page.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "innerHTML" not in page
    assert page.replace("http-equiv", "").count("http") == 0


# ---- what the tables say


def test_of_several_calls_on_one_line_the_one_that_fails_is_shown_as_failing() -> None:
    report = two_losses()
    here = at(16)
    events = tuple(
        replace(event, location=here, error=None) if isinstance(event, Backward) else event
        for event in report.trace.events
    )
    places = (replace(report.findings[0].places[0], location=here), *report.findings[0].places[1:])
    tables = contents(Report(replace(report.trace, events=events), (replace(report.findings[0], places=places),)))
    assert [(loss[0], loss[5]) for loss in tables["losses"]] == [("loss_a", 0), ("loss_b", 1)]
    assert tables["findings"][0]["event"] == 2


def test_finding_that_names_no_node_leaves_the_time_alone() -> None:
    report = two_losses()
    tables = contents(Report(report.trace, (replace(report.findings[0], nodes=()),)))
    assert tables["findings"][0]["event"] == -1


# ---- scopes


def boxes(box: Box) -> Iterator[Box]:
    yield box
    for child in box.children:
        if isinstance(child, Box):
            yield from boxes(child)


def inside(box: Box) -> set[int]:
    return {child for each in boxes(box) for child in each.children if isinstance(child, int)}


def assert_no_gradient_returns(graph: Graph) -> None:
    """No way of the gradient leaves a box and comes back to it."""
    for box in boxes(tree(graph, graph.modules)):
        nodes = inside(box)
        beyond = {target for node in nodes for target, _ in graph.targets[node]} - nodes
        assert not graph.reachable(beyond) & nodes, box.name


def test_module_used_twice_is_two_scopes_so_that_no_gradient_returns() -> None:
    sketch = Sketch()
    below = sketch.leaf("x", (4,), parameter=False)
    for module in ("net.first", "net.act", "net.second", "net.act", "net.act"):
        for op in ("MulBackward0", "ReluBackward0"):
            below = sketch.op(op, (4,), below, module=module)
    graph = sketch.graph(Root("loss", below, sketch.tensor("loss")))
    graph = replace(graph, sequences=[id if id not in graph.leaf_tensors else -1 for id in range(len(graph))])
    assert [(box.path, box.call) for box in boxes(tree(graph, graph.modules)) if box.path == "net.act"] == [
        ("net.act", 1),
        ("net.act", 2),
    ]
    assert_no_gradient_returns(graph)


def test_every_operator_is_in_one_box_and_no_box_has_too_many_children() -> None:
    graph = layers(5000, modules=False).trace.graph
    found = list(boxes(tree(graph, graph.modules)))
    assert inside(found[0]) == {id for id in range(len(graph)) if id not in graph.leaf_tensors}
    assert max(len(box.children) for box in found) <= MOST


def test_passes_of_a_loop_are_boxes_those_alike_in_one() -> None:
    sketch = Sketch()
    weight = sketch.leaf("weight", (4,))
    roots = []
    for number in range(6):
        loss = sketch.op("SumBackward0", (), sketch.op("MulBackward0", (4,), weight))
        roots.append(Root("loss", loss, sketch.tensor(f"loss{number}")))
    top = tree(sketch.graph(*roots), {})
    assert [child.name for child in top.children if isinstance(child, Box)] == ["pass 1", "5 more, alike"]


# ---- layout

OVERLAPS = """() => {
  LAYOUT
  let seed = 7;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  const faults = [];
  for (const size of [1, 10, 80, 300]) {
    const items = Array.from({ length: size }, () => ({ w: 30 + random(200), h: 20 + random(300) }));
    const edges = [];
    for (let b = 1; b < size; b += 1) {
      for (let times = random(3); times >= 0; times -= 1) edges.push([Math.max(0, b - 1 - random(40)), b]);
    }
    const { w, h, chips } = arrange(items, edges, () => ({ w: 80, h: 18 }));
    const boxes = [...items, ...chips];
    boxes.forEach((a, place) => {
      if (a.x - a.w / 2 < -0.01 || a.x + a.w / 2 > w + 0.01 || a.y - a.h / 2 < -0.01 || a.y + a.h / 2 > h + 0.01) {
        faults.push(`${size}: ${place} is outside`);
      }
      for (const b of boxes.slice(place + 1)) {
        const [dx, dy] = [Math.abs(a.x - b.x), Math.abs(a.y - b.y)];
        if (dx < (a.w + b.w) / 2 && dy < (a.h + b.h) / 2) faults.push(`${size}: overlap`);
      }
    });
    for (const [a, b] of edges) {
      if (items[a].y + items[a].h / 2 >= items[b].y - items[b].h / 2) faults.push(`${size}: upward`);
    }
  }
  return faults;
}"""


def test_boxes_do_not_overlap_and_gradients_go_down_at_any_size(browser: Browser) -> None:
    script = (files("graphscope.renderers") / "report" / "layout.js").read_text(encoding="utf-8")
    page = browser.new_page()
    assert page.evaluate(OVERLAPS.replace("LAYOUT", script)) == []
    page.close()


# ---- size


PAN = """(frames) => new Promise((done) => {
  const canvas = document.getElementById("canvas");
  canvas.setPointerCapture = () => {};
  const { left, top } = canvas.getBoundingClientRect();
  const point = (kind, step) => {
    const at = { pointerId: 1, clientX: left + 200 + step, clientY: top + 100 + 3 * step };
    canvas.dispatchEvent(new PointerEvent(kind, at));
  };
  point("pointerdown", 0);
  let step = 0;
  const frame = () => {
    step += 1;
    point("pointermove", step);
    if (step < frames) return requestAnimationFrame(frame);
    point("pointercancel", step);
    requestAnimationFrame(done);
  };
  requestAnimationFrame(frame);
})"""


def test_ten_thousand_nodes_open_within_three_seconds_and_pan_at_thirty_frames_a_second(desk: Desk) -> None:
    """In seconds of the processor, so that other programs on this machine do not count."""
    report = layers(3334)
    assert len(report.trace.graph) > 10_000
    page = desk.open(two_losses())
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        return next(
            metric["value"]
            for metric in session.send("Performance.getMetrics")["metrics"]
            if metric["name"] == "TaskDuration"
        )

    (desk.folder / "report.html").write_text(str(render(report, "html")), encoding="utf-8")
    before = spent()
    page.reload()
    page.evaluate("new Promise(requestAnimationFrame)")
    opened = spent() - before
    assert 0.1 < opened < 3
    page.keyboard.press("e")
    assert page.inner_text("#live") == "all modules are open"
    page.keyboard.press("f")  # all of it is in sight
    before = spent()
    page.evaluate(PAN, 30)
    assert 0.0001 < (spent() - before) / 30 < 1 / 30


def test_tables_hold_each_name_once() -> None:
    tables = contents(layers(1000))
    assert len(tables["words"]) < 1100 * 3
    assert len(json.dumps(tables)) < 130 * len(tables["targets"])


def test_assumed_calls_are_told_as_such(desk: Desk) -> None:
    page = desk.open(planned())
    assert "would go wrong" in page.inner_text("#findings")
    assert isinstance(planned().trace.events[0], Backward)
