#!/bin/sh
# scontrol, sinfo and squeue over a controller that is one folder: the nodes are those of muster-nodes.conf, and `drained` holds the reasons.
set -eu
folder=$(dirname "$SLURM_CONF")
mkdir -p "$folder/drained"
names() { sed -n 's/^NodeName=\([^ ]*\) .*State=UNKNOWN$/\1/p' "$folder/muster-nodes.conf" 2>/dev/null || true; }
field() { printf '%s\n' "$line" | tr ' ' '\n' | sed -n "s/^$1=//p"; }

case "$(basename "$0") $*" in
"scontrol show config") echo "SLURM_VERSION           = 23.11.4" ;;
"scontrol reconfigure") ;;
"scontrol show node "*)
  line=$(grep "^NodeName=$3 " "$folder/muster-nodes.conf" 2>/dev/null | grep -v FUTURE) || { echo "Node $3 not found"; exit 1; }
  state=IDLE
  [ ! -e "$folder/drained/$3" ] || state=IDLE+DRAIN
  cpus=$(($(field Sockets) * $(field CoresPerSocket) * $(field ThreadsPerCore)))
  echo "NodeName=$3 Arch=x86_64 CoresPerSocket=$(field CoresPerSocket)"
  echo "   CPUAlloc=0 CPUTot=$cpus CPULoad=0.00"
  echo "   AvailableFeatures=$(field Feature)"
  echo "   ActiveFeatures=$(field Feature)"
  echo "   Gres=(null)"
  echo "   NodeAddr=$(field NodeAddr) NodeHostName=$3 Version=23.11.4"
  echo "   RealMemory=$(field RealMemory) AllocMem=0 Sockets=$(field Sockets) Boards=1"
  echo "   State=$state ThreadsPerCore=$(field ThreadsPerCore) TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A"
  echo "   BootTime=2026-11-21T03:10:45 SlurmdStartTime=2026-11-21T03:41:33"
  [ ! -e "$folder/drained/$3" ] || echo "   Reason=$(cat "$folder/drained/$3") [root@2026-11-21T03:43:22]"
  ;;
"scontrol update nodename="*" state=drain reason="*)
  printf '%s' "${4#reason=}" >"$folder/drained/${2#nodename=}"
  ;;
"scontrol update nodename="*" state=resume") rm -f "$folder/drained/${2#nodename=}" ;;
"sinfo -a -h -N -o %N") names ;;
"sinfo -a -h -N -o "*)
  # The text between name and state differs between the two versions of the agent.
  mark=${5#"%N"}
  mark=${mark%"%T|%E"}
  for name in $(names); do
    if [ -e "$folder/drained/$name" ]; then echo "$name${mark}drained|$(cat "$folder/drained/$name")"; else echo "$name${mark}idle|none"; fi
  done
  ;;
"squeue "*) ;;
*)
  echo "unexpected: $(basename "$0") $*" >&2
  exit 1
  ;;
esac
