"""Runs one PTX kernel on the first NVIDIA GPU, through the driver's own library."""

import ctypes
import struct

JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE, JIT_OPTIMIZATION_LEVEL = 5, 6, 7
PARAM_BUFFER, PARAM_BUFFER_SIZE, PARAM_END = 1, 2, 0
CAPABILITY = 75, 76  # the attributes of its major and its minor number
LOG_SIZE = 8192
MAP_SIZE, MAP_ALIGNMENT = 128, 64

_driver = None
_device = ctypes.c_int()


class Refused(Exception):
    """The driver's compiler did not take the program."""


def _check(status, doing):
    if status:
        name = ctypes.c_char_p()
        _driver.cuGetErrorName(status, ctypes.byref(name))
        raise RuntimeError("%s: %s" % (doing, (name.value or b"error %d" % status).decode()))


def open_gpu():
    """To be called once in each process."""
    global _driver
    _driver = ctypes.CDLL("libcuda.so.1")
    _check(_driver.cuInit(0), "cuInit")
    _check(_driver.cuDeviceGet(ctypes.byref(_device), 0), "cuDeviceGet")
    _make_current()


def capability():
    """The compute capability: 90 is 9.0."""
    numbers = []
    for attribute in CAPABILITY:
        number = ctypes.c_int()
        _check(_driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, _device), "cuDeviceGetAttribute")
        numbers.append(number.value)
    return 10 * numbers[0] + numbers[1]


def _make_current():
    context = ctypes.c_void_p()
    _check(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), _device), "cuDevicePrimaryCtxRetain")
    _check(_driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def run(source, grid, block, data, out_size, shared=0, params=b"", level=4, maps=()):
    """Launches the kernel "run" of a module with the addresses of its input and
    output and further parameters, and returns the output, which starts as zeros.
    level is how much the driver's compiler optimises, 0 to 4. maps describe tensors
    in the input or the output, whose tensor maps are the last parameters."""
    module = _load(source, level)
    buffers = []
    try:
        kernel = ctypes.c_void_p()
        _check(_driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"run"), "kernel run")
        buffers = [_allocate(len(data)), _allocate(out_size)]
        _check(_driver.cuMemcpyHtoD_v2(buffers[0], data, ctypes.c_size_t(len(data))), "copy in")
        params = struct.pack("<QQ", *(b.value for b in buffers)) + params
        for i, m in enumerate(maps):
            at = buffers[m["of"] == "out"].value + m["at"]
            params += bytes(_offset(kernel, 2 + i) - len(params)) + tensor_map(m, at)
        _launch(kernel, grid, block, shared, params)
        out = ctypes.create_string_buffer(max(out_size, 1))
        _check(_driver.cuMemcpyDtoH_v2(out, buffers[1], ctypes.c_size_t(out_size)), "copy out")
    except RuntimeError:
        # After a fault nothing works in this context any more.
        _driver.cuDevicePrimaryCtxReset_v2(_device)
        _make_current()
        raise
    for buffer in buffers:
        _check(_driver.cuMemFree_v2(buffer), "free")
    _check(_driver.cuModuleUnload(module), "unload")
    return out.raw[:out_size]


def tensor_map(m, address):
    """The driver's 128 bytes for a tensor; it must take the description."""
    room = ctypes.create_string_buffer(MAP_SIZE + MAP_ALIGNMENT)
    at = -(-ctypes.addressof(room) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    rank = len(m["sizes"])
    numbers = lambda kind, all: (kind * max(1, len(all)))(*all)  # noqa: E731
    first = (ctypes.c_void_p(at), m["type"], rank, ctypes.c_void_p(address), numbers(ctypes.c_uint64, m["sizes"]), numbers(ctypes.c_uint64, m["strides"]))
    last = (numbers(ctypes.c_uint32, m["steps"]), m["interleave"], m["swizzle"], m["promotion"], m["fill"])
    if "pixels" in m:
        _check(_driver.cuTensorMapEncodeIm2col(
            *first, numbers(ctypes.c_int, m["lower"]), numbers(ctypes.c_int, m["upper"]), m["channels"], m["pixels"], *last), "tensor map")
    else:
        _check(_driver.cuTensorMapEncodeTiled(*first, numbers(ctypes.c_uint32, m["box"]), *last), "tensor map")
    return ctypes.string_at(at, MAP_SIZE)


def compile_only(source):
    _check(_driver.cuModuleUnload(_load(source, 4)), "unload")


def _load(source, level):
    log = ctypes.create_string_buffer(LOG_SIZE)
    options = (ctypes.c_int * 3)(JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE, JIT_OPTIMIZATION_LEVEL)
    values = (ctypes.c_void_p * 3)(ctypes.addressof(log), LOG_SIZE, level)
    module = ctypes.c_void_p()
    if _driver.cuModuleLoadDataEx(ctypes.byref(module), source.encode() + b"\0", 3, options, values):
        raise Refused(log.value.decode().strip())
    return module


def _offset(kernel, parameter):
    """Where a parameter lies: what has to be aligned is so in the GPU's memory, not in the buffer."""
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    _check(_driver.cuFuncGetParamInfo(kernel, ctypes.c_size_t(parameter), ctypes.byref(offset), ctypes.byref(size)), "parameter")
    return offset.value


def _allocate(size):
    address = ctypes.c_uint64()
    size = max(size, 16)
    _check(_driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), "allocate")
    _check(_driver.cuMemsetD8_v2(address, 0, ctypes.c_size_t(size)), "clear")
    return address


def _launch(kernel, grid, block, shared, params):
    buffer = ctypes.create_string_buffer(params, len(params))
    size = ctypes.c_size_t(len(params))
    extra = (ctypes.c_void_p * 5)(
        PARAM_BUFFER, ctypes.addressof(buffer), PARAM_BUFFER_SIZE, ctypes.addressof(size), PARAM_END)
    _check(_driver.cuLaunchKernel(kernel, *grid, *block, shared, None, None, extra), "launch")
    _check(_driver.cuCtxSynchronize(), "run")
