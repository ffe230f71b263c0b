"""examples/*.py, each as a program."""
import os
import subprocess
import sys
import unittest

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")


class Examples(unittest.TestCase):
    def test_echo_answers_each_text(self):
        program = [sys.executable, os.path.join(EXAMPLES, "echo.py")]
        with subprocess.Popen([*program, "serve"], stdout=subprocess.PIPE, text=True) as server:
            try:
                address = server.stdout.readline().strip()
                for _ in range(2):
                    asked = subprocess.run([*program, address, "hello", "", "wörld"], stdout=subprocess.PIPE, text=True, timeout=200)
                    self.assertEqual(asked.returncode, 0)
                    self.assertEqual(asked.stdout, "answer: hello\nanswer: \nanswer: wörld\n")
            finally:
                server.kill()

    def test_gpu_arrays_comes_back_doubled(self):
        try:
            import numpy  # noqa: F401: what the example uses where there is no GPU
        except ImportError:
            raise unittest.SkipTest("no NumPy here") from None
        program = [sys.executable, os.path.join(EXAMPLES, "gpu_arrays.py")]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
            try:
                address = server.stdout.readline().strip()
                asked = subprocess.run([*program, address], stdout=subprocess.PIPE, text=True, timeout=200)
                self.assertEqual(asked.returncode, 0)
                self.assertIn("numbers came back doubled", asked.stdout)
                self.assertEqual(server.wait(60), 0)
            finally:
                server.kill()
