#!/usr/bin/env python3
"""Words that Weft's identifiers, settings, counters, log lines, error texts and comments do not use.

docs/glossary.md has the words that Weft does use. All folders are covered, the tests and tools too.
"""
import os
import re
import sys

ROOMS = ["include", "fsm", "base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime", "tests", "tools",
         "bench", "examples", "python", "integrations"]
SOURCE = re.compile(r"\.(c|h|def|fsm|inc|cpp|hpp)$")
TOKENS = re.compile(r'(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|\b[A-Za-z_]\w*\b)', re.S)

# word: what to use
BANNED = {
    "tell": "notify", "tells": "notifies", "told": "notified", "say": "send", "says": "sends", "said": "sent",
    "hear": "recv", "hears": "receives", "heard": "received", "unheard": "uncached", "seldom": "slow", "mostly": "fast",
    "lend": "expose", "lends": "exposes", "lent": "in_flight or exposed", "loan": "exposure", "loans": "exposures",
    "borrow": "zcopy", "borrows": "zcopy", "joint": "split_copy",
    "hush": "quiesce", "unhush": "resume", "calm": "quiesced", "patience": "timeout or spin", "lull": "backoff",
    "hall": "slot_table", "shelf": "tx_slot", "shelves": "tx_slots", "bell": "doorbell", "bells": "doorbells",
    "commons": "process_globals", "several": "op_group", "spread": "rail_ranges", "owed": "outstanding", "owe": "add",
    "forgive": "drop", "aside": "backlog", "bargain": "negotiation", "worth": "check", "companion": "aux_link",
    "guest": "accepted", "guests": "accepted", "rival": "duplicate", "greet": "handshake", "greets": "handshake",
    "greeting": "handshake", "introduce": "watch_process", "introduction": "process_watch", "wish": "opts",
    "ghost": "zombie", "spoilt": "poisoned", "doomed": "destroying", "stray": "forked_child", "bury": "free_later",
    "buried": "freed", "graveyard": "free_list", "stranger": "unverified", "strangers": "unverified",
    "hungry": "starved", "nowhere": "discard", "sheet": "iov_batch", "letter": "desc", "letters": "descs",
    "anew": "again", "nobody": "noop", "mover": "copy_job", "residence": "min_hold", "tellable": "deliverable",
    "crowded": "oversubscribed", "halved": "quota_shift", "mutant": "fault", "landing": "placement", "landings": "placements",
    "landed": "placed", "farewell": "goodbye", "whoever": "(name the actor)", "somebody": "(name the actor)",
}

# Plain English in a comment, and banned as a name only.
PLAIN = {"say", "says", "said", "several", "worth", "spread", "halved", "introduce", "introduction", "joint", "letter", "letters",
         "borrow", "borrows", "aside", "nowhere", "stray"}


def words(text):
    return re.split(r"_+|[^A-Za-z]+", text.lower())


def offences(path, text):
    for match in TOKENS.finditer(text):
        comment, piece = match.groups()
        for offset, line in enumerate((comment or piece).split("\n")):
            for word in words(line):
                if word in BANNED and not (comment and word in PLAIN):
                    number = text.count("\n", 0, match.start()) + 1 + offset
                    yield "%s:%d: %s: write %s" % (path, number, line.strip(), BANNED[word])


def check(root):
    found = []
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room), followlinks=True):
            for name in names:
                path = os.path.join(folder, name)
                if SOURCE.search(name):
                    with open(path, errors="replace") as file:
                        found += offences(os.path.relpath(path, root), file.read())
    return sorted(found)


def sees(text):
    return bool(list(offences("a.c", text)))


if __name__ == "__main__":
    found = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join("  " + line for line in found))
    print("%s no_banned_word_is_used" % ("not ok" if found else "ok"))
    itself = (sees("int tell_peer;") and sees('char *t = "the peer was told";') and sees("/* is\n * told */ int notify;") and
              not sees("/* as README says */ int notify;"))
    print("%s the_check_sees_identifiers_texts_and_comments" % ("ok" if itself else "not ok"))
    sys.exit(1 if found or not itself else 0)
