"""Rules of CUDA's kernels and NCCL: what they refuse and the CPU takes. Each rule names its source in PyTorch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

# Devices


CROSSING = frozenset({"_to_copy", "copy_", "_copy_from", "record_stream", "is_pinned", "_pin_memory", "set_", "equal"})
"""Operators that check devices themselves or may join two of them."""
INDEXING = frozenset({"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"})
SCALAR_TAKING = frozenset({"where", "masked_fill", "masked_fill_", "fill", "fill_", "_fused_adamw_", "_fused_adam_"})
"""Operators that, without being pointwise, take a 0-dim CPU tensor for a number."""


def check_same_device(func: Any, tensors: Sequence[torch.Tensor]) -> None:
    """One operator, one device; a 0-dim CPU tensor counts as a number where TensorIterator computes.

    TensorIteratorBase::compute_types in ATen/TensorIterator.cpp ("Expected all tensors to be on the same device").
    """
    name = func.overloadpacket.__name__
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    hosts = [tensor for tensor in tensors if not tensor.is_cuda]
    takes_numbers = name in SCALAR_TAKING or torch.Tag.pointwise in func.tags or name.startswith("_foreach")
    if takes_numbers and tensors[0].is_cuda:
        hosts = [tensor for tensor in hosts if tensor.dim()]
    if len(devices) + bool(hosts) > 1:
        found = sorted({str(tensor.device) for tensor in [*hosts, *tensors]})
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(found)}! "
            f"(when checking arguments of {name})"
        )


def check_indices(indexed: torch.Tensor, indices: Iterable[torch.Tensor | None], values: torch.Tensor | None) -> None:
    """Indices are on the host or with the indexed tensor; values with it, unless a 0-dim CPU tensor.

    make_info and index_put in ATen/native/TensorAdvancedIndexing.cpp.
    """
    for index in indices:
        if index is not None and index.is_cuda and index.device != indexed.device:
            where = "cpu" if not indexed.is_cuda else str(indexed.device)
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({where})")
    if values is not None and values.device != indexed.device and (values.is_cuda or values.dim()):
        raise RuntimeError(
            f"expected self and values to be on the same device, but got {indexed.device} and {values.device}"
        )


def no_numpy(tensor: torch.Tensor) -> TypeError:
    """tensor_to_numpy in torch/csrc/utils/tensor_numpy.cpp."""
    return TypeError(
        f"can't convert {tensor.device} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )


def no_pinning(tensor: torch.Tensor) -> RuntimeError:
    """_pin_memory in ATen/native/Memory.cpp."""
    return RuntimeError(f"cannot pin '{_type_name(tensor)}' only dense CPU tensors can be pinned")


# Deterministic algorithms

CUBLAS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "_addmm_activation"})
CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_DETERMINISTIC = (":4096:8", ":16:8")

Condition = Callable[[tuple[Any, ...], dict[str, Any]], bool]


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def _floating(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    dtype = kwargs.get("dtype") or args[0].dtype
    return bool(dtype.is_floating_point or dtype.is_complex)


def _weighted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return (len(args) > 1 and args[1] is not None) or kwargs.get("weights") is not None


def _product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return "prod" in args or "multiply" in args or kwargs.get("reduce") in ("prod", "multiply")


def _by_dimension(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return len(args) > 1 or "dim" in kwargs


def _reduced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(args[3])


NONDETERMINISTIC: dict[str, tuple[str, Condition]] = {
    # operator: (what the alert calls it, when). From the documentation of torch.use_deterministic_algorithms and the
    # calls of alertNotDeterministic in ATen/native/cuda (only these have kthvalue; the documentation names NLLLoss, but
    # only its 2d kernel alerts). Pooling, padding and interpolation, which a translator never meets, are left out.
    "cumsum": ("cumsum_cuda_kernel", _floating),
    "cumsum_": ("cumsum_cuda_kernel", _floating),
    "put_": ("put_", _always),
    "histc": ("_histc_cuda", _always),
    "bincount": ("_bincount_cuda", _weighted),
    "kthvalue": ("kthvalue CUDA", _always),
    "median": ("median CUDA with indices output", _by_dimension),
    "scatter_reduce": ("scatter_reduce_cuda_kernel", _product),
    "scatter_reduce_": ("scatter_reduce_cuda_kernel", _product),
    "nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", _reduced),
}


def check_deterministic(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """With torch.use_deterministic_algorithms, what has no deterministic kernel is refused (or warned about).

    Context::alertNotDeterministic and Context::alertCuBLASConfigNotDeterministic in ATen/Context.cpp.
    """
    message = None
    if name in CUBLAS and os.environ.get(CUBLAS_VARIABLE) not in CUBLAS_DETERMINISTIC:
        message = (
            "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
            "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses "
            "CuBLAS and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set an "
            f"environment variable before running your PyTorch application: {CUBLAS_VARIABLE}=:4096:8 or "
            f"{CUBLAS_VARIABLE}=:16:8. For more information, go to "
            "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
        )
    elif name in NONDETERMINISTIC and NONDETERMINISTIC[name][1](args, kwargs):
        message = (
            f"{NONDETERMINISTIC[name][0]} does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, or you "
            "can use the 'warn_only=True' option, if that's acceptable for your application."
        )
    if message is None:
        return
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=2)


# Attention


def check_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, is_causal: bool) -> None:
    """Refuse what F.scaled_dot_product_attention refuses on CUDA.

    validate_sdpa_input and _scaled_dot_product_attention_math in ATen/native/transformers/attention.cpp; the mask's
    dtype in _efficient_attention_forward, ATen/native/transformers/cuda/attention.cu. On the CPU a float32 mask beside
    half-precision queries is taken.
    """
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    tensors = [query, key, value, *([] if mask is None else [mask])]
    if len({tensor.device for tensor in tensors}) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got "
            f"{', '.join(str(tensor.device) for tensor in tensors)} instead."
        )
    if mask is not None and is_causal:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{mask.dtype} and  query.dtype: {query.dtype} instead."
        )
    if mask is not None and mask.dtype not in (torch.bool, query.dtype):
        raise RuntimeError("invalid dtype for bias - should match query's dtype")


def attention_backend(query: torch.Tensor, has_mask: bool, capability: tuple[int, int]) -> str:
    """The fastest backend that takes these queries and is allowed: flash, efficient or math.

    sdp_utils.cpp in ATen/native/transformers/cuda: flash needs Ampere, half precision, no mask and at most 256 values a
    head; the memory-efficient one takes float32 and masks, and bfloat16 from Ampere on. torch.nn.attention.sdpa_kernel
    decides which are allowed.
    """
    half = query.dtype in (torch.float16, torch.bfloat16)
    flash = half and not has_mask and capability >= (8, 0) and query.size(-1) <= 256
    # The efficient kernels read 16 bytes at a time (check_head_dim_size_mem_efficient).
    aligned = query.size(-1) * query.element_size() % 16 == 0
    known = query.dtype in (torch.float16, torch.float32) or (query.dtype == torch.bfloat16 and capability >= (8, 0))
    allowed = torch.backends.cuda
    if flash and allowed.flash_sdp_enabled():  # type: ignore[no-untyped-call]
        return "flash"
    if known and aligned and capability >= (5, 0) and allowed.mem_efficient_sdp_enabled():  # type: ignore[no-untyped-call]
        return "efficient"
    if allowed.math_sdp_enabled():  # type: ignore[no-untyped-call]
        return "math"
    raise RuntimeError("No available kernel. Aborting execution.")


# NCCL

NCCL_DTYPES = frozenset(
    {torch.int8, torch.uint8, torch.bool, torch.int32, torch.int64}
    | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
)
"""ncclDataType in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; bool travels as uint8, its sum is a maximum."""
SCALAR_TYPE_NAMES = {torch.int16: "Short"}
"""ATen's names of dtypes that NCCL does not know, where they differ from Python's by more than capitals."""


def check_nccl(tensors: Sequence[torch.Tensor]) -> None:
    """NCCL takes dense, contiguous CUDA tensors of the dtypes it knows.

    getNcclDataType and check_gpu_single_tensor in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
    """
    for tensor in tensors:
        if not tensor.is_cuda:
            raise ValueError("Tensors must be CUDA and dense")
        if not tensor.is_contiguous():
            raise ValueError("Tensors must be contiguous")
        # A complex tensor is sent as pairs of real numbers.
        if tensor.dtype not in NCCL_DTYPES and not tensor.is_complex():
            plain = str(tensor.dtype).removeprefix("torch.").replace("uint", "UInt")
            name = SCALAR_TYPE_NAMES.get(tensor.dtype, plain)
            raise TypeError(f"Input tensor data type is not supported for NCCL process group: {name}")


def _type_name(tensor: torch.Tensor) -> str:
    """As Tensor.type() writes it."""
    names = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.int64: "Long"}
    return f"torch.cuda.{names.get(tensor.dtype, str(tensor.dtype).removeprefix('torch.').title())}Tensor"
