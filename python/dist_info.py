"""python/dist_info.py FOLDER: writes what an installation of the package says of it, weft-VERSION.dist-info, into FOLDER.

A package that is only on PYTHONPATH is then known by its version and its entry points, too: Dask finds weft:// there.
"""
import os
import sys
import tomllib


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    folder = os.path.join(sys.argv[1], "%s-%s.dist-info" % (project["name"], project["version"]))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "METADATA"), "w", encoding="utf-8") as file:
        file.write("Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (project["name"], project["version"]))
    with open(os.path.join(folder, "entry_points.txt"), "w", encoding="utf-8") as file:
        for group, points in project["entry-points"].items():
            file.write("[%s]\n" % group + "".join("%s = %s\n" % point for point in points.items()))


if __name__ == "__main__":
    main()
