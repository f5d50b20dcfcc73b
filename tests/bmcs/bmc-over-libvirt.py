"""virtualbmc on 127.0.0.1:PORT over one machine of libvirt's own test driver, which keeps state and needs no daemon. Says "ready" once it listens."""

import sys

import libvirt
from virtualbmc.vbmc import VirtualBMC

DRIVER = "test:///default"
MACHINE = "<domain type='test'><name>n1</name><memory>1024</memory><os><type>hvm</type><boot dev='hd'/></os></domain>"

# The driver forgets its machines with the last connection, and virtualbmc opens one for each question.
machines = libvirt.open(DRIVER)
machines.defineXML(MACHINE)
bmc = VirtualBMC("admin", "secret", int(sys.argv[1]), "127.0.0.1", "n1", DRIVER)
print("ready", flush=True)
# As the daemon does (`session_timeout`): a packet that its reader misses lies so long.
bmc.listen(timeout=1)
