"""Everything Weft needs from outside: call weft_dependencies() from a WORKSPACE."""

load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")
load("//bazel:system_library.bzl", "system_library")

def _archives():
    if not native.existing_rule("bazel_skylib"):
        http_archive(
            name = "bazel_skylib",
            sha256 = "1c531376ac7e5a180e0237938a2536de0c54d93f5c278634818e0efc952dd56c",
            urls = ["https://github.com/bazelbuild/bazel-skylib/releases/download/1.0.3/bazel-skylib-1.0.3.tar.gz"],
        )
    if not native.existing_rule("rules_cc"):
        http_archive(
            name = "rules_cc",
            sha256 = "2037875b9a4456dce4a79d112a8ae885bbc4aad968e6587dca6e64f3a0900cdf",
            strip_prefix = "rules_cc-0.0.9",
            urls = ["https://github.com/bazelbuild/rules_cc/releases/download/0.0.9/rules_cc-0.0.9.tar.gz"],
        )

# The library itself needs the first two; the optional transports the next three; tests and examples the rest.
SYSTEM_LIBRARIES = {
    "weft_ev": dict(variable = "WEFT_EV_PATH", header = "ev.h", libs = ["ev"], package = "libev-dev"),
    "weft_talloc": dict(variable = "WEFT_TALLOC_PATH", pc = "talloc", header = "talloc.h", libs = ["talloc"], package = "libtalloc-dev"),
    # Headers only: the transports load these when RDMA is first used.
    "weft_ibverbs": dict(variable = "WEFT_IBVERBS_PATH", pc = "libibverbs", header = "infiniband/verbs.h", libs = [], package = "libibverbs-dev"),
    "weft_rdmacm": dict(variable = "WEFT_RDMACM_PATH", pc = "librdmacm", header = "rdma/rdma_cma.h", libs = [], package = "librdmacm-dev"),
    # Headers only: the driver is loaded when the first device buffer appears, never linked.
    "weft_cuda": dict(variable = "WEFT_CUDA_PATH", header = "cuda.h", libs = [], package = "nvidia-cuda-dev"),
    "weft_openssl": dict(variable = "WEFT_OPENSSL_PATH", pc = "libcrypto", header = "openssl/evp.h", libs = ["crypto"], package = "libssl-dev"),
    # Headers only: an extension takes the rest from the interpreter that loads it.
    "weft_python": dict(variable = "WEFT_PYTHON_PATH", pc = "python3", header = "Python.h", libs = [], package = "python3-dev"),
    "weft_uv": dict(variable = "WEFT_UV_PATH", pc = "libuv", header = "uv.h", libs = ["uv"], package = "libuv1-dev"),
    "weft_glib": dict(variable = "WEFT_GLIB_PATH", pc = "glib-2.0", header = "glib.h", libs = ["glib-2.0"], package = "libglib2.0-dev"),
    "weft_systemd": dict(variable = "WEFT_SYSTEMD_PATH", pc = "libsystemd", header = "systemd/sd-event.h", libs = ["systemd"], package = "libsystemd-dev"),
    "weft_event": dict(variable = "WEFT_EVENT_PATH", pc = "libevent_core", header = "event2/event.h", libs = ["event_core"], package = "libevent-dev"),
}

def weft_dependencies():
    """Declares what a WORKSPACE that uses @weft needs, except what it has declared already."""
    _archives()
    for name, described in SYSTEM_LIBRARIES.items():
        if not native.existing_rule(name):
            system_library(name = name, target = name, **described)
