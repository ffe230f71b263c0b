"""`pip install .` here: the extension, the library inside of it and weft-run are built by tools/build of the tree around
this folder.

Needs what tools/build needs (`tools/setup demo`), and the headers of Python. WEFT_BUILD names a folder of an earlier build;
WEFT_EXTENSION names an extension that is built already, and WEFT_RUN the weft-run beside it.
"""
import glob
import os
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


class Build(build_ext):
    """The extension, and beside it the program that `python -m weft.run` runs."""

    def build_extension(self, ext):
        extension, program = os.environ.get("WEFT_EXTENSION"), os.environ.get("WEFT_RUN")
        if not extension:
            extension, program = self.build_by_make()
        target = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(extension, target)
        if program:
            copy = shutil.copy(program, os.path.join(os.path.dirname(target), "weft-run"))
            os.chmod(copy, 0o755)
            if shutil.which("strip"):
                subprocess.run(["strip", copy], check=True)

    def build_by_make(self):
        out = os.path.realpath(os.environ.get("WEFT_BUILD") or os.path.join(self.build_temp, "weft"))
        program = os.path.join(out, "tools/weft-run")
        environ = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([os.path.join(ROOT, "tools/build"), "--out", out, "python", program], check=True, env=environ)
        [extension] = glob.glob(os.path.join(out, "python/weft/_core*.so"))
        return extension, program


setup(
    packages=["weft"] + ["weft." + name for name in ("benchmarks", "compat") if os.path.isdir(os.path.join(HERE, "weft", name))],
    package_data={"weft": ["py.typed", "*.pyi"]},
    ext_modules=[Extension("weft._core", sorted(glob.glob("src/*.c")), py_limited_api=not FREE_THREADED)],
    cmdclass={"build_ext": Build},
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
