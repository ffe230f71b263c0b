"""The stubs of the extension name what it has."""
import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import weft
from weft import _core, errors


class Stubs(unittest.TestCase):
    def test_the_stubs_name_what_the_extension_has(self):
        with open(os.path.join(os.path.dirname(weft.__file__), "_core.pyi")) as file:
            classes = [node for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)]
        self.assertEqual({node.name for node in classes}, {name for name in dir(_core) if isinstance(getattr(_core, name), type)})
        for node in classes:
            named = {item.name if isinstance(item, ast.FunctionDef) else item.target.id for item in node.body
                     if not isinstance(item, ast.Expr)}
            there = vars(getattr(_core, node.name))
            self.assertEqual({name for name in named if not name.startswith("__")},
                             {name for name in there if not name.startswith("__")}, node.name)

    def test_the_stubs_name_every_error(self):
        with open(os.path.join(os.path.dirname(weft.__file__), "errors.pyi")) as file:
            named = {node.name: node for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)}
        self.assertEqual(set(named), set(errors.__all__))
        for name, node in named.items():
            bases = [base.__name__ for base in getattr(errors, name).__bases__]
            self.assertEqual([base.id for base in node.bases], [base for base in bases if base != "Exception" or node.bases])

    @unittest.skipIf(importlib.util.find_spec("mypy") is None, "no mypy here")
    @unittest.skipIf("WEFT_TEST_SANITIZER" in os.environ, "mypy is run without a sanitizer")
    def test_stubtest_finds_the_stubs_right(self):
        here = os.path.dirname(os.path.abspath(__file__))
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run([sys.executable, "-m", "mypy.stubtest", "weft._core", "weft.errors", "--concise",
                                   "--ignore-unused-allowlist", "--allowlist", os.path.join(here, "stubtest.allow")],
                                  capture_output=True, text=True, cwd=folder,
                                  env={**os.environ, "MYPYPATH": os.path.dirname(os.path.dirname(weft.__file__))})
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)


class Import(unittest.TestCase):
    def test_an_import_brings_no_module_that_it_does_not_need(self):
        said = subprocess.run([sys.executable, "-c", "import sys; before = set(sys.modules); import weft; "
                               "print(*set(sys.modules) - before); weft.teams.create, weft.rma.Remote"],
                              capture_output=True, text=True, check=True).stdout.split()
        self.assertIn("weft._core", said)
        self.assertEqual({"asyncio", "pickle", "hashlib", "typing", "numpy", "weft.teams"} & set(said), set())
        with self.assertRaises(AttributeError):
            weft.nothing


if __name__ == "__main__":
    unittest.main()
