"""Where a measurement was made: machine and versions, for its record.

Imports nothing of ours and nothing heavy; what cannot be found out is None or left out.
"""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "speedstudy",
    "aiohttp",
    "uvloop",
    "numpy",
    "torch",
    "transformers",
    "openvino",
    "openvino-genai",
    "openvino-tokenizers",
    "vllm",
    "sglang",
    "tensorrt-llm",
)
CPU_INFO = Path("/proc/cpuinfo")
GIB = 1024**3


def hardware() -> dict[str, Any]:
    """Return ``{cpu, physical_cores, logical_cores, memory_gib, platform, gpus}``.

    ``gpus`` has ``{name, memory_gib, driver}`` for each NVIDIA device, and is empty where there
    is none.
    """
    return {
        "cpu": _cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "platform": platform.platform(),
        "gpus": _gpus(),
    }


def software() -> dict[str, Any]:
    """Return ``{python, packages, git_commit}``: versions of what is installed of ``PACKAGES``.

    ``git_commit`` is that of the checkout which tracks this file, with ``+changes`` if tracked
    files differ from it; None outside a checkout.
    """
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "packages": versions,
        "git_commit": _git_commit(),
    }


def _cpu_model() -> str | None:
    if CPU_INFO.is_file():
        for line in CPU_INFO.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or None


def _gpus() -> list[dict[str, Any]]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_gib": round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / GIB, 1),
                "driver": driver,
            }
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()


def _git_commit() -> str | None:
    here = Path(__file__)
    if _git("ls-files", "--error-unmatch", here.name) is None:
        return None
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    return f"{commit}+changes" if _git("status", "--porcelain", "-uno") else commit


def _git(*arguments: str) -> str | None:
    """Output of a git command in this file's folder, or None if it fails or git is missing."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
