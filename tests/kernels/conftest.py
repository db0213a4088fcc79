"""Kernels for the tests: one of its own, or one that the tests of a module share."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nbagent.kernels.checkpoints import CheckpointKernel
from nbagent.kernels.process import ProcessKernel
from tests.kernels.running import KernelMaker, make_kernel


@pytest.fixture(
    scope="session",
    params=[
        ProcessKernel,
        pytest.param(
            CheckpointKernel,
            marks=[pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="forks kernels")],
        ),
    ],
    ids=["plain", "checkpoints"],
)
def kernel_kind(request: pytest.FixtureRequest) -> type[ProcessKernel]:
    """Both kinds of kernel pass the same tests; the second time in the long suite."""
    kind: type[ProcessKernel] = request.param
    return kind


@pytest_asyncio.fixture
async def kernel_maker(tmp_path: Path, kernel_kind: type[ProcessKernel]) -> AsyncIterator[KernelMaker]:
    """Make kernels that are closed after the test."""
    kernels: list[ProcessKernel] = []

    def make(**options: Any) -> ProcessKernel:
        kernels.append(make_kernel(tmp_path, kernel_kind, **options))
        return kernels[-1]

    yield make
    for kernel in kernels:
        await kernel.close()


@pytest_asyncio.fixture
async def own_kernel(kernel_maker: KernelMaker) -> ProcessKernel:
    """A started kernel of this test's own."""
    kernel = kernel_maker()
    await kernel.start()
    return kernel


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_kernel(
    tmp_path_factory: pytest.TempPathFactory, kernel_kind: type[ProcessKernel]
) -> AsyncIterator[ProcessKernel]:
    """A started kernel that the tests of a module share (they run on the module's event loop)."""
    kernel = make_kernel(tmp_path_factory.mktemp("kernel"), kernel_kind)
    await kernel.start()
    yield kernel
    await kernel.close()
