"""Hosts on one machine: each a network, mount and process namespace with an overlay of this system as its root, and a real sshd on its own address."""

import os
import signal
import subprocess
import time

import machine

SSHD = """
HostKey {keys}/host
TrustedUserCAKeys {keys}/ca.pub
AuthorizedPrincipalsFile {keys}/principals
AuthorizedKeysFile {keys}/user.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 500
MaxSessions 100
UseDNS no
PrintMotd no
PidFile none
Subsystem sftp internal-sftp
"""

# The machine's own login scripts are no part of a bare host; systemd does not run in it.
BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=256m tmpfs {place}
mkdir {place}/upper {place}/work {place}/root
mkdir -p {place}/upper/root {place}/upper/usr/bin
printf '#!/bin/sh\\nexit 0\\n' >{place}/upper/usr/bin/systemctl
chmod 755 {place}/upper/usr/bin/systemctl
mount -t overlay overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work {place}/root
cd {place}/root
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs run
mkdir -p run/sshd run/keys
cp {keys}/* run/keys/
rm -f root/.bashrc root/.profile root/.bash_profile
exec chroot . /usr/sbin/sshd -D -e -f /run/keys/sshd_config
"""


def gone(name):
    """Removes a namespace, after whatever still runs in it: Ansible's workers and its shared connections lead sessions of their own."""
    for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    machine.run("ip", "netns", "del", name)


class Hosts:
    def __init__(self, count, folder):
        self.control = f"mbx{os.getpid()}"
        self.keys = folder / "keys"
        self.addresses = [f"10.78.0.{index + 10}" for index in range(count)]
        self._keys()
        machine.run("ip", "netns", "add", self.control)
        machine.later(lambda: gone(self.control))
        inside = ["ip", "-n", self.control]
        machine.run(*inside, "link", "set", "lo", "up")
        machine.run(*inside, "link", "add", "br0", "type", "bridge")
        machine.run(*inside, "addr", "add", "10.78.0.1/24", "dev", "br0")
        machine.run(*inside, "link", "set", "br0", "up")
        self.names = []
        self.processes = []
        for index, address in enumerate(self.addresses):
            self._host(index, address, folder)
        self._wait()

    def _keys(self):
        self.keys.mkdir()
        quiet = {"stdout": subprocess.DEVNULL}
        for name in ("host", "ca", "user"):
            machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", self.keys / name, **quiet)
        machine.run("ssh-keygen", "-q", "-s", self.keys / "ca", "-I", "bench", "-n", "muster:bench:1", self.keys / "user.pub", stderr=subprocess.DEVNULL)
        (self.keys / "principals").write_text("muster:bench:1\n")
        (self.keys / "sshd_config").write_text(SSHD.format(keys="/run/keys"))

    def _host(self, index, address, folder):
        name = f"{self.control}h{index}"
        machine.run("ip", "netns", "add", name)
        self.names.append(name)
        machine.later(lambda: machine.run("ip", "netns", "del", name))
        machine.run("ip", "-n", self.control, "link", "add", f"h{index}", "type", "veth", "peer", "name", "eth0", "netns", name)
        machine.run("ip", "-n", self.control, "link", "set", f"h{index}", "master", "br0", "up")
        machine.run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        machine.run("ip", "-n", name, "link", "set", "eth0", "up")
        machine.run("ip", "-n", name, "link", "set", "lo", "up")
        place = folder / f"host{index}"
        place.mkdir()
        script = BOOT.format(place=place, keys=self.keys)
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
        self.processes.append(machine.Process(argv, name, folder / f"host{index}.log"))

    def _wait(self):
        end = time.monotonic() + 60
        for name, process in zip(self.names, self.processes):
            while not subprocess.run(["ip", "netns", "exec", name, "ss", "-Hltn", "sport = :22"], capture_output=True).stdout.strip():
                process.check("a host")
                if time.monotonic() > end:
                    raise SystemExit("the hosts' sshd did not come up")
                time.sleep(0.1)

    def control_run(self, argv, **options):
        """Runs a controller, with a home of its own."""
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"} | options.pop("env", {})
        words = ["ip", "netns", "exec", self.control, *[str(word) for word in argv]]
        return subprocess.run(words, env=env, capture_output=True, text=True, **options)

    def each(self, script, count=None):
        """Runs a script on every host, or the first `count`, beside its sshd, as nobody measured would."""
        running = []
        for process in self.processes[:count]:
            inner = subprocess.run(["pgrep", "-P", str(process.child.pid)], capture_output=True, text=True).stdout.split()
            argv = ["nsenter", "-t", inner[0], "-m", "-p", "-n", "--root", "--wd", "sh", "-c", script]
            running.append(subprocess.Popen(argv))
        if any(child.wait(60) for child in running):
            raise SystemExit("a host is not as it must be")
