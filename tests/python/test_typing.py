"""The stubs of the extension name what it has, and types of the package agree."""
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

    def test_what_takes_no_keywords_takes_none_in_the_stubs(self):
        with open(os.path.join(os.path.dirname(weft.__file__), "_core.pyi")) as file:
            classes = {node.name: node for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)}
        looked = set()
        with weft.Worker(transports="self") as worker:
            team, view = worker.run(weft.teams.create(worker, "self")), worker.run(weft.view.open(worker, "single"))
            region, graph = worker.alloc(8), weft.graph.Graph(1)
            collective = team.persistent("barrier")._core
            for instance in worker, team._core, view._core, region, graph._core, collective, weft.Block(8), weft.Layout():
                cls = next(cls for cls in type(instance).__mro__ if cls.__module__ == "weft._core")
                for item in classes[cls.__name__].body:
                    if not isinstance(item, ast.FunctionDef) or len(item.args.args) + len(item.args.posonlyargs) < 2 or \
                            item.name in ("__new__", "__buffer__"):
                        continue
                    with self.assertRaises(TypeError) as caught:
                        getattr(cls, item.name)(instance, _no_such_argument=1)
                    takes_none = "takes no keyword arguments" in str(caught.exception)
                    self.assertEqual(bool(item.args.posonlyargs), takes_none, (cls, item.name))
                    looked.add(item.name)
            worker.run(view.release())
            worker.run(team.close())
            graph.close()
        self.assertLessEqual({"progress", "wait", "post_connect", "alloc", "post_split", "at", "add", "__dlpack__"}, looked)

    def test_the_stubs_name_every_error(self):
        with open(os.path.join(os.path.dirname(weft.__file__), "errors.pyi")) as file:
            named = {node.name: node for node in ast.parse(file.read()).body if isinstance(node, ast.ClassDef)}
        self.assertEqual(set(named), set(errors.__all__))
        for name, node in named.items():
            bases = [base.__name__ for base in getattr(errors, name).__bases__]
            self.assertEqual([base.id for base in node.bases], [base for base in bases if base != "Exception" or node.bases])


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "no mypy here")
@unittest.skipIf("WEFT_TEST_SANITIZER" in os.environ, "mypy is run without a sanitizer")
class Types(unittest.TestCase):
    def said_by(self, *command, paths):
        """(code, text) of a module of mypy, with the package among these paths, wherever this test was started.

        mypy does not report what it finds in PYTHONPATH. stubtest imports the extension, and needs it there.
        """
        package = os.path.dirname(os.path.dirname(os.path.abspath(weft.__file__)))
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": "", **dict.fromkeys(paths, package)})
        return said.returncode, said.stdout + said.stderr

    def test_stubtest_finds_the_stubs_right(self):
        allowed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stubtest.allow")
        code, text = self.said_by("mypy.stubtest", "weft._core", "weft.errors", "--concise", "--ignore-unused-allowlist",
                                  "--allowlist", allowed, paths=("PYTHONPATH", "MYPYPATH"))
        self.assertEqual(code, 0, text)

    def test_mypy_finds_the_package_right(self):
        code, text = self.said_by("mypy", "--no-site-packages", "--ignore-missing-imports", "-p", "weft", paths=("MYPYPATH",))
        self.assertEqual(code, 0, text)
        self.assertIn("no issues found", text)


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
