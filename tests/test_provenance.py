"""Arrays that remember their tensors are numpy arrays to everyone else."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import graphscope
from graphscope.tracer.provenance import Provenance, TracedArray


@pytest.fixture
def array():
    """An array that came out of tensor 7."""
    return Provenance(lambda array: None).left(np.arange(6, dtype="float32").reshape(2, 3) / 8, 7)


def sources(value) -> set[int]:
    return set(Provenance(lambda array: None).of_arrays(value))


def plain(array):
    return np.array(array.tolist(), dtype=array.dtype)


def test_it_is_an_ndarray_by_name_and_kind(array):
    assert type(array) is TracedArray and isinstance(array, np.ndarray)
    assert str(type(array)) == "<class 'numpy.ndarray'>"
    assert (type(array).__name__, type(array).__module__) == ("ndarray", "numpy")


@pytest.mark.parametrize(
    "show", [repr, str, "{}".format, lambda a: f"{a[0]!r}", lambda a: f"{a[0, 0]:.2f}", np.array2string]
)
def test_it_prints_as_one(show, array):
    assert show(array) == show(plain(array))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_as_one(protocol, array):
    assert pickle.dumps(array, protocol) == pickle.dumps(plain(array), protocol)
    assert type(pickle.loads(pickle.dumps(array, protocol))) is np.ndarray


@pytest.mark.parametrize("save", [np.save, np.savez, np.savetxt])
def test_it_saves_as_one(save, array):
    files = io.BytesIO(), io.BytesIO()
    save(files[0], array)
    save(files[1], plain(array))
    assert files[0].getvalue() == files[1].getvalue()


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, np.copy, lambda a: a.copy(), lambda a: a.astype("float64")])
def test_copies_are_equal_and_keep_the_source_or_are_plain(make, array):
    copied = make(array)
    assert np.array_equal(copied, array) and not np.shares_memory(copied, array)
    assert sources(copied) <= {7}


KEPT = {
    "slice": lambda a: a[1:],
    "mask": lambda a: a[a > 0.1],
    "transpose": lambda a: a.T,
    "ufunc": lambda a: np.tanh(a) + 1,
    "reflected": lambda a: 1 - a,
    "matmul": lambda a: a @ np.ones((3, 2)),
    "reduction": lambda a: a.mean(axis=0),
    "astype": lambda a: a.astype("float64"),
    "clip": lambda a: a.clip(0, 1),
    "concatenate": lambda a: np.concatenate([np.zeros((1, 3)), a]),
    "stack": lambda a: np.stack((a, a)),
    "where": lambda a: np.where(a > 0, a, 0),
    "split": lambda a: np.split(a, 2),
    "asarray": np.asarray,
    "ravel": lambda a: a.ravel(),
    "einsum": lambda a: np.einsum("ij->i", a),
    "in a list": lambda a: [a, 3],
}


@pytest.mark.parametrize("compute", KEPT.values(), ids=KEPT)
def test_what_is_computed_from_it_keeps_the_source(compute, array):
    assert sources(compute(array)) == {7}


@pytest.mark.parametrize("compute", [value for key, value in KEPT.items() if key != "in a list"])
def test_what_is_computed_from_it_is_as_numpy_computes_it(compute, array):
    ours, theirs = compute(array), compute(plain(array))
    assert np.array_equal(ours, theirs) and np.asarray(ours).dtype == np.asarray(theirs).dtype
    assert str(type(ours)) == str(type(theirs))


@pytest.mark.parametrize(
    "reduce",
    [np.sum, np.max, np.argmax, np.linalg.norm, lambda a: a.mean(), lambda a: a[0, 1], lambda a: a[0] @ a[1], any],
)
def test_scalars_are_of_numpys_types(reduce, array):
    if reduce is any:
        array = array[0]
    ours, theirs = reduce(array), reduce(plain(array))
    assert type(ours) is type(theirs) and ours == theirs


def test_out_receives_the_result_and_the_source(array):
    out = Provenance(lambda array: None).left(np.zeros((2, 3), "float32"), 8)
    assert np.add(array, 1, out=out) is out
    assert np.array_equal(out, plain(array) + 1) and 7 in sources(out)
    other = np.zeros((2, 3))
    assert np.add(array, 1, out=other) is other and type(other) is np.ndarray


def test_several_outputs_and_methods_of_ufuncs(array):
    fraction, whole = np.modf(array)
    assert sources([fraction]) == sources([whole]) == {7}
    assert np.array_equal(np.add.accumulate(array), plain(array).cumsum(0))
    assert np.array_equal(np.multiply.outer(array[0], array[0]), np.multiply.outer(plain(array)[0], plain(array)[0]))
    np.add.at(array, (0, 0), 5)
    assert array[0, 0] == 5


@pytest.mark.parametrize(
    "write",
    [
        lambda a: a.__setitem__(0, 1),
        lambda a: np.add(a, 1, out=a),
        lambda a: a.__iadd__(1),
        lambda a: np.add.at(a, (0, 0), 1),
        lambda a: a[0].__setitem__(1, 2),
        lambda a: a.fill(3),
        lambda a: a.sort(),
        lambda a: np.copyto(a, 1),
    ],
    ids=["item", "out", "augmented", "at", "of a view", "fill", "sort", "copyto"],
)
def test_write_is_told(write):
    told = []
    write(Provenance(told.append).left(np.ones((2, 3)), 7))
    assert told


def test_torch_takes_it(array):
    for take in (torch.from_numpy, torch.tensor, torch.as_tensor, torch.asarray):
        assert take(array).tolist() == array.tolist()
    assert torch.from_numpy(array).data_ptr() == array.ctypes.data


def test_numbers_are_found_by_value_and_only_fractions():
    provenance = Provenance(lambda array: None)
    provenance.left(0.3141, 1)
    provenance.left(2.0, 2)
    provenance.left([1.1, [2.2]], 3)
    assert provenance.of_numbers([0.3141, 2.0]) == {1}
    assert provenance.of_numbers([2.2]) == {3}
    assert provenance.of_values(torch.tensor([0.3141], dtype=torch.float64)) == {1}
    assert provenance.of_numbers([float("nan"), float("inf"), True, "0.3141"]) == frozenset()


def test_hop_is_seen_through_arithmetic_and_lists():
    x = torch.ones(2, requires_grad=True)
    with graphscope.watch() as report:
        array = (x * 3).detach().numpy()
        back = torch.from_numpy(np.concatenate([array, array]) / 2)
    entered = [call for call in report.trace.calls if call.enters]
    assert len(entered) == 1 and entered[0].returned and not entered[0].likely
    assert type(back) is torch.Tensor


def test_matplotlib_draws_it(array):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(array[0], array[1])
    axes.imshow(array)
    figure.savefig(io.BytesIO())


def test_scipy_takes_it(array):
    scipy = pytest.importorskip("scipy.ndimage")
    assert np.array_equal(scipy.gaussian_filter(array, 1), scipy.gaussian_filter(plain(array), 1))


def test_pandas_takes_it(array):
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(array).equals(pandas.DataFrame(plain(array)))


def test_pillow_takes_it(array):
    image = pytest.importorskip("PIL.Image")
    assert image.fromarray((array * 255).astype("uint8")).size == (3, 2)


HOPS = {
    "DLPack through numpy": "back = torch.from_numpy(np.from_dlpack(h.detach()) * 1)",
    "a list of numbers": "back = torch.Tensor([each for row in h.tolist() for each in row]).reshape(2, 3)",
    "a replay list": "kept = [r.detach().numpy() for r in h]; back = torch.stack([torch.from_numpy(r) for r in kept])",
    "a buffer that is filled again": "buffer[:] = h.detach().numpy(); back = view",
    "a file": "file = io.BytesIO(); torch.save(h.detach(), file); file.seek(0); back = torch.load(file)",
    "a pickle": "back = pickle.loads(pickle.dumps(h.detach()))",
}


@pytest.mark.parametrize("hop", HOPS.values(), ids=HOPS)
def test_hop_leads_back_to_its_tensor(hop, tmp_path, capfd):
    file = tmp_path / "hop.py"
    file.write_text(
        "import io, pickle\nimport numpy as np\nimport torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
        "net, head = nn.Linear(3, 3), nn.Linear(3, 1)\n"
        "opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)\n"
        "buffer = np.zeros((2, 3), dtype='float32')\nview = torch.from_numpy(buffer)\n"
        "for step in range(2):\n    h = net(torch.randn(2, 3))\n"
        f"    {hop}\n    loss = head(back).sum()\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
    )
    report = graphscope.inspect(file)
    assert report.trace.outcome.exception is None
    (found,) = [finding for finding in report.findings if finding.code == "GS201"]
    assert 12 in {place.location.line for place in found.places}


@pytest.mark.parametrize("arrays", [True, False])
def test_switch_leaves_arrays_as_numpy_makes_them(arrays):
    net, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    with graphscope.watch(arrays=arrays) as report:
        array = net(torch.rand(2, 3)).detach().numpy()
        head(torch.from_numpy(array)).sum().backward()
        opt.step()
    assert (type(array) is np.ndarray) is not arrays
    (found,) = [finding for finding in report.findings if finding.code == "GS201"]
    assert (found.confidence.value == "certain") is arrays
