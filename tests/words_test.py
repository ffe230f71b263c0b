#!/usr/bin/env python3
"""Words that Weft's identifiers, settings, counters, log lines, error texts and comments do not use.

docs/glossary.md has the words that Weft does use. All folders are covered, the tests and tools too.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from texts import texts, verdict  # noqa: E402

ROOMS = ["include", "fsm", "base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime", "tests", "tools",
         "bench", "examples", "python", "integrations"]
SOURCE = (".c", ".h", ".def", ".fsm", ".inc", ".cpp", ".hpp")
TOKENS = re.compile(r'(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|\b[A-Za-z_]\w*\b)', re.S)

# word: what to use
BANNED = {
    "tell": "notify", "tells": "notifies", "told": "notified", "say": "send, report or announce", "says": "sends or reports", "said": "sent or reported",
    "hear": "recv", "hears": "receives", "heard": "received", "unheard": "uncached", "seldom": "slow", "mostly": "fast",
    "lend": "expose", "lends": "exposes", "lent": "in_flight or exposed", "loan": "exposure", "loans": "exposures",
    "borrow": "zcopy", "borrows": "zcopy", "joint": "split_copy",
    "hush": "quiesce", "unhush": "resume", "calm": "quiesced", "patience": "timeout or spin", "lull": "backoff",
    "hall": "slot_table", "shelf": "tx_slot", "shelves": "tx_slots", "bell": "doorbell", "bells": "doorbells",
    "commons": "process_globals", "several": "op_group", "spread": "rail_ranges", "owed": "outstanding", "owe": "add",
    "forgive": "drop", "aside": "backlog", "bargain": "negotiation", "worth": "check", "companion": "aux_link",
    "guest": "accepted", "guests": "accepted", "rival": "duplicate", "greet": "handshake", "greets": "handshake",
    "greeting": "handshake", "greetings": "handshakes", "introduce": "announce or handshake", "introduction": "process_watch", "wish": "opts",
    "ghost": "zombie", "spoilt": "poisoned", "doomed": "destroying", "stray": "forked_child", "bury": "free_later",
    "buried": "freed", "graveyard": "free_list", "stranger": "unverified", "strangers": "unverified",
    "hungry": "starved", "nowhere": "discard", "sheet": "iov_batch", "letter": "desc", "letters": "descs",
    "anew": "again", "nobody": "noop", "mover": "copy_job", "residence": "min_hold", "tellable": "deliverable",
    "crowded": "oversubscribed", "halved": "quota_shift", "mutant": "fault", "landing": "placement", "landings": "placements",
    "landed": "placed", "farewell": "goodbye", "whoever": "(name the actor)", "somebody": "(name the actor)",
}

# Standard English in a comment, and banned as a name only.
PLAIN = {
    "say", "says", "said",  # a document, a header or a flag says something
    "several",  # more than two
}

# A static function is found by its name and by what it acts on. One word with one type of the first parameter names functions in
# two files at most: take(struct conn *) and take(struct timer *) are two names, and neither needs a suffix.
ONE_WORD = re.compile(r"^static [^;={}()]*?\b([a-z][a-z0-9]*)\(([^;{}]*)\)\s*\{", re.S | re.M)
QUALIFIER = re.compile(r"\b(?:const|volatile|restrict|struct|enum|union)\b|\*")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
PRODUCT = ["fsm", "base", "reactor", "transports", "endpoints", "collectives", "resource", "runtime"]

# base/compiler.h has a macro for each. fsm/ lies below base/.
RAW = {r"\b__builtin_expect\b": "LIKELY or UNLIKELY", r"\((?:const )?(?:char|uint8_t|uintptr_t) ?\*?\)[^;,]*?-\s*offsetof\(": "container_of"}
RAW_ROOMS = [room for room in PRODUCT if room != "fsm"]


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


def raw(path, text):
    """Lines that write out what a macro of base/compiler.h says."""
    if path == "base/compiler.h":
        return []
    code = COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    return ["%s:%d: write %s" % (path, code.count("\n", 0, match.start()) + 1, macro)
            for pattern, macro in RAW.items() for match in re.finditer(pattern, code)]


def acts_on(parameters):
    """The type of the first parameter, without qualifiers, pointers and the parameter's name."""
    first = QUALIFIER.sub(" ", parameters.split(",")[0]).split()
    return " ".join(first[:-1] or first)


def repeated(texts):
    """Names of one word, with what they act on, that three files or more give to static functions."""
    at = {}
    for path, text in texts:
        for name, parameters in set(ONE_WORD.findall(COMMENT.sub(" ", text))):
            at.setdefault((name, acts_on(parameters)), set()).add(path)
    return ["%s(%s): %s" % (*name, " ".join(sorted(paths))) for name, paths in sorted(at.items()) if len(paths) > 2]


def sees(text):
    return bool(list(offences("a.c", text)))


if __name__ == "__main__":
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    found = sorted(line for path, text in texts(root, ROOMS, SOURCE) for line in offences(path, text))
    names = repeated(texts(root, PRODUCT, SOURCE))
    by_hand = [line for path, text in texts(root, RAW_ROOMS, SOURCE) for line in raw(path, text)]
    for line in found + names + by_hand:
        print("  " + line)
    three = [(path, "static int *sent(void) {\n}\n") for path in "abc"]
    of_one = [(path, "static int take(%sstruct conn *%s, int n) {\n}\n" % (const, path)) for path, const in zip("abc", ["", "const ", ""])]
    of_three = [(path, "static int take(struct %s *object) {\n}\n" % path) for path in "abc"]
    good = [
        verdict(not found, "no_banned_word_is_used"),
        verdict(not names, "static_functions_in_three_files_that_act_on_one_type_have_names_of_two_words"),
        verdict(not by_hand, "macros_of_the_compiler_are_used"),
        verdict(sees("int tell_peer;") and sees('char *t = "the peer was told";') and sees("/* is\n * told */ int notify;") and
                not sees("/* as README says */ int notify;"), "the_check_sees_identifiers_texts_and_comments"),
        verdict(repeated(three) and not repeated(three[:2]) and repeated(of_one) and not repeated(of_one[:2]),
                "the_check_sees_a_name_of_three_files"),
        verdict(not repeated(of_three), "one_word_may_act_on_three_types"),
        verdict(raw("a.c", "if (__builtin_expect(x, 0)) return;") and raw("a.c", "T *t = (T *)((char *)p - offsetof(T, m));") and
                not raw("a.c", "if (UNLIKELY(x)) return; /* __builtin_expect */"), "the_check_sees_what_is_written_by_hand"),
    ]
    sys.exit(0 if all(good) else 1)
