"""Hosts on this machine: namespaces of networks, processes, mounts and names, joined by a bridge. Needs root.

Members of one host share memory, those of different hosts reach each other over tcp through a pair of virtual interfaces
each. The hosts share the cores of the machine.
"""

import atexit
import os
import shutil
import subprocess
import tempfile
import time

NET = "10.77.0"
BEGIN = "mount -t tmpfs tmpfs /dev/shm && hostname {name} && exec cat"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def child_of(pid):
    """The first process in the namespaces, by its number out here."""
    for _ in range(200):
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            there = children.read().split()
        if there:
            return int(there[0])
        time.sleep(0.01)
    raise OSError("unshare started nothing")


def possible():
    return os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "unshare", "nsenter"))


class Hosts:
    """Of `n` hosts the processes that hold their namespaces; `close` ends them, and with them all that was made."""

    def __init__(self, n):
        self.holders, self.pids = [], []
        self.folder = tempfile.TemporaryDirectory(prefix="weft-bench-")
        try:
            switch = self.hold("unshare", "--net", "--fork", "--kill-child", "cat")
            self.within(switch, "ip", "link", "add", "bridge", "type", "bridge")
            self.within(switch, "ip", "link", "set", "bridge", "up")
            for i in range(n):
                self.add(switch, i)
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    def hold(self, *command):
        """Until this program ends, however it ends: then the pipe is closed that `cat` reads."""
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.holders.append(holder)
        return child_of(holder.pid)

    def within(self, pid, *command):
        run("nsenter", "--net", "--target", str(pid), *command)

    def add(self, switch, i):
        pid = self.hold("unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                        BEGIN.format(name=f"host{i}"))
        self.within(switch, "ip", "link", "add", f"port{i}", "type", "veth", "peer", "name", "weft0", "netns", str(pid))
        self.within(switch, "ip", "link", "set", f"port{i}", "master", "bridge", "up")
        self.within(pid, "ip", "link", "set", "lo", "up")
        self.within(pid, "ip", "address", "add", f"{self.address(i)}/24", "dev", "weft0")
        self.within(pid, "ip", "link", "set", "weft0", "up")
        self.pids.append(pid)

    def address(self, i):
        return f"{NET}.{i + 1}"

    def close(self):
        for holder in self.holders:
            holder.stdin.close()
            holder.kill()
            holder.wait()
        self.holders = []
        self.folder.cleanup()

    # ---- programs on them ------------------------------------------------------------------------------------------------

    def weft(self, starter, per_host, program):
        """Ranks of weft-run, each within its host: all namespaces, so that a host's members know each other."""
        cases = "".join(f"{i}) pid={pid} ;; " for i, pid in enumerate(self.pids))
        enter = (f"host=$((WEFT_RUN_RANK / {per_host})); case $host in {cases}esac; "
                 f"export WEFT_TCP_BIND={NET}.$((host + 1)) WEFT_TCP_INSECURE=yes; "
                 "exec nsenter --net --uts --pid --mount --target $pid \"$@\"")
        return [starter, "-n", str(per_host * len(self.pids)), "--plain", "--", "sh", "-c", enter, "enter", *program]

    def mpi(self, library, per_host, program):
        """Daemons that a script starts within their hosts, as ssh would; networks and names only."""
        agent = os.path.join(self.folder.name, "enter_host")
        with open(agent, "w") as script:
            cases = "".join(f"{self.address(i)}) pid={pid} ;; " for i, pid in enumerate(self.pids))
            script.write(f'#!/bin/sh\ncase $1 in {cases}esac\nshift\nexec nsenter --net --uts --target $pid sh -c "$*"\n')
        os.chmod(agent, 0o755)
        hosts = ",".join(f"{self.address(i)}:{per_host}" for i in range(len(self.pids)))
        n = per_host * len(self.pids)
        first = ["nsenter", "--net", "--uts", "--target", str(self.pids[0])]
        return [*first, *library.hosts_command(n, hosts, agent), *program]


four = []


def four_hosts():
    """Made when they are first asked for, and ended with this program."""
    if not four:
        four.append(Hosts(4))
        atexit.register(four[0].close)
    return four[0]
