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
# What this boot measured in a quiet second holds for the next ones, and for the copies of this disk: a kernel that is disturbed while it measures
# takes a tenth of it, and perftest has no answer on such a clock.
khz=$(dmesg | sed -n 's/.*Refined TSC clocksource calibration: \([0-9]*\)\.\([0-9]*\) MHz.*/\1\2/p')
[ -z "$khz" ] || echo "GRUB_CMDLINE_LINUX=\"\$GRUB_CMDLINE_LINUX tsc_early_khz=$khz\"" >/etc/default/grub.d/11-emulated.cfg
update-grub
systemctl restart munge slurmd
