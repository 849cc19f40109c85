"""Numpy arrays that came out of tensors, in everything that takes an array."""

import copy
import io
import json
import pickle

import numpy as np
import torch
from _said import end

x = torch.arange(6.0).reshape(2, 3) / 7
a = x.numpy()
print(repr(a), str(a), f"{a}", type(a), type(a).__name__, type(a).__module__, isinstance(a, np.ndarray), a.flags)
for value in (a.sum(), a[0, 1], a.mean(0), a @ a.T, a > 0.2, a.argmax(), a.tolist(), a.max(axis=1, keepdims=True), a.T):
    print(type(value), repr(value))
print(repr(np.concatenate([a, a])), repr(np.stack([a, 2 * a])), repr(np.where(a > 0.3, a, 0)), np.array(a).base)
print(
    repr(np.add(a, 1, out=a)),
    x,
    np.add.reduce(a),
    np.multiply.outer(a[0], a[0]),
    np.linalg.norm(a),
    np.einsum("ij,ij", a, a),
)
print(
    type(np.asarray(a)), type(np.array(a)), type(a.astype("float64")), type(a.copy()), type(np.ascontiguousarray(a.T))
)
print(
    type(copy.copy(a)),
    type(copy.deepcopy(a)),
    type(pickle.loads(pickle.dumps(a))),
    pickle.dumps(a) == pickle.dumps(np.array(a)),
)
file = io.BytesIO()
np.save(file, a)
np.savez(file, a=a)
np.savetxt(file, a)
print(len(file.getvalue()), json.dumps(a.tolist()), json.dumps(float(a[0, 0])), hash(a.tobytes()) is not None)
try:
    json.dumps(a)
except TypeError as error:
    print(error)
try:
    np.ones(3) + a @ np.ones((2, 2))
except ValueError as error:
    print(error)
a[0] = 9
a += 1
a[a > 9] = 0
np.copyto(a, a * 2)
a.sort()
print(x, torch.from_numpy(a).data_ptr() == x.data_ptr(), torch.tensor(a), torch.as_tensor(a), torch.Tensor(a))
structured = np.zeros(2, dtype=[("u", float), ("v", int)])
structured["u"] = a[:, 0]
print(
    structured,
    np.ma.masked_array(a, a > 5),
    np.matrix(a),
    list(map(type, np.histogram(a))),
    np.random.default_rng(a.astype(int)[0]).random(),
)
print(
    np.vectorize(lambda value: value + 1)(a),
    [type(each) for each in a],
    type(next(a.flat)),
    sorted(a[0]),
    max(a[0]),
    dict(zip(a[0], a[1], strict=True)),
)
print(
    type(x.detach().cpu().numpy() / 2),
    type(x[0, 0].numpy()),
    x[0, 0].numpy().shape,
    x[0, 0].item(),
    memoryview(a).shape,
    bytes(a[0])[:4],
)
print(
    np.array2string(a),
    np.array_equal(a, a),
    np.allclose(a, a),
    np.isscalar(a[0, 0]),
    np.may_share_memory(a, a.T),
    a.__array_interface__["shape"],
)
print(
    type(np.load(io.BytesIO(file.getvalue()))),
    np.random.rand(2),
    type(a.view(np.int32)),
    type(a.reshape(-1)),
    type(a.squeeze()),
    a.dtype,
)
assert type(a) is np.ndarray or isinstance(a, np.ndarray)
end()
