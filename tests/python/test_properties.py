"""Properties of all arrays, by hypothesis: type, strides, zero length, read-only, not contiguous. The same cases each time."""
import unittest

import weft
from weft import _arrays, _core

try:
    import numpy
    from hypothesis import HealthCheck, given, settings, strategies
except ImportError:
    numpy = None

if numpy is not None:
    ELEMENTS = strategies.sampled_from(["u1", "i1", "?", "u2", ">i2", "f2", "i4", "f4", "u8", ">f8", "c8", "c16", "S1", "S5", "g", "G"])

    @strategies.composite
    def strided(draw):
        """A view into an array: any dimensions, steps (negative ones, too), order of axes, and rights."""
        dtype = draw(ELEMENTS)
        dims = draw(strategies.lists(strategies.integers(0, 5), max_size=4))
        steps = [draw(strategies.sampled_from((-3, -2, -1, 1, 2, 3))) for _ in dims]
        whole = numpy.zeros([max(1, n * abs(step)) for n, step in zip(dims, steps)], dtype)
        data = draw(strategies.binary(min_size=8, max_size=8))
        raw = whole.reshape(-1).view("u1")
        raw[:] = numpy.resize(numpy.frombuffer(data, "u1"), raw.size) if dtype != "?" else raw % 2
        cut = whole[tuple(slice(None, None, step) for step in steps) + (...,)]
        cut = cut[tuple(slice(0, n) for n in dims) + (...,)]
        cut = numpy.transpose(cut, draw(strategies.permutations(range(cut.ndim))))
        if draw(strategies.booleans()):
            cut.flags.writeable = False
        return whole, cut

    repeatable = settings(max_examples=200, derandomize=True, database=None, deadline=None,
                          suppress_health_check=list(HealthCheck))


def of_numpy(test):
    return unittest.skipIf(numpy is None, "no hypothesis here")(test)


@of_numpy
class Properties(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = weft.Worker(polls=True, settings={"log.level": "error"})
        listener = cls.worker.listen()
        cls.client = cls.worker.connect_now(listener.uri)
        cls.server = cls.worker.run(listener.accept())
        cls.worker.run(cls.client.ready())
        listener.close()

    @classmethod
    def tearDownClass(cls):
        del cls.client, cls.server
        cls.worker.destroy()

    if numpy is not None:
        @repeatable
        @given(strided())
        def test_any_array_is_packed_in_the_order_of_its_elements(self, drawn):
            whole, array = drawn
            self.assertEqual(_core.pack(array), array.tobytes())

        @repeatable
        @given(strided(), strided())
        def test_any_array_is_sent_and_arrives_in_any_other(self, drawn, room):
            _, array = drawn
            sent = array.tobytes()
            whole, into = room
            self.worker.run(self.client.send(array))
            if not into.flags.writeable:
                with self.assertRaises((BufferError, ValueError)):
                    self.worker.run(self.server.recv(into))
                into = numpy.zeros(len(sent), "u1")
                whole = into
            before = whole.copy()
            if into.nbytes < len(sent):
                with self.assertRaises(weft.TruncatedError):
                    self.worker.run(self.server.recv(into))
                return
            self.assertEqual(self.worker.run(self.server.recv(into)), len(sent))
            self.assertEqual(into.tobytes()[:len(sent)], sent)
            # what lies between its elements, and after what came, is as it was
            self.assertEqual(self.untouched(whole, into, len(sent)), self.untouched(before, self.same(before, whole, into), len(sent)))

        @staticmethod
        def same(other, whole, view):
            """The view of another array that `view` is of `whole`."""
            at = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
            return numpy.ndarray(view.shape, view.dtype, other, at if view.size else 0, view.strides)

        @staticmethod
        def untouched(whole, view, n):
            """The bytes of `whole` without the first n bytes of `view`."""
            kept = whole.copy()
            out = Properties.same(kept, whole, view)
            flat = bytearray(out.tobytes())
            flat[:n] = bytes(n)
            out[...] = numpy.frombuffer(bytes(flat), out.dtype).reshape(out.shape) if out.size else out
            return kept.tobytes()

        @repeatable
        @given(strided())
        def test_any_array_is_taken_by_its_interface(self, drawn):
            _, array = drawn
            if not array.dtype.isnative or array.dtype.kind in "SG" or array.dtype.char in "gG":
                return

            class Offers:
                __array_interface__ = array.__array_interface__

            block = _arrays.from_array_interface(Offers)
            self.assertEqual(memoryview(block).readonly, not array.flags.writeable)
            self.assertEqual(memoryview(block).shape, array.shape)
            self.assertEqual(_core.pack(block), array.tobytes())

        @repeatable
        @given(strided())
        def test_dlpack_gives_back_what_it_took(self, drawn):
            _, array = drawn
            if not array.flags.writeable or array.dtype.kind not in "iufc" or not array.dtype.isnative or array.itemsize == 32 \
                    or array.dtype.char in "gG" or any(stride % array.itemsize for stride in array.strides):
                return
            block = _arrays.from_dlpack(array)
            back = numpy.from_dlpack(block)
            self.assertEqual((back.dtype, back.shape, back.tobytes()), (array.dtype, array.shape, array.tobytes()))
            if array.size:
                self.assertEqual(back.ctypes.data, array.ctypes.data)


if __name__ == "__main__":
    unittest.main()
