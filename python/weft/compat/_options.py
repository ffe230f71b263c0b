"""Options of UCX (1.10 to 1.21), which programs give to `init`: their names, and the form of their values.

A name or a value that UCX refuses is refused here. Two options are settings of Weft (MAPPED). The others have no effect: they
choose among transports, protocols and caches of UCX.
"""
from __future__ import annotations

import os
import re
from typing import Any, Mapping

from .. import errors

_FORMS = {
    "switch": r"y|yes|on|1|n|no|off|0|try|maybe|auto",
    "number": r"[-+]?\d+(\.\d*)?|inf|auto",
    "size": r"\d+([kmgtpe]?b?)|inf|auto",
    "sizes": r"(\w+:)?(\d+([kmgtpe]?b?)|inf|auto)(,(\w+:)?(\d+([kmgtpe]?b?)|inf|auto))*",
    "time": r"\d+(\.\d*)?(m|s|ms|us|ns)?|inf|auto",
    "level": r"fatal|error|warn|diag|info|debug|trace|req|data|async|func|poll",
    "text": r".*",
}
_NAMES = {
    "switch": """
        ADAPTIVE_PROGRESS ADDRESS_DEBUG_INFO CM_USE_ALL_DEVICES CONNECT_ALL_TO_ALL FLUSH_WORKER_EPS GVA_ENABLE
        GVA_MLOCK GVA_PREFETCH LOG_PRINT_ENABLE MEMTYPE_CACHE MEMTYPE_COPY_ENABLE MEM_BISTRO_FORCE_FAR_JUMP
        MEM_CUDA_RELOC MEM_DLOPEN_PROCESS_RPATH MEM_DYNAMIC_MMAP_THRESH MEM_EVENTS MEM_MALLOC_HOOKS MEM_MALLOC_RELOC
        MPOOL_FIFO PREFER_OFFLOAD PROTO_EMULATION_ENABLE PROTO_ENABLE PROTO_INDIRECT_ID PROTO_REQUEST_RESET
        RCACHE_ENABLE RCACHE_PURGE_ON_FORK REG_NONBLOCK_FALLBACK RESOLVE_REMOTE_EP_ID RNDV_PIPELINE_ERROR_HANDLING
        RNDV_PIPELINE_SHM_ENABLE RNDV_PUT_FORCE_FLUSH SINGLE_NET_DEVICE SOCKADDR_CM_ENABLE TM_SW_RNDV UNIFIED_MODE
        USE_MT_MUTEX VFS_ENABLE VFS_THREAD_AFFINITY WARN_INVALID_CONFIG WARN_UNUSED_ENV_VARS WIREUP_VIA_AM_LANE""",
    "number": """
        ASYNC_MAX_EVENTS KEEPALIVE_NUM_EPS LISTENER_BACKLOG LOG_DATA_SIZE LOG_FILE_ROTATE MAX_COMPONENT_MDS
        MAX_EAGER_LANES MAX_EAGER_RAILS MAX_HCA_PER_GPU MAX_PRIORITY_EPS MAX_RMA_LANES MAX_RMA_RAILS MAX_RNDV_LANES
        MAX_RNDV_RAILS MAX_WORKER_ADDRESS_NAME MAX_WORKER_NAME MULTI_LANE_MAX_RATIO MULTI_PATH_RATIO NODE_LOCAL_ID
        NUM_EPS NUM_PPN RCACHE_CHECK_PFN RCACHE_MAX_REGIONS RCACHE_MEM_PRIO RKEY_MPOOL_MAX_MD RNDV_PERF_DIFF""",
    "size": """
        BCOPY_THRESH LOG_BUFFER LOG_FILE_SIZE MEMTRACK_LIMIT MEM_ALLOC_ALIGN MIN_RMA_CHUNK_SIZE MIN_RNDV_CHUNK_SIZE
        NT_BUFFER_TRANSFER_MIN PROFILE_LOG_SIZE RCACHE_ADDR_ALIGN RCACHE_MAX_SIZE RCACHE_MAX_UNRELEASED
        RCACHE_STAT_MAX RCACHE_STAT_MIN RKEY_PTR_SEG_SIZE RMA_ZCOPY_MAX_SEG_SIZE RNDV_ALIGN_THRESH
        RNDV_MEMTYPE_DIRECT_SIZE RNDV_PIPELINE_SEND_THRESH RNDV_SEND_NBR_THRESH RNDV_THRESH_FALLBACK SEG_SIZE
        TM_FORCE_THRESH TM_MAX_BB_SIZE TM_THRESH ZCOPY_THRESH""",
    "sizes": """
        RNDV_THRESH""",
    "time": """
        DYNAMIC_TL_PROGRESS_FACTOR DYNAMIC_TL_SWITCH_INTERVAL ERROR_HANDLER_DELAY KEEPALIVE_INTERVAL
        MEM_BISTRO_GRACE_DURATION RCACHE_OVERHEAD""",
    "level": """
        LOG_LEVEL LOG_LEVEL_TRIGGER MEM_LOG_LEVEL MODULE_LOG_LEVEL""",
    "text": """
        ACC_DEVICES ADDRESS_VERSION ALLOC_PRIO ASYNC_SIGNO ATOMIC_MODE BCOPY_BW DEBUG_SIGNO DISTANCE_BW DISTANCE_LAT
        ERROR_MAIL_FOOTER ERROR_MAIL_TO ERROR_SIGNALS EXTRA_OP_ATTR_FLAGS FENCE_MODE GDB_COMMAND HANDLE_ERRORS
        LOG_FILE LOG_FILE_FILTER MEMTRACK_DEST MEMTYPE_REG_WHOLE_ALLOC_TYPES MEM_CUDA_HOOK_MODE MEM_MMAP_HOOK_MODE
        MEM_MODULE_UNLOAD_PREVENT_MODE MODULES MODULE_DIR NET_DEVICES PLUGIN_PATH PROFILE_FILE PROFILE_MODE PROTOS
        PROTO_INFO PROTO_INFO_DIR PROTO_OVERHEAD REG_NONBLOCK_MEM_TYPES RNDV_FRAG_ALLOC_COUNT RNDV_FRAG_MEM_TYPE
        RNDV_FRAG_MEM_TYPES RNDV_FRAG_SIZE RNDV_SCHEME RX_MPOOL_SIZES SA_DATA_VERSION SELECT_DISTANCE_MD SHM_DEVICES
        SOCKADDR_AUX_TLS SOCKADDR_TLS_PRIORITY STATS_DEST STATS_FILTER STATS_FORMAT STATS_TRIGGER TLS TOPO_PRIO
        VFS_SOCK_PATH""",
}
_FORM_OF = {name: form for form, names in _NAMES.items() for name in names.split()}
# Each module of UCX has options of its own, NAME_WHAT. Which, depends on how UCX was built, so they are not checked further.
_MODULES = """CMA CUDA CUDA_COPY CUDA_IPC BUILTIN DC EFA GAUDI GDR_COPY GGA IB KNEM MLX5 MM POSIX RC RDMA_CM ROCM ROCM_COPY
    ROCM_IPC SELF SOCKCM SRD SYSV TCP TCP_CM UD UGNI XPMEM ZE ZE_COPY ZE_IPC""".split()
_LEVELS = {"fatal": "error", "error": "error", "warn": "warn", "diag": "warn", "info": "info", "debug": "debug"}


class OptionError(errors.InvalidParamError):
    """An option that neither UCX nor Weft has, or a value that it does not take."""


def _level(value: str) -> str:
    return _LEVELS.get(value.lower(), "trace")


def _backlog(value: str) -> str | None:
    return value if value.isdigit() and value != "0" else None


MAPPED = {"LOG_LEVEL": ("log.level", _level), "LISTENER_BACKLOG": ("listen.backlog", _backlog)}


def is_known(name: str) -> bool:
    return name in _FORM_OF or any(name.startswith(module + "_") for module in _MODULES)


def check(name: Any, value: Any) -> None:
    """Errors: OptionError, if UCX has no such option, or if it does not take that value."""
    if not isinstance(name, str) or not isinstance(value, str):
        raise OptionError("options are strings: %r: %r" % (name, value))
    if not is_known(name):
        raise OptionError("no such option: %s%s" % (name, _nearest(name)))
    form = _FORM_OF.get(name, "text")
    if not re.fullmatch(_FORMS[form], value, re.IGNORECASE | re.DOTALL):
        raise OptionError("%s=%s: not a %s" % (name, value, form))


def _nearest(name: str) -> str:
    import difflib

    if name.startswith("UCX_") and is_known(name[4:]):
        return " (its name here is %s)" % name[4:]
    found = difflib.get_close_matches(name.upper(), _FORM_OF, 1)
    return " (maybe %s)" % found[0] if found else ""


def split(options: Mapping[str, str], env_takes_precedence: bool, known: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Checks what a program gives to `init`: (settings of Weft, options of UCX). known: the names of Weft's settings.

    env_takes_precedence: the variable of an option (UCX_NAME, WEFT_NAME) is taken in place of the program's value.
    """
    settings, theirs = {}, {}
    for name, value in options.items():
        if name in known:
            if not env_takes_precedence or "WEFT_" + name.upper().replace(".", "_") not in os.environ:
                settings[name] = value
            continue
        if env_takes_precedence and isinstance(name, str):
            value = os.environ.get("UCX_" + name, value)
        check(name, value)
        theirs[name] = value
        if name in MAPPED:
            setting, converted = MAPPED[name][0], MAPPED[name][1](value)
            if converted is not None:
                settings.setdefault(setting, converted)
    return settings, theirs


def of_environment() -> dict[str, str]:
    """The options of UCX that variables set. UCX only warns of a variable that it does not know."""
    return {name[4:]: value for name, value in os.environ.items() if name[:4] == "UCX_" and is_known(name[4:])}
