"""What every benchmark needs of the machine: processes that end, namespaces that go, CPU seconds, and medians."""

import atexit
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
TICKS = os.sysconf("SC_CLK_TCK")

_cleanups = []


@atexit.register
def _clean():
    while _cleanups:
        try:
            _cleanups.pop()()
        except Exception as error:  # the rest must still be cleaned
            print(f"cleaning up: {error}", file=sys.stderr)


def later(cleanup):
    """Runs at the end, however it comes; the last one first."""
    _cleanups.append(cleanup)


def run(*argv, **options):
    return subprocess.run([str(word) for word in argv], check=True, **options)


def folder():
    """A folder that goes at the end."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="run.", dir=CACHE))
    path.chmod(0o755)
    later(lambda: shutil.rmtree(path, ignore_errors=True))
    return path


class Process:
    """A server: started, waited for, its CPU time read, ended with its whole group."""

    def __init__(self, argv, netns=None, log=None, **options):
        words = [str(word) for word in argv]
        if netns:
            words = ["ip", "netns", "exec", netns, *words]
        self.log = open(log, "wb") if log else subprocess.DEVNULL
        options.setdefault("stdout", self.log)
        self.child = subprocess.Popen(words, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True, **options)
        later(self.stop)

    def stop(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self.child.poll() is None:
                try:
                    os.killpg(self.child.pid, how)
                    self.child.wait(5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass

    def members(self):
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[3]) == self.child.pid:  # the session
                    yield fields

    def cpu_s(self):
        """User and system seconds of the session, its ended children included."""
        return sum(sum(int(value) for value in fields[11:15]) for fields in self.members()) / TICKS

    def check(self, what):
        if self.child.poll() is not None:
            raise SystemExit(f"{what} ended with {self.child.returncode}")


class Wire:
    """Two namespaces, `server` and `client`, and a cable between them."""

    SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
    CLIENTS = 16

    def __init__(self):
        self.server, self.client = f"mbs{os.getpid()}", f"mbc{os.getpid()}"
        for name in (self.server, self.client):
            run("ip", "netns", "add", name)
            later(lambda name=name: run("ip", "netns", "del", name))
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.server, "link", "add", "veth-s", "type", "veth", "peer", "name", "veth-c", "netns", self.client)
        for name, device, address in ((self.server, "veth-s", self.SERVER), (self.client, "veth-c", self.CLIENT)):
            run("ip", "-n", name, "addr", "add", f"{address}/16", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        # Clients at once have an address each, as machines do: the boot services bound the transfers of one source.
        for last in range(1, self.CLIENTS + 1):
            run("ip", "-n", self.client, "addr", "add", f"10.77.1.{last}/16", "dev", "veth-c")

    def on_client(self, *argv, timeout, **options):
        # Not Python's own limit: it looks only every 50 ms whether a child has ended, and what is measured here takes a few of those.
        within = ["timeout", "--kill-after=5", str(timeout)]
        return subprocess.run([*within, "ip", "netns", "exec", self.client, *[str(word) for word in argv]], **options)

    def listens(self, process, kind, port, seconds=20):
        """Waits until something in the server's namespace has a port (`-t` or `-u`)."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            process.check("the server")
            seen = subprocess.run(["ip", "netns", "exec", self.server, "ss", f"-Hln{kind}", f"sport = :{port}"], capture_output=True)
            if seen.stdout.strip():
                return
            time.sleep(0.05)
        raise SystemExit(f"nothing listens on {kind} port {port}")


def binary(name):
    """One of the release programs, built by `make bench` before."""
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    if not (folder / name).exists():
        raise SystemExit(f"{folder / name} is missing: make bench builds it")
    return folder / name


def median(values):
    return statistics.median(values)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
