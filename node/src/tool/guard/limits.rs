//! The limits of a tool on this machine: above the use of every shipped gate, and low enough for the
//! node's other programs.

use nix::sys::sysinfo::sysinfo;

/// Open files of a process. A lower limit of muster-node itself stays.
pub(super) const OPEN_FILES: u64 = 65_536;
/// Processes and threads on a small machine. The collectives of NCCL use hundreds.
const PROCESSES_MIN: u64 = 4096;
/// Processes and threads for each CPU: a load has one worker, MPI and OpenMP a few threads.
const PROCESSES_PER_CPU: u64 = 32;

/// The limits of a tool with its descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Processes and threads, together.
    pub(super) processes: u64,
    pub(super) memory_bytes: u64,
}

/// The size of a machine, and the limits of the cgroup above the tools.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) cpus: u64,
    pub(super) memory_bytes: u64,
    /// `pids.max` of the cgroup above, as set by systemd's `DefaultTasksMax`.
    pub(super) processes_above: Option<u64>,
    /// `memory.max` of the cgroup above.
    pub(super) memory_above: Option<u64>,
}

impl Room {
    /// Reads the size of this machine.
    pub(super) fn read() -> nix::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            cpus: cpus as u64,
            memory_bytes: sysinfo()?.ram_total(),
            ..Self::default()
        })
    }

    /// The limits of a tool. A quarter of the limits above stays for muster-node, and for the tools
    /// that measure during a load. An eighth of the memory stays for the node, and on a large
    /// machine a 32nd and 160 MiB: stressapptest takes 95 % without 192 MiB, and below 2 GiB 85 %.
    pub(super) fn limits(&self) -> Limits {
        let within = |own: u64, above: Option<u64>| above.map_or(own, |most| own.min(most / 4 * 3));
        let processes = (self.cpus * PROCESSES_PER_CPU).max(PROCESSES_MIN);
        let total = self.memory_bytes;
        let reserved = (total / 8).min(total / 32 + (160 << 20));
        Limits {
            processes: within(processes, self.processes_above),
            memory_bytes: within(total - reserved, self.memory_above),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn limits(cpus: u64, memory_bytes: u64) -> Limits {
        let room = Room {
            cpus,
            memory_bytes,
            ..Room::default()
        };
        room.limits()
    }

    #[test]
    fn every_shipped_load_fits_and_a_part_of_the_memory_stays() {
        assert_eq!(
            [1, 128, 384].map(|cpus| limits(cpus, GIB).processes),
            [4096, 4096, 12_288],
            "gpu-burn without a GPU started 15,255 processes in eight minutes"
        );
        // FindFreeMemSize in os.cc of stressapptest.
        let stressapptest = |total: u64| match total < 2 * GIB {
            true => total / 100 * 85,
            false => total / 100 * 95 - 192 * MIB,
        };
        for total in [1, 2, 4, 16, 64, 2048].map(|size| size * GIB) {
            let most = limits(1, total).memory_bytes;
            // The tables of pages count as well: 8 bytes for each page.
            let used = stressapptest(total) + total / 512;
            assert!(used < most, "{total}: {used} of {most}");
            assert!(total - most > total / 32, "{total}");
        }
        assert_eq!(
            [32 * MIB, GIB, 64 * GIB].map(|total| limits(1, total).memory_bytes / MIB),
            [28, 896, 63_328]
        );
    }

    #[test]
    fn the_limits_above_count_where_they_are_lower() {
        let room = Room {
            cpus: 2,
            memory_bytes: GIB,
            processes_above: Some(1155),
            memory_above: Some(256 * MIB),
        };
        let Limits {
            processes,
            memory_bytes,
        } = room.limits();
        assert_eq!((processes, memory_bytes), (864, 192 * MIB));
        let above = Room {
            processes_above: Some(1 << 20),
            memory_above: Some(GIB << 10),
            ..room
        };
        assert_eq!(above.limits(), limits(2, GIB));
    }

    #[test]
    fn this_machine_has_room() {
        let room = Room::read().expect("the size of this machine");
        assert!(room.cpus >= 1 && room.memory_bytes > 64 * MIB, "{room:?}");
    }
}
