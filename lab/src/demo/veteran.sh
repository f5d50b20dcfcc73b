#!/bin/sh
# Run on a machine that serves before Muster comes: makes it a node of the lab's Slurm cluster, as its own admin would.
set -eu
cd /root/settings
dpkg --force-confold --install ./*.deb
install -o munge -g munge -m 0400 munge.key /etc/munge/munge.key
install -D -m 0644 slurmd.conf /etc/systemd/system/slurmd.service.d/site.conf
install -m 0755 count /usr/local/bin/count
install -m 0644 shared.mount /etc/systemd/system/shared.mount
systemctl daemon-reload
systemctl enable --now shared.mount
systemctl restart munge slurmd
