"""The files of the tree, for the tests that read them as text."""
import os


def paths(root, rooms):
    """The files of these folders, and files that are named themselves, from the root on. Links of Bazel lead to all that it built."""
    for room in rooms:
        if os.path.isfile(os.path.join(root, room)):
            yield room
        for folder, folders, names in os.walk(os.path.join(root, room), followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("bazel-") and name != "__pycache__")
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), root)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def texts(root, rooms, endings):
    """Those whose names end so, each with its text."""
    for path in paths(root, rooms):
        if path.endswith(endings):
            yield path, read(root, path)


def verdict(good, name):
    print("ok" if good else "not ok", name)
    return bool(good)
