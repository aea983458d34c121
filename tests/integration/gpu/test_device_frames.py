"""Frames in GPU memory, as arrays of other libraries."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from waiting import wait_for

from daqiri_ophyd.devices import reductions
from daqiri_ophyd.engine import DeviceArray, Engine, FrameReductions

from .conftest import Config, Run
from .sent_frames import PAYLOAD, SHAPE, SLOTS, Array, send
from .test_gpu_reorder import with_plan

BUFFERS = 8


def on_the_gpu(kind: str = "device", gpu: int = 0) -> Config:
    """Return a loopback port with a plan whose frames are in GPU memory."""
    config = with_plan(frames=kind)
    config["memory_regions"][-1] |= {"num_bufs": BUFFERS, "affinity": gpu}
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["frame"] = {"shape": list(SHAPE), "dtype": "uint16"}
    return config


# The start of programs: an engine, its plan, its frames, and the first complete frame.
PRELUDE = f"""
import ctypes, gc, os, sys, threading, time
import numpy as np
sys.path.insert(0, {str(Path(__file__).parent)!r})
from dlpack_taker import Managed, Taken, Versioned
from sent_frames import SHAPE, send
from daqiri_ophyd.engine import DaqiriError, DeviceArray, Engine

def bytes_at(address):
    return np.frombuffer(ctypes.string_at(address, 2 * np.prod(SHAPE)), np.uint16).reshape(SHAPE)

def asked():
    with open(os.environ["DRIVER_LOG"]) as log:
        return log.read().split()

def free():
    (region,) = (r for r in engine.snapshot().regions if r.name == "frames")
    return region.free

def error_of(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"

engine = Engine.open({on_the_gpu()!r})
plan = engine.port("port").reorder["images"]
made = plan.frames(timeout=20)
wanted = send(engine, 0)
frame = next(made)
all_free = free() + 1
"""


def ran(with_driver: Run, program: str, **answers: int) -> tuple[list[str], list[str]]:
    """Return the printed lines, and the calls to the driver."""
    said, asked = with_driver(PRELUDE + program, **answers)
    return said.splitlines(), asked


def test_contents_are_where_libraries_look_for_them(with_driver: Run) -> None:
    said, _ = ran(
        with_driver,
        """
print(frame, frame.data, type(frame.data) is DeviceArray)
array = frame.data
print(array.shape == SHAPE, array.dtype, array.nbytes == wanted.nbytes, array.gpu)
cuda = frame.__cuda_array_interface__
print(cuda == array.__cuda_array_interface__, cuda["data"] == (array.address, False))
print({key: cuda[key] for key in ("shape", "typestr", "strides", "version", "stream")})
print(np.array_equal(bytes_at(array.address), wanted), np.array_equal(array.get(), wanted))
print(frame.__dlpack_device__(), array.__dlpack_device__())
for taken in (
    Taken(frame.__dlpack__()),
    Taken(array.__dlpack__(stream=None, max_version=(0, 8), dl_device=(2, 0), copy=False)),
    Taken(frame.__dlpack__(stream=1, max_version=(1, 0)), Versioned),
    Taken(frame.__dlpack__(stream=-1, max_version=(2, 3)), Versioned),
):
    told = taken.told
    print(told.pop("data") == array.address, told)
    if isinstance(taken.managed, Versioned):
        print(tuple(taken.managed.version), taken.managed.flags)
    taken.free()
engine.close()
""",
    )
    told = f"'device': (2, 0), 'type': (1, 16, 1), 'shape': {SHAPE}, 'strides': ({SHAPE[1]}, 1)"
    assert said == [
        f"<Frame 0: uint16 {SHAPE}, 0 missing> <DeviceArray: uint16 {SHAPE}, GPU 0> True",
        "True uint16 True 0",
        "True True",
        f"{{'shape': {SHAPE}, 'typestr': '<u2', 'strides': None, 'version': 3, 'stream': None}}",
        "True True",
        "(2, 0) (2, 0)",
        f"True {{{told}}}",
        f"True {{{told}}}",
        f"True {{{told}}}",
        "(1, 0) 0",
        f"True {{{told}}}",
        "(1, 0) 0",
    ]


def test_a_frame_is_on_the_gpu_that_its_region_names(with_driver: Run) -> None:
    said, asked = ran(
        with_driver,
        f"""
engine.close()
with Engine.open({on_the_gpu(gpu=1)!r}) as engine:
    with engine.port("port").reorder["images"].frames(timeout=20) as made:
        wanted = send(engine, 0)
        other = next(made)
        taken = Taken(other.__dlpack__(dl_device=(2, 1)))
        print(other.data, other.__dlpack_device__(), taken.told["device"])
        print(np.array_equal(other.data.get(), wanted))
        taken.free()
        del other
""",
        GPUS=2,
    )
    assert said == [f"<DeviceArray: uint16 {SHAPE}, GPU 1> (2, 1) (2, 1)", "True"]
    assert "synchronize" not in asked
    # By get(), and when the last array is deleted.
    assert asked.count("synchronize-another") == 2


def test_a_plan_without_a_shape_has_flat_frames(with_driver: Run) -> None:
    config = on_the_gpu()
    del config["interfaces"][0]["rx"]["reorder_configs"][0]["frame"]
    said, _ = ran(
        with_driver,
        f"""
engine.close()
with Engine.open({config!r}) as engine:
    with engine.port("port").reorder["images"].frames(timeout=20) as made:
        wanted = send(engine, 0)
        flat = next(made)
        print(flat, np.array_equal(flat.data.get(), wanted.view(np.uint8).ravel()))
""",
    )
    assert said == [f"<Frame 0: uint8 ({SLOTS * PAYLOAD},), 0 missing> True"]


HOLDERS = """
def dropped(what):
    first = free()
    del what
    return free() - first

class Library:  # keeps what it was given, as cupy does
    def __init__(self, array):
        self.owner, self.interface = array, array.__cuda_array_interface__

number = 0
def another():
    global number, wanted
    number += 1
    wanted = send(engine, number)
    return next(made)
"""


def test_whoever_has_the_data_keeps_the_buffer(with_driver: Run) -> None:
    said, _ = ran(
        with_driver,
        HOLDERS
        + """
del frame
print("frame", free() == all_free)
for name, hold in {
    "data": lambda frame: frame.data,
    "interface": Library,
    "interface of data": lambda frame: Library(frame.data),
    "capsule": lambda frame: frame.__dlpack__(),
    "versioned": lambda frame: frame.__dlpack__(max_version=(1, 1)),
}.items():
    held = hold(another())
    kept = free() == all_free - 1
    del held
    print(name, kept, free() == all_free)
for kind in Managed, Versioned:
    for how in "free", "free_locked", "free_elsewhere":
        version = None if kind is Managed else (1, 0)
        capsule = another().__dlpack__(max_version=version)
        taken = Taken(capsule, kind)
        del capsule
        kept = free() == all_free - 1 and np.array_equal(bytes_at(taken.told["data"]), wanted)
        getattr(taken, how)()
        print(how, kept, free() == all_free)
engine.close()
""",
    )
    assert said == [
        "frame True",
        *(f"{name} True True" for name in ("data", "interface", "interface of data")),
        *(f"{name} True True" for name in ("capsule", "versioned")),
        *(f"{name} True True" for name in ("free", "free_locked", "free_elsewhere") * 2),
    ]


def test_frames_are_lost_while_all_buffers_are_held(with_driver: Run) -> None:
    said, _ = ran(
        with_driver,
        f"""
held = [frame, *(send(engine, n + 1) is not None and next(made) for n in range({BUFFERS - 1}))]
same = [np.array_equal(bytes_at(each.data.address), each.data.get()) for each in held]
print(free(), plan.counters().no_buffer, all(same))
send(engine, {BUFFERS})
while plan.counters().no_buffer == 0:
    time.sleep(0.001)
before = [each.data.get() for each in held]
del frame, held[1:]
wanted = send(engine, {BUFFERS} + 1)
last = next(made)
print(last.batch, np.array_equal(last.data.get(), wanted))
print(np.array_equal(held[0].data.get(), before[0]))
engine.close()
""",
    )
    assert said == ["0 0 True", f"{BUFFERS + 1} True", "True"]


def test_data_remain_when_the_engine_is_closed(with_driver: Run) -> None:
    said, asked = ran(
        with_driver,
        """
second = send(engine, 1)
other = Taken(next(made).__dlpack__())
made.close()
engine.close()
del engine, plan, made
gc.collect()
told = frame.__cuda_array_interface__["data"][0]
print(np.array_equal(frame.data.get(), wanted), np.array_equal(bytes_at(told), wanted))
del frame
gc.collect()
print(np.array_equal(bytes_at(other.told["data"]), second), asked().count("synchronize"))
other.free_elsewhere()
""",
    )
    assert said == ["True True", "True 2"]
    assert asked.count("synchronize") == 3


def test_who_was_not_told_the_address_is_not_waited_for(with_driver: Run) -> None:
    _, asked = ran(
        with_driver,
        """
array = frame.data
copy = array.get(), array.shape, array.dtype, array.nbytes, array.gpu, repr(array)
array.__dlpack_device__()
error_of(array.__dlpack__, copy=True)
error_of(np.asarray, array)
del array, frame
engine.close()
""",
    )
    assert "synchronize" not in asked


@pytest.mark.parametrize(
    "export", ["frame.__cuda_array_interface__", "frame.__dlpack__()", "frame.data.address"]
)
def test_kernels_that_were_told_the_address_are_waited_for_first(
    with_driver: Run, tmp_path: Path, export: str
) -> None:
    said, asked = ran(
        with_driver,
        f"""
{export}
os.environ["DRIVER_GATE"] = gate = {str(tmp_path / "gate")!r}
holders = [frame]
del frame
dropping = threading.Thread(target=holders.clear)
dropping.start()
while "synchronize" not in asked():
    time.sleep(0.001)
print(free() == all_free - 1)  # this thread goes on
open(gate, "w").close()
dropping.join()
print(free() == all_free)
engine.close()
""",
    )
    assert said == ["True", "True"]
    assert asked.count("synchronize") == 1


def test_a_gpu_that_does_not_work_any_more_keeps_no_buffer(with_driver: Run) -> None:
    said, asked = ran(
        with_driver,
        """
frame.__cuda_array_interface__
taken = Taken(frame.__dlpack__())
print(error_of(frame.data.get))
del frame
taken.free()
print(free() == all_free)
engine.close()
""",
        SYNCHRONIZE=719,
        COPIES=0,
    )
    assert said == [
        "GenericFailureError: the array cannot be copied: GPU 0 has failed; start the "
        "program again",
        "True",
    ]
    assert asked.count("synchronize") == 2


def test_a_forked_child_leaves_the_gpu_alone(with_driver: Run) -> None:
    said, asked = ran(
        with_driver,
        """
frame.__cuda_array_interface__
taken = Taken(frame.__dlpack__())
child = os.fork()
if child == 0:
    print(error_of(frame.data.get), flush=True)
    del frame
    taken.free()
    os._exit(0)
print(os.waitpid(child, 0)[1], "synchronize" in asked(), np.array_equal(frame.data.get(), wanted))
del frame
taken.free()
engine.close()
""",
    )
    assert said == [
        "NotSupportedError: the array was received before a fork, and CUDA does not work in the "
        "child; copy it with get() before the fork, or start processes with "
        'multiprocessing\'s "spawn"',
        "0 False True",
    ]
    assert asked.count("synchronize") == 2


def test_wrong_use_is_told(with_driver: Run) -> None:
    said, _ = ran(
        with_driver,
        """
for call in (
    lambda: np.asarray(frame),
    lambda: np.array(frame.data, np.float32, copy=True),
    lambda: frame.__dlpack__(dl_device=(1, 0)),
    lambda: frame.__dlpack__(dl_device=(2, 1)),
    lambda: frame.__dlpack__(copy=True),
    lambda: frame.__dlpack__(stream=0),
    lambda: frame.__dlpack__(stream="1"),
    lambda: frame.__dlpack__(1),
    lambda: np.from_dlpack(frame, device="cpu"),
    lambda: np.from_dlpack(frame),
    lambda: DeviceArray(),
    lambda: frame.data == frame.data,
    lambda: frame.data != 0,
    lambda: bool(frame.data),
):
    print(error_of(call).split("\\n")[0])
del frame
print(free() == all_free)
engine.close()
""",
    )
    to_numpy = (
        "TypeError: the array is in GPU memory, and numpy would copy it implicitly; use .get() for "
        "a numpy array, or cupy.asarray to work on the GPU"
    )
    elsewhere = (
        "BufferError: dl_device is ({}), but the array is on (2, 0) (CUDA, GPU 0); import it "
        "there and copy it, or use get() for a numpy array"
    )
    assert said[:6] == [
        to_numpy,
        to_numpy,
        elsewhere.format("1, 0"),
        elsewhere.format("2, 1"),
        "BufferError: copy is True, but arrays are exported without a copy; copy the imported "
        "array, e.g. torch.from_dlpack(frame).clone()",
        "ValueError: stream is 0; accepts None, -1 (no stream), 1 (default stream), 2 (that of the "
        "thread), or a stream's handle",
    ]
    assert said[6].startswith("TypeError: __dlpack__(): incompatible function arguments")
    assert said[7].startswith("TypeError: Frame.__dlpack__() takes 1 positional argument")
    assert said[8] == said[2]
    assert said[9].startswith(("BufferError: ", "RuntimeError: "))
    assert said[10].endswith("No constructor defined!")
    compared = to_numpy.replace("numpy would copy it implicitly", "cannot be compared there")
    assert said[11:14] == [compared] * 3
    assert said[14] == "True"


def test_frames_of_the_host_are_arrays_of_numpy(with_driver: Run) -> None:
    said, asked = ran(
        with_driver,
        f"""
engine.close()
with Engine.open({on_the_gpu("host_pinned")!r}) as engine:
    with engine.port("port").reorder["images"].frames(timeout=20) as made:
        wanted = send(engine, 0)
        frame = next(made)
        print(frame, type(frame.data).__name__, np.array_equal(np.asarray(frame), wanted))
        print(frame.__dlpack_device__() == (1, 0), hasattr(frame, "__cuda_array_interface__"))
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            taken = np.from_dlpack(frame)
            assert np.array_equal(taken, wanted) and taken.ctypes.data == frame.data.ctypes.data
        print(error_of(getattr, frame, "__cuda_array_interface__"))
""",
    )
    assert said == [
        f"<Frame 0: uint16 {SHAPE}, 0 missing> ndarray True",
        "True False",
        "AttributeError: this frame is in the CPU's memory; use frame.data, or have frames "
        "assembled in GPU memory: a memory region of kind 'device'",
    ]
    assert "synchronize" not in asked


def received(engine: Engine, number: int) -> tuple[Any, Array]:
    """Return a frame in GPU memory, and its content."""
    with engine.port("port").reorder["images"].frames(timeout=20) as made:
        wanted = send(engine, number)
        return next(made), wanted


@pytest.mark.gpu
def test_cupy_works_on_frames_where_they_lie() -> None:
    import cupy

    with Engine.open(on_the_gpu()) as engine:
        frame, wanted = received(engine, 0)
        assert isinstance(frame.data, DeviceArray)
        np.testing.assert_array_equal(frame.data.get(), wanted)
        for array in (cupy.asarray(frame), cupy.asarray(frame.data), cupy.from_dlpack(frame)):
            assert array.data.ptr == frame.data.address
            assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_array_equal(cupy.asnumpy(array), wanted)
        array = cupy.asarray(frame)
        array += 1
        cupy.cuda.get_current_stream().synchronize()
        np.testing.assert_array_equal(frame.data.get(), wanted + 1)
        with pytest.raises(TypeError, match="cupy.asarray"):
            np.asarray(frame)


@pytest.mark.gpu
def test_kernels_of_cupy_are_waited_for_before_a_buffer_is_used_again() -> None:
    import cupy

    # Begins to read when the next frames would be there.
    add = cupy.RawKernel(
        """extern "C" __global__ void add(const unsigned short* from, unsigned long long* to) {
             const long long begun = clock64();
             while (clock64() - begun < 20000000) {}
             for (int i = 0; i < COUNT; ++i) *to += from[i];
           }""".replace("COUNT", str(SHAPE[0] * SHAPE[1])),
        "add",
    )
    with Engine.open(on_the_gpu()) as engine:
        results, sums = [], []
        for number in range(3 * BUFFERS):
            frame, wanted = received(engine, number)
            result = cupy.zeros(1, np.uint64)
            cupy.cuda.Stream.null.synchronize()
            with cupy.cuda.Stream(non_blocking=True):
                add((1,), (1,), (cupy.asarray(frame), result))
            del frame
            results.append(result)
            sums.append(int(wanted.sum(dtype=np.uint64)))
        assert [int(result[0]) for result in results] == sums


@pytest.mark.gpu
def test_torch_works_on_frames_where_they_lie() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device: it is built for the CPU, or another CUDA")
    with Engine.open(on_the_gpu()) as engine:
        frame, wanted = received(engine, 0)
        tensor = torch.from_dlpack(frame)
        assert tensor.data_ptr() == frame.data.address
        assert tensor.device == torch.device("cuda", frame.data.gpu)
        np.testing.assert_array_equal(tensor.cpu().numpy(), wanted)
        np.testing.assert_array_equal(torch.as_tensor(frame, device="cuda").cpu().numpy(), wanted)
        del frame
        np.testing.assert_array_equal(tensor.cpu().numpy(), wanted)


def test_own_functions_get_recorded_frames_where_they_are(with_driver: Run, tmp_path: Path) -> None:
    """A copy to the CPU, which is written, does not change the frame."""
    said, _ = ran(
        with_driver,
        f"""
from daqiri_ophyd.engine import FrameReductions
made.close()
del frame
kept, sums = [], []
def read(frame):
    kept.append(frame)
    sums.append(int(frame.data.get().sum()))
    return sums[-1]
with plan.record({str(tmp_path)!r}, reductions=FrameReductions({{"total": read}})) as recorder:
    wanted = [send(engine, 1), send(engine, 2)]
    while recorder.snapshot().frames < 2:
        time.sleep(0.001)
print(sums == [int(each.sum()) for each in wanted])
print([np.array_equal(bytes_at(frame.data.address), each) for frame, each in zip(kept, wanted)])
engine.close()
""",
    )
    assert said == ["True", "[True, True]"]
    with h5py.File(tmp_path / "frames_000000.h5") as file:
        np.testing.assert_array_equal(
            file["entry/data/total"], np.sum(file["entry/data/data"], axis=(1, 2), dtype=np.int64)
        )


@pytest.mark.gpu
@pytest.mark.parametrize("writer", ["buffered", "auto"])
def test_numbers_of_recorded_frames_are_computed_on_the_gpu(tmp_path: Path, writer: Any) -> None:
    reduce = {
        "total": reductions.total(),
        "mean": reductions.mean(),
        "top": reductions.maximum(),
        "roi": reductions.roi((2, 9), (100, 300)),
        "y": reductions.centroid(0),
        "x": reductions.centroid(-1),
    }
    functions = FrameReductions({name: each.function for name, each in reduce.items()})
    with Engine.open(on_the_gpu()) as engine:
        plan = engine.port("port").reorder["images"]
        with plan.record(tmp_path, writer=writer, reductions=functions) as recorder:
            sent = []
            for number in range(20):
                sent.append(send(engine, number))
                wait_for(lambda n=number: recorder.snapshot().frames == n + 1)
        assert functions.error == ""
    with h5py.File(tmp_path / "frames_000000.h5") as file:
        np.testing.assert_array_equal(file["entry/data/data"], sent)
        for name, each in reduce.items():
            wanted = [each.function(image) for image in sent]
            np.testing.assert_allclose(file[f"entry/data/{name}"], wanted, rtol=1e-12)
