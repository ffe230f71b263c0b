"""Reads what callgrind counted."""

import collections
import os
import re


def read_profile(path, apart_names):
    """Instructions by object, by object and function, and what calls of `apart_names` took with all that they called."""
    names = {"ob": {}, "fn": {}}
    objects, functions, apart = collections.Counter(), collections.Counter(), 0
    now = {"ob": "", "fn": ""}
    called, skip = "", False

    def name_of(kind, text):
        match = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not match:
            return text
        if match[2]:
            names[kind][match[1]] = match[2]
        return names[kind][match[1]]

    with open(path) as lines:
        for line in lines:
            line = line.rstrip("\n")
            key, equals, value = line.partition("=")
            if equals and key in ("ob", "fn"):
                now[key] = name_of(key, value)
            elif equals and key == "cob":
                name_of("ob", value)
            elif equals and key == "cfn":
                called = name_of("fn", value)
            elif equals and key == "calls":
                skip = True
            elif re.match(r"[0-9+*-]", line):
                cost = line.split()
                cost = int(cost[1]) if len(cost) > 1 else 0
                if skip:
                    apart += cost if called.startswith(apart_names) else 0
                    skip = False
                else:
                    objects[os.path.basename(now["ob"])] += cost
                    functions[os.path.basename(now["ob"]), now["fn"]] += cost
    return objects, functions, apart
