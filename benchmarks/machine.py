"""The kind of machine that figures were measured on: no names, nothing that identifies it."""

import os
import platform
from pathlib import Path


def machine() -> dict:
    """Processors, their widest vectors, memory in GB, and how busy it is with other work."""
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    wide = next((name for name in ("avx512f", "avx2", "avx") if f" {name} " in about), "none known")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9 if hasattr(os, "sysconf") else None
    return {
        "processors": os.cpu_count(),
        "vectors": wide,
        "architecture": platform.machine(),
        "memory_gigabytes": memory and round(memory),
        "load_at_the_start": [round(each, 1) for each in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }
