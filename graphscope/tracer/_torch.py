"""Private parts of torch that the tracer reads, one function each, with the reason.

All were seen on torch 2.13; a test in ``tests/test_torch_facts.py`` holds each of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor

# The next autograd node made by this thread gets this number: read before and after a call, it
# tells which nodes the call made without holding any of them.
next_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr

_EXPECTED = re.compile(r"is at version (\d+); expected version (\d+)")
_OUTDATED_VIEW = "its base or another view of its base has been modified inplace"
_FAR = 1 << 30  # a version that no program reaches
_MOST_TRIED = 64


@functools.lru_cache(maxsize=512)
def raw_saved_names(kind: type) -> tuple[str, ...]:
    """The attributes that give what nodes of this type saved, without running unpack hooks."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def is_python_function(kind: type) -> bool:
    """Whether nodes of this type come from a ``torch.autograd.Function`` written in Python."""
    return issubclass(kind, torch._C._FunctionBase)


def custom_backward(frame: FrameType | None) -> tuple[Any, tuple[Any, ...]] | None:
    """The custom Function whose backward called this frame: its node, and the gradients it was given."""
    entry = torch.autograd.function.BackwardCFunction.apply.__code__
    while frame is not None and frame.f_code is not entry:
        frame = frame.f_back
    if frame is None:
        return None
    arguments = frame.f_locals  # this frame holds them anyway until it returns
    return arguments["self"], tuple(arguments["args"])


def accumulator(leaf: Tensor) -> Any:
    """The AccumulateGrad of a leaf, also of a nested one, for which ``get_gradient_edge`` raises."""
    with torch.enable_grad():
        return torch.ops.aten.alias(leaf).grad_fn.next_functions[0][0]


def version(tensor: Tensor) -> int:
    """The tensor's version counter, 0 for inference tensors, which have none."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


def is_leaf(tensor: Tensor) -> bool:
    """Whether a tensor is a leaf; one of several views whose base was modified in place is none, and refuses to say."""
    try:
        return tensor.is_leaf
    except RuntimeError:  # 'Output 0 of Unbind is a view and its base ... has been modified inplace'
        return False


def expected_version(node: Any, raw_name: str, data: Tensor, one_of_many: Any = None) -> int | None:
    """The version that a saved tensor had when it was saved; ``one_of_many`` is its SavedTensor in a list of them.

    torch has no accessor for it; unpacking checks it and names both versions when they differ. Never
    to be called where an unpack hook is set.
    """
    name = raw_name.replace("_raw_saved_", "_saved_", 1) if raw_name != "_raw_saved_tensors" else "saved_tensors"

    def unpack() -> Any:
        return getattr(node, name)

    if one_of_many is None:
        return _expected(unpack, data)
    found = _expected(one_of_many.unpack, data)
    if found is not None:
        return found
    others = [each.data for each in getattr(node, raw_name) if isinstance(each.data, Tensor) and each.data is not data]
    return _expected_in_list(unpack, data, others)  # what a node itself gave it only unpacks with all the others


def _expected_in_list(unpack: Callable[[], Any], data: Tensor, others: list[Tensor]) -> int | None:
    """The version expected of one of several tensors, the first outdated one of which torch names by its version."""
    before = [(each, each._version) for each in (data, *others)]
    try:
        _set_version(data, _FAR)
        for _ in before:
            try:
                unpack()
                return None
            except RuntimeError as error:
                found = _EXPECTED.search(str(error))
            if found is None or int(found[1]) == _FAR:
                return found and int(found[2])
            for each in others:
                if each._version == int(found[1]):
                    _set_version(each, int(found[2]))
        return None
    finally:
        for each, version in before:
            _set_version(each, version)


def _expected(unpack: Callable[[], Any], data: Tensor) -> int | None:
    now = data._version
    try:
        unpack()
    except RuntimeError as error:
        if _OUTDATED_VIEW in str(error):
            return _accepted(unpack, data, now)
        found = _EXPECTED.search(str(error))
        return int(found[2]) if found and int(found[1]) == now else None
    return now


def _accepted(unpack: Callable[[], Any], data: Tensor, now: int) -> int | None:
    """The version at which a view of ``chunk`` or ``unbind`` is given: at any other its grad_fn is refused first."""
    try:
        for version in range(now - 1, max(-1, now - _MOST_TRIED), -1):
            _set_version(data, version)
            try:
                unpack()
                return version
            except RuntimeError:
                continue
    finally:
        _set_version(data, now)
    return None


def share_counter(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors on the same memory have one version counter, as views do and ``.data`` does not.

    torch does not tell: the one is moved for a moment, to see whether the other moves along.
    """
    if version(one) != version(other):
        return False
    before = one._version
    try:
        _set_version(one, before + _FAR)
        return other._version == before + _FAR
    except (AttributeError, RuntimeError, TypeError):  # inference tensors have no counter
        return False
    finally:
        with contextlib.suppress(AttributeError, RuntimeError, TypeError):
            _set_version(one, before)


def _set_version(tensor: Tensor, version: int) -> None:
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def checkpoint_arguments(unpack_hook: Any) -> list[tuple[Tensor, int | None]]:
    """The tensors that a non-reentrant checkpoint will compute from again, with the versions they must have then.

    Its unpack hook closes over a frame with ``saved_args``: SavedTensors, which compare versions when unpacked.
    """
    found = []
    for cell in getattr(unpack_hook, "__closure__", None) or ():
        try:
            arguments = getattr(cell.cell_contents, "saved_args", ())
        except ValueError:  # an empty cell
            continue
        for saved in arguments if isinstance(arguments, list) else ():
            data = getattr(saved, "data", None)
            if type(saved).__name__ == "SavedTensor" and isinstance(data, Tensor) and saved.unpack_hook is None:
                found.append((data, _expected(saved.unpack, data) if version(data) else 0))
    return found


def was_freed(node: Any, raw_name: str) -> bool:
    """Whether an empty saved tensor was released by a backward, rather than never needed.

    Unpacking an empty one without hooks runs nothing: it gives None, or raises once it was freed.
    """
    try:
        getattr(node, raw_name.replace("_raw_saved_", "_saved_", 1))
    except RuntimeError:
        return True
    return False


def storage_start(tensor: Tensor) -> int:
    """The address where the tensor's storage begins, 0 where it has no memory of its own (meta, sparse)."""
    try:
        return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.itemsize
    except (RuntimeError, NotImplementedError):
        return 0


def shape(tensor: Tensor) -> tuple[int, ...]:
    """The tensor's shape; -1 for sizes that vary (nested), () where there is none yet (lazy parameters)."""
    if tensor.is_nested:
        return (-1,) * tensor.dim()
    try:
        return tuple(tensor.shape)
    except (RuntimeError, ValueError):
        return ()


def extent(tensor: Tensor) -> tuple[tuple[int, ...], int, int]:
    """A tensor's shape, its size in bytes, and where in its storage it begins, in bytes."""
    try:
        return tensor.shape, tensor.nbytes, int(tensor.storage_offset()) * tensor.itemsize
    except (RuntimeError, NotImplementedError):
        pass
    try:  # nested tensors have no sizes
        return (-1,), tensor.untyped_storage().nbytes(), 0
    except (RuntimeError, NotImplementedError):  # sparse ones have no storage
        return tuple(tensor.shape), 0, 0


def storage_bytes(tensor: Tensor) -> int:
    """The size of the tensor's storage, 0 where it has none."""
    try:
        return tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return 0


def storage_watch(tensor: Tensor) -> Callable[[], bool]:
    """A function that tells whether the tensor's storage is gone, without keeping it alive."""
    from torch.multiprocessing.reductions import StorageWeakRef

    expired: Callable[[], bool] = StorageWeakRef(tensor.untyped_storage()).expired  # type: ignore[no-untyped-call]
    return expired


def first_numbers(tensor: Tensor, most: int) -> list[float]:
    """The first numbers of a tensor, none where that takes more than a look at plain memory.

    They are read without an operator, which profilers and the modes of the user would see.
    """
    kind = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}.get(tensor.dtype)
    if kind is None or tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.is_contiguous():
        return []
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # a tensor of torch.func, or of the compiler's
        return []
    return list((kind * min(most, tensor.numel())).from_address(address)) if address else []


def without_modes() -> contextlib.AbstractContextManager[object]:
    """Run our own torch calls unseen by the modes and tensor subclasses of the user, and by our mode."""
    if torch._C._len_torch_dispatch_stack():
        return _without_dispatch_modes()
    return torch._C.DisableTorchFunction()


@contextlib.contextmanager
def _without_dispatch_modes() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        yield


def is_being_made(scheduler: Any) -> bool:
    """Whether the constructor of a learning rate scheduler is setting the first rates."""
    return bool(getattr(scheduler, "_is_initial", False))


def skips_first_rates(scheduler: Any) -> bool:
    """Whether a scheduler takes its first step before its optimizer does, which torch warns of, too."""
    return getattr(scheduler, "_step_count", 0) == 2 and not getattr(scheduler.optimizer, "_opt_called", False)


def is_profiling() -> bool:
    """Whether a profiler is on, which would show the operators that we call."""
    return bool(torch._C._autograd._profiler_enabled())


def is_in_backward() -> bool:
    """Whether the engine runs in this thread, whose formulas then make only what that run asks for."""
    return torch._C._current_graph_task_id() != -1


def without_autocast() -> contextlib.AbstractContextManager[object]:
    """Run our own torch calls in the dtypes of their inputs."""
    return torch._C._DisableAutocast()


def is_plain_formula(node: Any) -> bool:
    """Whether to call a node runs torch's own formula alone: no code, no hook and no tensor subclass of the program.

    Hooks of nodes and of tensors are the engine's to call; a node that is called runs none of them.
    """
    kind = type(node)
    if is_python_function(kind) or kind.__name__ in ("CppFunction", "CopySlices"):  # which hold a function unseen
        return False
    for name in raw_saved_names(kind):  # type: ignore[arg-type]  # types are hashable
        try:
            raw = getattr(node, name)
        except RuntimeError:  # freed
            return False
        for saved in raw if isinstance(raw, tuple) else (raw,):
            if saved.unpack_hook is not None:
                return False
            if isinstance(saved.data, Tensor) and is_dispatched_in_python(saved.data):
                return False
    return True


def is_softmax_of_one(node: Any) -> bool:
    """Whether a node is a softmax, or its logarithm, over a dimension of size one: constant whatever it is given."""
    if not node.name().startswith(("SoftmaxBackward", "LogSoftmaxBackward")):
        return False
    shape: torch.Size = node._input_metadata[0].shape
    dim: int = node._saved_dim  # a negative one comes as an unsigned number
    return not shape or shape[dim - 2**64 if dim >= 2**63 else dim] == 1


def push_mode(mode: Any) -> None:
    """Make a TorchFunctionMode the innermost one."""
    torch.overrides._push_mode(mode)  # type: ignore[no-untyped-call]


def pop_mode_if_innermost(mode: Any) -> bool:
    """Take the mode off the stack if it is the innermost one; whether it was."""
    depth = torch._C._len_torch_function_stack()
    if depth and torch._C._get_function_stack_at(depth - 1) is mode:
        torch.overrides._pop_mode()  # type: ignore[no-untyped-call]
        return True
    return False


def modes() -> list[Any]:
    """The TorchFunctionModes on the stack of this thread, outermost first."""
    return [torch._C._get_function_stack_at(each) for each in range(torch._C._len_torch_function_stack())]


def is_symbolic() -> bool:
    """Whether torch.jit.trace or torch.export reads what runs now, so that sizes are no numbers."""
    if torch._C._is_tracing():
        return True
    modes = torch._C._len_torch_dispatch_stack()
    return bool(modes) and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def is_dispatched_in_python(tensor: Tensor) -> bool:
    """Whether the program sees each operator on this tensor, those of ours too."""
    return type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def survive_deep_graph(nodes: int) -> bool:
    """Make room for the death of a traced graph of that many nodes; whether there is enough.

    A node keeps its Python wrapper once one was made, and wrapped nodes die recursively in C: some
    40,000 in a row overflow an 8 MiB stack when the user's loss goes away. On Linux the main thread's
    stack grows up to the soft limit as it is when it grows, so raising the limit is enough.
    """
    if nodes < 10_000:
        return True
    try:
        import resource
    except ImportError:  # Windows
        return False
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = 64 * 2**20 + nodes * 1024
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return True
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    return sys.platform == "linux" and resource.getrlimit(resource.RLIMIT_STACK)[0] >= 64 * 2**20 + nodes * 512
