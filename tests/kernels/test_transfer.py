"""Variables that travel between the user's kernel and the agent's."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nbagent.errors import TransferError
from nbagent.kernels.process import ProcessKernel
from nbagent.parcels import plain_pickle, read_parcel, write_parcel
from tests.kernels.running import run, value

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def kernel(shared_kernel: ProcessKernel) -> Iterator[ProcessKernel]:
    before = shared_kernel.generation
    yield shared_kernel
    assert shared_kernel.generation == before, "the shared kernel died"


async def test_a_variable_is_brought_and_adopted(kernel: ProcessKernel, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    (tmp_path / "in.pickle").write_bytes(pickle.dumps(frame, protocol=5))
    await kernel.bring("left", tmp_path / "in.pickle")
    ran = await run(kernel, "right = left * 2; print(left.a.sum())")
    assert ran.text() == "6\n"
    assert ran.changes == {"right": ("DataFrame", "(3, 1)")}  # who brought `left` knows of it
    assert await kernel.adopt("right", tmp_path / "out.pickle") == "DataFrame (3, 1)"
    back = read_parcel(str(tmp_path / "out.pickle"))
    pd.testing.assert_frame_equal(back, frame * 2)


async def test_what_cannot_travel_says_why(kernel: ProcessKernel, tmp_path: Path) -> None:
    code = (
        "import threading\nlock = [threading.Lock()]\n"
        "class Mine: pass\nmine = {'a': [Mine()]}\ndef work(): pass\nsteps = [work]"
    )
    await run(kernel, code)
    file = tmp_path / "out.pickle"
    with pytest.raises(
        TransferError, match=r"^lock cannot travel: TypeError: cannot pickle '_thread.lock' object"
    ):
        await kernel.adopt("lock", file)
    with pytest.raises(TransferError, match="its class Mine is defined in the notebook only"):
        await kernel.adopt("mine", file)
    with pytest.raises(TransferError, match="its function work is defined in the notebook only"):
        await kernel.adopt("steps", file)
    with pytest.raises(TransferError, match="nothing cannot travel: there is no such variable"):
        await kernel.adopt("nothing", file)
    assert not file.exists()
    assert await value(kernel, "'fine'") == "fine"


async def test_a_missing_module_is_named(kernel: ProcessKernel, tmp_path: Path) -> None:
    # GLOBAL opcode: "somewhere.else" as a module that no interpreter has
    (tmp_path / "in.pickle").write_bytes(b"cno_such_module\nThing\n.")
    with pytest.raises(TransferError, match="x cannot travel: this interpreter has no module no_such_module"):
        await kernel.bring("x", tmp_path / "in.pickle")


async def test_a_broken_file_and_a_missing_one_say_so(kernel: ProcessKernel, tmp_path: Path) -> None:
    (tmp_path / "in.pickle").write_bytes(b"")
    with pytest.raises(TransferError, match="x cannot travel: EOFError"):
        await kernel.bring("x", tmp_path / "in.pickle")
    with pytest.raises(TransferError, match="cannot be read: No such file"):
        await kernel.bring("x", tmp_path / "absent.pickle")
    with pytest.raises(TransferError, match="'a b' is not a name"):
        await kernel.bring("a b", tmp_path / "in.pickle")


async def test_a_place_that_cannot_be_written_says_so(kernel: ProcessKernel, tmp_path: Path) -> None:
    await run(kernel, "small = 1")
    with pytest.raises(TransferError, match="cannot be written"):
        await kernel.adopt("small", tmp_path / "no" / "such" / "folder.pickle")


@pytest.mark.asyncio(loop_scope="function")
async def test_a_kernel_that_dies_while_pickling_is_told(own_kernel: ProcessKernel, tmp_path: Path) -> None:
    code = "import os\nclass Bomb:\n  def __reduce__(self): os._exit(5)\nbomb = Bomb()"
    await run(own_kernel, code)
    with pytest.raises(TransferError, match="the kernel process exited with code 5"):
        await own_kernel.adopt("bomb", tmp_path / "out.pickle")
    ran = await run(own_kernel, "1")
    assert ran.executed.status == "died"
    assert "bomb" in ran.executed.lost_names


async def test_large_arrays_travel_beside_the_pickle_and_can_be_changed(
    kernel: ProcessKernel, tmp_path: Path
) -> None:
    file = tmp_path / "out.pickle"
    await run(kernel, "import numpy as np; pair = {'a': np.arange(200_000), 'b': np.ones(3), 'c': 'x' * 99}")
    await kernel.adopt("pair", file)
    back = read_parcel(str(file))
    file.unlink()
    back["a"][0] = 7
    assert (int(back["a"].sum()), back["b"].tolist(), back["c"]) == (19999900007, [1, 1, 1], "x" * 99)
    await run(kernel, "del pair")
    (tmp_path / "in.pickle").write_bytes(pickle.dumps(back, protocol=5))
    await kernel.bring("pair", tmp_path / "in.pickle")
    assert await value(kernel, "pair['a'][0], len(pair)") == "7 3"


async def test_a_parcel_is_an_ordinary_pickle_for_who_has_no_nbagent(tmp_path: Path) -> None:
    large, fixed = np.arange(50_000.0), np.arange(40_000)
    fixed.flags.writeable = False
    frame = pd.DataFrame({"a": large, "b": ["x", "y"] * 25_000})
    value = {"large": large, "again": large, "fixed": fixed, "frame": frame, "small": b"x" * 9, "words": ["é"] * 3}
    file = tmp_path / "value.pkl"
    for each in (value, [1, "small"]):
        write_parcel(each, str(file), lambda opened, aside: pickle.Pickler(opened, 5, buffer_callback=aside))
        plain = pickle.loads(plain_pickle(str(file)))
        assert type(plain) is type(each)
    write_parcel(value, str(file), lambda opened, aside: pickle.Pickler(opened, 5, buffer_callback=aside))
    plain = pickle.loads(plain_pickle(str(file)))
    assert plain["large"] is plain["again"]
    assert plain["large"].flags.writeable
    assert not plain["fixed"].flags.writeable
    np.testing.assert_array_equal(plain["large"], large)
    np.testing.assert_array_equal(plain["fixed"], fixed)
    pd.testing.assert_frame_equal(plain["frame"], frame)
    assert (plain["small"], plain["words"]) == (value["small"], value["words"])
    file.write_bytes(pickle.dumps(value))
    assert plain_pickle(str(file)) == file.read_bytes()
