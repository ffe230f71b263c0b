"""Teams and collectives on arrays.

    team = await weft.teams.create(worker)          # the processes that weft-run, or `python -m weft.run`, started
    total = await team.allreduce(numpy.arange(8.0))

Arrays are contiguous buffers of one element type, which is found by their format: numpy arrays, memoryviews, array.array.
Without `out`, a result is made of what `src` is: numpy in, numpy out; else a memoryview of that format.
All members call the same collectives in the same order. After an error the team has failed, and refuses further ones.
"""
from __future__ import annotations

import array
import copy
import pickle

from . import _arrays, _core, errors
from ._worker import milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from ._endpoint import Endpoint
    from ._worker import Worker

_KINDS = ("barrier", "bcast", "allreduce", "allgather", "fanin", "fanout", "gather", "gatherv", "scatter", "scatterv", "reduce",
          "reduce_scatter", "reduce_scatterv", "allgatherv", "alltoall", "alltoallv", "scan", "exscan", "neighbor_alltoallv")
_KIND = {name: number for number, name in enumerate(_KINDS)}
_REDUCTION = {name: number for number, name in enumerate(
    ("sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor", "minloc", "maxloc", "avg"))}
# By name, as numpy has them, too: for formats that say less than they should (bfloat16 is seen as uint16).
DATATYPES = {"int8": 0, "int16": 1, "int32": 2, "int64": 3, "uint8": 4, "uint16": 5, "uint32": 6, "uint64": 7, "float16": 8,
             "bfloat16": 9, "float32": 10, "float64": 11, "longdouble": 12, "complex64": 13, "complex128": 14,
             # a value and an index, for minloc and maxloc: numpy.dtype([("value", "f4"), ("index", "i4")], align=True)
             "float32_int32": 15, "float64_int32": 16, "int32_int32": 17, "int64_int32": 18}
# Bytes of an element, in the order of these.
_SIZES = (1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 16, 8, 16, 8, 16, 8, 16)
_SIGNED, _UNSIGNED = {1: 0, 2: 1, 4: 2, 8: 3}, {1: 4, 2: 5, 4: 6, 8: 7}
_FLOATS = {"e": 8, "f": 10, "d": 11, "g": 12, "Zf": 13, "Zd": 14}
FIXED_ORDER, SAFE = _core.COLL_FIXED_ORDER, _core.COLL_SAFE
NO_COLOUR = 0xFFFFFFFF
_ALL_FLAGS = 0xFFFFFFFFFFFFFFFF


class Datatype:
    """An element type of the program's own (Team.datatype). `size`: bytes of an element as it is sent; `extent`: from an
    element to the next in memory; `span`: what one reaches over."""

    def __init__(self, number: int, size: int, extent: int, span: int, is_packed: bool = False) -> None:
        self.number, self.size, self.extent, self.span = number, size, extent, span
        self.is_packed = is_packed  # by objects of the program

    def count(self, nbytes: int) -> int:
        """The whole elements that lie in so many bytes."""
        return 0 if nbytes < self.span else (nbytes - self.span) // self.extent + 1


class Reduction:
    """A reduction of the program's own (Team.reduction), for elements of `size` bytes."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size


def _named(what: str, name: str, known: dict[str, int]) -> int:
    if name not in known:
        raise errors.InvalidParamError("%s %r: not one of %s" % (what, name, ", ".join(known)))
    return known[name]


def _type_of(view: memoryview, dtype: str | Datatype | None) -> int:
    if isinstance(dtype, Datatype):
        return dtype.number
    if dtype is not None:
        return _named("dtype", dtype, DATATYPES)
    format = view.format.lstrip("@=<")
    if format in _FLOATS:
        return _FLOATS[format]
    if format and format in "bhilqn":
        return _SIGNED[view.itemsize]
    if format and format in "BHILQN?c":
        return _UNSIGNED[view.itemsize]
    raise errors.UnsupportedError("no element type for the format %r; dtype= names one, or team.datatype makes one" % view.format)


def _held(nbytes: int, dtype: Datatype | None, number: int) -> int:
    """The whole elements that lie in so many bytes."""
    return dtype.count(nbytes) if dtype is not None else nbytes // _SIZES[number]


def _count(view: memoryview, dtype: str | Datatype | None) -> int:
    if isinstance(dtype, Datatype):
        return dtype.count(view.nbytes)
    size = _SIZES[_type_of(view, dtype)]
    if view.nbytes % size:
        raise errors.InvalidParamError("%d bytes are not whole elements of %d bytes" % (view.nbytes, size))
    return view.nbytes // size


def _view(array: Any, writes: bool = False) -> Any:
    """A memoryview, or a Block of GPU memory, which has the same attributes."""
    view: Any = _arrays.device_block(array)
    if view is None:
        view = _arrays.host_view(array, writes)
    if not view.c_contiguous:
        raise errors.InvalidParamError("collectives need arrays that are contiguous in C's order (numpy.ascontiguousarray)")
    return view


def _like(source: Any, view: memoryview, count: int, whole: bool, dtype: str | Datatype | None) -> Any:
    """A new array of `count` elements of the source's type; `whole`: of its shape."""
    if isinstance(dtype, Datatype):
        if dtype.extent != dtype.size:
            raise errors.UnsupportedError("elements with gaps need out=")
        if dtype.size % view.itemsize:
            raise errors.UnsupportedError("elements of %d bytes in an array of %d need out=" % (dtype.size, view.itemsize))
        count *= dtype.size // view.itemsize
    if isinstance(view, _core.Block):
        raise errors.UnsupportedError("GPU memory needs out=")
    if dtype is not None and not isinstance(dtype, Datatype):  # in items of the array, which may be smaller than elements
        count = count * _SIZES[_type_of(view, dtype)] // view.itemsize
    if type(source).__module__ == "numpy":
        import numpy

        return numpy.empty_like(source) if whole else numpy.empty(count, source.dtype)
    made: Any = _core.Block(count * view.itemsize)
    block: Any = memoryview(made)
    return block.cast(view.format.lstrip("@=<")) if view.format.lstrip("@=<") in "bBhHiIlLqQnNfd?c" else block


class Team:
    """A numbered group of workers. `rank` is this member's, `size` the number of members."""

    def __init__(self, core: _core.Team) -> None:
        self._core = core
        self.rank: int = core.rank
        self.size: int = core.size
        self._endpoints: dict[int, Endpoint] = {}
        self._tagged: tuple[int, int, int, int] | None = None
        self._members: range | None = None
        self._flags = 0
        self._prepared: list[Any] | None = None  # of one that describes a persistent collective
        self._types: dict[int, Datatype] = {}

    def __repr__(self) -> str:
        return "<weft.Team: rank %d of %d%s>" % (self.rank, self.size, ", closed" if self._core.closed else "")

    # ---- what a collective is, besides its kind ----

    def tagged(self, tag: int, members: Sequence[int] | None = None) -> Team:
        """This team, whose collectives match by a tag of 64 bits: all others may come before or after them, in any order.

        members: the ranks that take part and call it, in steps of one size (`range(0, 8, 2)`); `rank`, `size` and roots are
        then counted among these. It is not closed: it is a way to call collectives of this team.
        """
        part = copy.copy(self)
        part._tagged = (tag, 0, 0, 0)
        if members is None:
            return part
        whole = list(members)
        step = whole[1] - whole[0] if len(whole) > 1 else 1
        if not whole or step <= 0 or whole != list(range(whole[0], whole[-1] + 1, step)):
            raise errors.InvalidParamError("members are ranks in ascending steps of one size")
        if self._members is not None or self.rank not in whole:
            raise errors.InvalidParamError("this rank is none of the members, or some have been named before")
        part._members = range(whole[0], whole[-1] + 1, step)
        part._tagged = (tag, whole[0], step, len(whole))
        part.rank, part.size = whole.index(self.rank), len(whole)
        return part

    @property
    def safe(self) -> Team:
        """This team, whose collectives end with an agreement: all members that are left get one outcome."""
        part = copy.copy(self)
        part._flags |= SAFE
        return part

    def persistent(self, kind: str, *args: Any, **kwargs: Any) -> Persistent:
        """Describes a collective once: `team.persistent("allreduce", src, out)` takes what `team.allreduce` takes, but for the
        deadline, which is of a start. `await p.start()` runs it, any number of times, with the same arrays; `p.out` is its
        result. Errors: as those of the collective; UnsupportedError for types with gaps."""
        if kind not in _KIND:
            raise errors.InvalidParamError("no collective %r" % kind)
        describing = copy.copy(self)
        describing._prepared = []
        try:
            getattr(describing, kind)(*args, **kwargs).send(None)
        except StopIteration as end:
            [(made, reduction, type)] = describing._prepared
            return Persistent(self, made, end.value, reduction, type)
        raise errors.BusyError("a collective that is described does not wait")

    def datatype(self, size: int, *, strided: tuple[int, int, int] | None = None, extent: int | None = None,
                 layout: Callable[[memoryview, int], Any] | None = None) -> Datatype:
        """An element type of the program's own, for `dtype=`. It ends with the team; every member makes its own.

        size: bytes of an element as it is sent. strided: how it lies in memory, as (block, stride, count): `count` blocks of
        `block` bytes, each `stride` bytes after the previous one; count × block is `size`. extent: bytes from an element to
        the next (default: what one reaches over).

        layout: instead of strided: layout(memory, count) gives an object that packs `count` elements, which lie in `memory`,
        `extent` bytes (default: size) each. It has pack(offset, to) and unpack(offset, data), as a weft.Layout; the packed
        form has `size` bytes an element. They are called when a collective begins or in the worker's progress, keep no view
        and call nothing of weft. What they raise ends the collective here, with that exception, and revokes the team.
        KeyboardInterrupt and SystemExit are raised by the call that drives the worker, and the collective ends as CancelledError.
        Errors: InvalidParamError.
        """
        if strided and layout:
            raise errors.InvalidParamError("strided, or a layout")
        block, stride, count = strided or (0, 0, 0)
        span = (count - 1) * stride + block if strided else size
        extent = span if extent is None else extent
        if layout:
            span = extent
        made = Datatype(self._core.datatype(size, extent, block, stride, count, layout), size, extent, span, layout is not None)
        self._types[made.number] = made
        return made

    def reduction(self, fn: Callable[[memoryview, memoryview, memoryview], Any], size: int, *, commutes: bool = False) -> Reduction:
        """A reduction of the program's own, for `op=`. It ends with the team; every member makes its own.

        fn(left, right, out) is called in the worker's progress, with bytes of any number of elements of `size` bytes each: it
        sets out[i] = left[i] op right[i], keeps no view, and calls nothing of weft. It must be associative; without
        `commutes` operands come in the order of ranks. What it raises ends the collective here, with that exception, and
        revokes the team: results of that collective elsewhere are undefined. KeyboardInterrupt and SystemExit are raised by the
        call that drives the worker, and the collective ends as CancelledError.
        """
        return Reduction(self._core.reduction(fn, size, commutes), size)

    async def _ended(self, post: Any, reduction: int, type: int) -> None:
        """With a reduction or a type that calls functions of the program, by numbers that this collective has alone."""
        is_interrupted = False  # the wait, by a cancellation or an exit: that goes on
        try:
            request = post()
            if request is not None:
                await self._core.worker.complete(request)
        except Exception:
            raise
        except BaseException:
            is_interrupted = True
            raise
        finally:
            raised = self._core.raised(reduction, type)
            if raised is not None:
                self.revoke()
                if not is_interrupted:
                    raise raised

    def _check_rank(self, name: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise errors.InvalidParamError("%s %d is not below %d" % (name, rank, self.size))

    async def _post(self, kind: str, src: Any, dst: Any, count: int, type: int, *, op: str | Reduction = "sum", root: int = 0,
                    counts: Any = (None, None, None, None), in_place: bool = False, deadline: float | None = None,
                    flags: int = 0, graph: Any = None) -> None:
        if graph is None:
            self._one_each(*counts)
        counts = tuple(None if numbers is None else tuple(numbers) for numbers in counts)
        self._check_rank("root", root)
        if self._members is not None:
            root = self._members[root]
        reduction = self._reduction_of(op, type, src)
        rest = (root, src, dst, count, counts, in_place, self._tagged, graph)
        flags |= self._flags
        if self._prepared is not None:
            if deadline is not None:
                raise errors.InvalidParamError("the deadline of a persistent collective is that of a start")
            taken = self._core.take(reduction, type)
            try:
                self._prepared.append((self._core.prepare((_KIND[kind], taken[1], taken[0], *rest), flags), *taken))
            except BaseException:
                self._core.give_back(*taken)
                raise
        elif isinstance(op, Reduction) or type in self._types:
            if type in self._types and self._types[type].is_packed and isinstance(dst if src is None else src, _core.Block):
                raise errors.UnsupportedError("objects of the program pack host memory alone")
            taken = self._core.take(reduction, type)
            try:
                await self._ended(lambda: self._core.post((_KIND[kind], taken[1], taken[0], *rest), milliseconds(deadline), flags), *taken)
            finally:
                self._core.give_back(*taken)
        else:
            request = self._core.post((_KIND[kind], type, reduction, *rest), milliseconds(deadline), flags)
            if request is not None:
                await self._core.worker.complete(request)

    def _reduction_of(self, op: str | Reduction, type: int, src: Any) -> int:
        if not isinstance(op, Reduction):
            return _named("op", op, _REDUCTION)
        size = self._types[type].size if type in self._types else _SIZES[type]
        if size != op.size:
            raise errors.InvalidParamError("a reduction of %d bytes an element, and elements of %d" % (op.size, size))
        return op.number

    def _one_each(self, *lists: Sequence[int] | None) -> None:
        if any(numbers is not None and len(numbers) != self.size for numbers in lists):
            raise errors.InvalidParamError("counts and displacements have an element for each member")

    @staticmethod
    def _hold(view: memoryview | None, wanted: int, what: str, dtype: str | Datatype | None, other: memoryview) -> None:
        """Whether an array has the elements of the other one, whose type the collective has, and as many as it will read or
        write. An array of bytes holds any."""
        type = _type_of(other, dtype)
        own = dtype if isinstance(dtype, Datatype) else None
        if view is not None and dtype is None and view.itemsize > 1 and _type_of(view, None) != type:
            raise errors.InvalidParamError("%s has elements of the format %r, and the other array of %r" %
                                           (what, view.format, other.format))
        have = 0 if view is None else _held(view.nbytes, own, type)
        if have < wanted:
            raise errors.InvalidParamError("%s has %d elements, and %d are needed" % (what, have, wanted))

    # ---- without data ----

    async def barrier(self, *, deadline: float | None = None) -> None:
        """Ends when every member has called it."""
        await self._post("barrier", None, None, 0, 0, deadline=deadline)

    async def fanin(self, root: int = 0, *, deadline: float | None = None) -> None:
        """Ends at the root when every member has called it."""
        await self._post("fanin", None, None, 0, 0, root=root, deadline=deadline)

    async def fanout(self, root: int = 0, *, deadline: float | None = None) -> None:
        """Ends when the root has called it."""
        await self._post("fanout", None, None, 0, 0, root=root, deadline=deadline)

    # ---- the same on all members ----

    async def bcast(self, array: Any, root: int = 0, *, dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """Copies the root's array into every member's, which has its type and size."""
        view = _view(array, True)
        await self._post("bcast", None, view, _count(view, dtype), _type_of(view, dtype), root=root, deadline=deadline)
        return array

    async def _same(self, kind: str, src: Any, out: Any, op: str | Reduction, dtype: str | Datatype | None, deadline: float | None, flags: int = 0,
                    root: int = 0, keeps: bool = True) -> Any:
        """`out` has the elements of `src`; the two may be one array."""
        view = _view(src)
        count = _count(view, dtype)
        if keeps and out is None:
            out = _like(src, view, count, True, dtype)
        to = _view(out, True) if keeps else None
        if keeps:
            self._hold(to, count, "out", dtype, view)
        await self._post(kind, view, to, count, _type_of(view, dtype), op=op, root=root, in_place=keeps and out is src,
                         deadline=deadline, flags=flags)
        return out if keeps else None

    async def allreduce(self, src: Any, out: Any = None, op: str | Reduction = "sum", *, fixed_order: bool = False, dtype: str | Datatype | None = None,
                        deadline: float | None = None) -> Any:
        """Reduces all members' arrays, element by element. `out` may be `src`. op: "sum", "prod", "min", "max", "band", "bor",
        "bxor", "land", "lor", "lxor", "avg", "minloc", "maxloc", or a Reduction. fixed_order: floating-point results are bit-identical for every algorithm."""
        return await self._same("allreduce", src, out, op, dtype, deadline, FIXED_ORDER if fixed_order else 0)

    async def reduce(self, src: Any, out: Any = None, op: str | Reduction = "sum", root: int = 0, *, dtype: str | Datatype | None = None,
                     deadline: float | None = None) -> Any:
        """As allreduce, at the root only; None elsewhere."""
        return await self._same("reduce", src, out, op, dtype, deadline, root=root, keeps=self.rank == root)

    async def scan(self, src: Any, out: Any = None, op: str | Reduction = "sum", *, dtype: str | Datatype | None = None,
                   deadline: float | None = None) -> Any:
        """Reduces the arrays of ranks 0 up to this one."""
        return await self._same("scan", src, out, op, dtype, deadline)

    async def exscan(self, src: Any, out: Any = None, op: str | Reduction = "sum", *, dtype: str | Datatype | None = None,
                     deadline: float | None = None) -> Any:
        """Reduces the arrays of the ranks below this one. Rank 0's `out` stays as it was; without `out` it is undefined."""
        return await self._same("exscan", src, out, op, dtype, deadline)

    # ---- a part for each member ----

    async def _parts(self, kind: str, src: Any, out: Any, n_src: int, n_out: int, dtype: str | Datatype | None, deadline: float | None,
                     op: str | Reduction = "sum", root: int = 0, keeps: bool = True) -> Any:
        """src has n_src × count elements and out n_out × count, where count is of one part."""
        view = _view(src)
        total = _count(view, dtype)
        if total % n_src:
            raise errors.InvalidParamError("%d elements are not %d equal parts" % (total, n_src))
        count = total // n_src
        if keeps and out is None:
            out = _like(src, view, count * n_out, False, dtype)
        to = _view(out, True) if keeps else None
        if keeps:
            self._hold(to, count * n_out, "out", dtype, view)
        await self._post(kind, view, to, count, _type_of(view, dtype), op=op, root=root, deadline=deadline)
        return out if keeps else None

    async def allgather(self, src: Any, out: Any = None, *, dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """All members' arrays, in the order of ranks: size × the elements of `src`."""
        return await self._parts("allgather", src, out, 1, self.size, dtype, deadline)

    async def gather(self, src: Any, out: Any = None, root: int = 0, *, dtype: str | Datatype | None = None,
                     deadline: float | None = None) -> Any:
        """As allgather, at the root only; None elsewhere."""
        return await self._parts("gather", src, out, 1, self.size, dtype, deadline, root=root, keeps=self.rank == root)

    async def alltoall(self, src: Any, out: Any = None, *, dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """The r-th of the equal parts of `src` goes to rank r."""
        return await self._parts("alltoall", src, out, self.size, self.size, dtype, deadline)

    async def reduce_scatter(self, src: Any, out: Any = None, op: str | Reduction = "sum", *, dtype: str | Datatype | None = None,
                             deadline: float | None = None) -> Any:
        """Reduces all arrays; rank r gets the r-th of the equal parts of the result."""
        return await self._parts("reduce_scatter", src, out, self.size, 1, dtype, deadline, op=op)

    async def scatter(self, src: Any, out: Any, root: int = 0, *, dtype: str | Datatype | None = None,
                      deadline: float | None = None) -> Any:
        """Rank r gets the r-th part of the root's `src` in `out`, which is as large as a part. `src` is used at the root only."""
        to = _view(out, True)
        count = _count(to, dtype)
        view = _view(src) if self.rank == root else None
        if self.rank == root:
            self._hold(view, count * self.size, "src", dtype, to)
        await self._post("scatter", view, to, count, _type_of(to, dtype), root=root, deadline=deadline)
        return out

    # ---- parts of different sizes: counts and displacements in elements ----

    async def allgatherv(self, src: Any, counts: Sequence[int], out: Any = None, displs: Sequence[int] | None = None, *,
                         dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """counts[r] elements of rank r, at displs[r] of `out`, or in a row. Counts are equal on all members."""
        self._one_each(counts, displs)
        view = _view(src)
        self._hold(view, counts[self.rank], "src", dtype, view)
        if out is None:
            out = _like(src, view, _extent(counts, displs), False, dtype)
        to = _view(out, True)
        self._hold(to, _extent(counts, displs), "out", dtype, view)
        await self._post("allgatherv", view, to, counts[self.rank], _type_of(view, dtype), counts=(None, None, counts, displs),
                         deadline=deadline)
        return out

    async def gatherv(self, src: Any, counts: Sequence[int], out: Any = None, displs: Sequence[int] | None = None,
                      root: int = 0, *, dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """As allgatherv, at the root only; None elsewhere. `counts` is read at the root, where it is what each rank sends."""
        view = _view(src)
        at_root = self.rank == root
        if at_root and out is None:
            out = _like(src, view, _extent(counts, displs), False, dtype)
        to = _view(out, True) if at_root else None
        if at_root:
            self._hold(to, _extent(counts, displs), "out", dtype, view)
        await self._post("gatherv", view, to, _count(view, dtype), _type_of(view, dtype), root=root,
                         counts=(None, None, counts if at_root else None, displs if at_root else None), deadline=deadline)
        return out if at_root else None

    async def scatterv(self, src: Any, counts: Sequence[int] | None, out: Any, displs: Sequence[int] | None = None,
                       root: int = 0, *, dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """Rank r gets counts[r] elements of the root's `src` in `out`, which is that large. src, counts: at the root."""
        to = _view(out, True)
        at_root = self.rank == root
        view = _view(src) if at_root else None
        if at_root:
            self._hold(view, _extent(counts or (), displs), "src", dtype, to)
        await self._post("scatterv", view, to, _count(to, dtype), _type_of(to, dtype), root=root,
                         counts=(counts if at_root else None, displs if at_root else None, None, None), deadline=deadline)
        return out

    async def reduce_scatterv(self, src: Any, counts: Sequence[int], out: Any = None, op: str | Reduction = "sum", *,
                              dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """Reduces all arrays; rank r gets counts[r] elements of the result, in a row. Counts are equal on all members."""
        self._one_each(counts)
        view = _view(src)
        self._hold(view, sum(counts), "src", dtype, view)
        if out is None:
            out = _like(src, view, counts[self.rank], False, dtype)
        to = _view(out, True)
        self._hold(to, counts[self.rank], "out", dtype, view)
        await self._post("reduce_scatterv", view, to, 0, _type_of(view, dtype), op=op, counts=(counts, None, None, None),
                         deadline=deadline)
        return out

    async def alltoallv(self, src: Any, src_counts: Sequence[int], dst_counts: Sequence[int], out: Any = None, *,
                        src_displs: Sequence[int] | None = None, dst_displs: Sequence[int] | None = None,
                        dtype: str | Datatype | None = None, deadline: float | None = None) -> Any:
        """src_counts[r] elements go to rank r, and dst_counts[r] come from it."""
        view = _view(src)
        self._hold(view, _extent(src_counts, src_displs), "src", dtype, view)
        if out is None:
            out = _like(src, view, _extent(dst_counts, dst_displs), False, dtype)
        to = _view(out, True)
        self._hold(to, _extent(dst_counts, dst_displs), "out", dtype, view)
        await self._post("alltoallv", view, to, 0, _type_of(view, dtype), counts=(src_counts, src_displs, dst_counts, dst_displs),
                         deadline=deadline)
        return out

    async def neighbor_alltoallv(self, sources: Sequence[int], destinations: Sequence[int], src: Any, src_counts: Sequence[int],
                                 dst_counts: Sequence[int], out: Any = None, *, src_displs: Sequence[int] | None = None,
                                 dst_displs: Sequence[int] | None = None, dtype: str | Datatype | None = None,
                                 deadline: float | None = None) -> Any:
        """src_counts[i] elements go to rank destinations[i], and dst_counts[i] come from rank sources[i]. A rank may stand in
        a list several times: the k-th edge of two members in the one's list is the k-th in the other's."""
        for ranks, *lists in ((destinations, src_counts, src_displs), (sources, dst_counts, dst_displs)):
            if any(numbers is not None and len(numbers) != len(ranks) for numbers in lists):
                raise errors.InvalidParamError("counts and displacements have an element for each neighbour")
        view = _view(src)
        self._hold(view, _extent(src_counts, src_displs), "src", dtype, view)
        if out is None:
            out = _like(src, view, _extent(dst_counts, dst_displs), False, dtype)
        to = _view(out, True)
        self._hold(to, _extent(dst_counts, dst_displs), "out", dtype, view)
        await self._post("neighbor_alltoallv", view, to, 0, _type_of(view, dtype),
                         counts=(src_counts, src_displs, dst_counts, dst_displs), deadline=deadline,
                         graph=(tuple(sources), tuple(destinations)))
        return out

    # ---- objects ----

    async def bcast_obj(self, value: Any = None, root: int = 0, *, deadline: float | None = None) -> Any:
        """The root's object, on every member: anything that pickle can."""
        data = pickle.dumps(value, protocol=5) if self.rank == root else b""
        size = array.array("Q", [len(data)])
        await self.bcast(size, root, deadline=deadline)
        buffer = bytearray(data) if self.rank == root else bytearray(size[0])
        await self.bcast(buffer, root, deadline=deadline)
        return value if self.rank == root else pickle.loads(buffer)

    async def allgather_obj(self, value: Any, *, deadline: float | None = None) -> list[Any]:
        """All members' objects, in the order of ranks."""
        data = pickle.dumps(value, protocol=5)
        sizes = list(await self.allgather(array.array("Q", [len(data)]), deadline=deadline))
        everything = memoryview(await self.allgatherv(data, sizes, deadline=deadline))
        starts = [sum(sizes[:rank]) for rank in range(self.size)]
        return [pickle.loads(everything[at:at + size]) for at, size in zip(starts, sizes)]

    # ---- after a failure ----

    async def agree(self, flags: int = _ALL_FLAGS, *, deadline: float | None = None) -> tuple[int, list[int]]:
        """Agrees among the members that are left, also in a team that has failed: (the flags of all, ANDed; the ranks that are
        lost). All that are left call it."""
        if not -1 << 63 <= flags <= _ALL_FLAGS:
            raise errors.InvalidParamError("flags of more than 64 bits")
        request = self._core.post_agree(flags, milliseconds(deadline))
        agreed, bits = request if isinstance(request, tuple) else await self._core.worker.complete(request)
        words = memoryview(bits).cast("Q")
        return agreed, [rank for rank in range(self.size) if words[rank // 64] >> rank % 64 & 1]

    async def shrink(self, *, deadline: float | None = None) -> Team:
        """A team of the members that are left, in the order of their ranks; all that are left call it. This one must still be
        closed."""
        return Team(await self._core.worker.complete(self._core.post_shrink(milliseconds(deadline))))

    def revoke(self) -> None:
        """Ends the team for all members: their collectives fail."""
        self._core.revoke()

    def describe(self) -> dict[str, Any]:
        """A dict: rank, size, epoch, status, blamed, why, n_hosts, ranks_per_core, shares_memory."""
        return self._core.describe()

    # ---- members, parts of the team, and the end ----

    def endpoint(self, rank: int) -> Endpoint:
        """This side's endpoint to a member, for send_tag, am, streams and remote memory. What the member receives of it comes
        over an endpoint of its own: receive with Worker.recv. It ends with the team. Errors: InvalidParamError."""
        self._check_rank("rank", rank)
        ep = self._endpoints.get(rank)
        if ep is None:
            ep = self._endpoints[rank] = self._core.endpoint(rank)
            ep._join()
        return ep

    async def split(self, colour: int | None, key: int = 0, *, deadline: float | None = None) -> Team | None:
        """A team of the members that give one colour, ranked by key. None: this member takes part and gets no team."""
        request = self._core.post_split(NO_COLOUR if colour is None else colour, key, milliseconds(deadline))
        made = await self._core.worker.complete(request)
        return None if made.closed else Team(made)

    async def subset(self, ranks: Sequence[int], *, deadline: float | None = None) -> Team | None:
        """A team of the members that have these ranks, in this order. Every member of this team calls it, with the same
        ranks; None: this member is none of them. Errors: InvalidParamError for a rank that is out of range or named twice."""
        made = await self._core.worker.complete(self._core.post_subset(tuple(ranks), milliseconds(deadline)))
        return None if made.closed else Team(made)

    # ---- workers that join ----

    def invite(self) -> bytes:
        """An invitation: bytes with which a worker of any process joins at this member (weft.teams.join). It serves any number
        of workers as long as the team is open here. Any holder may join. Errors: BusyError."""
        return self._core.invite()

    async def grow(self, n: int, inviter: int = 0, *, deadline: float | None = None) -> Team:
        """A team of the members of this one, with their ranks, and of `n` workers that join by an invitation of rank
        `inviter`, with the next ranks. Every member calls it, in the same order as its collectives; the workers may come
        before or after that. This team stays usable, also after an error, and must still be closed.

        Errors: TimedOutError if too few workers came; PeerFailedError if one of them was lost.
        """
        return Team(await self._core.worker.complete(self._core.post_grow(inviter, n, milliseconds(deadline))))

    # ---- what is known ----

    def member(self, rank: int) -> dict[str, Any]:
        """A dict of a member: host (equal for members of one host), leader and host_rank, ranks_of_host, cores, address (of
        its worker), left (it has closed the team), n_late and late_ms (how often a collective has waited here for it for more
        than a second, and how long in all). Errors: InvalidParamError."""
        return self._core.member(rank)

    def algorithm(self, kind: str, nbytes: int, *, fixed_order: bool = False) -> str:
        """The name of the algorithm that a collective takes in this team, with so many bytes of each member."""
        return self._core.algorithm(_named("collective", kind, _KIND), nbytes, FIXED_ORDER if fixed_order else 0)

    async def close(self, *, deadline: float | None = None) -> None:
        """Closes the team on this side. A view's team ends with its view.

        deadline: seconds; then TimedOutError. The close goes on, and a further call waits for it. So it does when the task is
        cancelled.
        """
        await self._core.worker.end(self._core.post_close, deadline)

    @property
    def closed(self) -> bool:
        return self._core.closed


class Persistent:
    """A collective that was described once (Team.persistent). Any number of them may be under way at a time."""

    def __init__(self, team: Team, core: _core.Collective, out: Any, reduction: int, type: int) -> None:
        self._team, self._core = team, core
        self._reduction, self._type = reduction, type
        self.out = out

    async def start(self, *, deadline: float | None = None) -> Any:
        """Runs it with what the arrays hold now, and gives `out`. Starts stand in the order of the team's collectives, or of
        their tag. Errors: BusyError while it is under way; those of the collective."""
        await self._team._ended(lambda: self._core.post_start(milliseconds(deadline)), self._reduction, self._type)
        return self.out

    def free(self) -> None:
        """Gives its memory back, before the team is closed. BusyError while it is under way."""
        self._core.free()


def _extent(counts: Sequence[int], displs: Sequence[int] | None) -> int:
    """The elements that blocks reach over."""
    if displs is None:
        return sum(counts)
    return max((at + count for at, count in zip(displs, counts) if count), default=0)


async def create(worker: Worker, exchange: Any = "run", *, deadline: float | None = None,
                 collective_deadline: float | None = None, algorithms: str | None = None, transports: str | None = None,
                 ranks_per_core: int = 0) -> Team:
    """Makes a team.

    exchange: "run" (the processes that weft-run started; one process without it), "self" (this worker alone), or
    (rank, size, fn): fn(mine, finish) collects the bytes `mine` of all ranks and calls finish(all of them in rank order), on
    the worker's thread.
    collective_deadline: seconds that each collective may take (0: the setting coll.timeout).
    algorithms: choices of this team before those of the setting coll.algorithms, in its form; equal on all members.
    transports: of its endpoints, by commas, of those that the worker has opened; without "shm" it shares no memory.
    ranks_per_core: 0: it is computed.
    Errors: TimedOutError; InvalidParamError if the members' choices differ; PeerFailedError if a member cannot be reached, or
    is lost.
    """
    how: Any = {"run": True, "self": None}.get(exchange, False) if isinstance(exchange, str) else exchange
    if how is False or not isinstance(exchange, (str, tuple)):
        raise errors.InvalidParamError("exchange %r: not \"run\", \"self\" or (rank, size, fn)" % (exchange,))
    made = await worker.complete(worker.post_team(how, milliseconds(deadline), milliseconds(collective_deadline), algorithms,
                                                  transports, ranks_per_core))
    return Team(made)


async def join(worker: Worker, invitation: bytes, *, deadline: float | None = None) -> Team:
    """Joins a team by an invitation of one of its members (Team.invite), when that team grows.

    Errors: AddressError if the bytes are no invitation; ClosedError if the team has gone; TimedOutError.
    """
    return Team(await worker.complete(worker.post_join(invitation, milliseconds(deadline))))
