//! Capabilities of a tool. The bounding set limits every program that root starts afterwards.

use std::io;

use muster_core::gates::Disks;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Capabilities of no tool: modules, reboot, clock, network settings, other processes, audit.
const OF_NO_TOOL: [CapabilitySet; 19] = [
    CapabilitySet::AUDIT_CONTROL,
    CapabilitySet::AUDIT_READ,
    CapabilitySet::AUDIT_WRITE,
    CapabilitySet::BLOCK_SUSPEND,
    CapabilitySet::BPF,
    CapabilitySet::CHECKPOINT_RESTORE,
    CapabilitySet::LINUX_IMMUTABLE,
    CapabilitySet::MAC_ADMIN,
    CapabilitySet::MAC_OVERRIDE,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::PERFMON,
    CapabilitySet::SETFCAP,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_PACCT,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::SYS_TIME,
    CapabilitySet::SYS_TTY_CONFIG,
    CapabilitySet::WAKE_ALARM,
];
/// Ways around hidden nodes: mounts, raw memory, new nodes, files by handle.
const BESIDE_HIDDEN: [CapabilitySet; 5] = [
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::MKNOD,
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::SYS_RAWIO,
];
/// Ways around the mode and the owner of a read-only node. SMART data of disks need `SYS_RAWIO` and
/// `SYS_ADMIN`.
const BESIDE_QUERY: [CapabilitySet; 7] = [
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::FOWNER,
    CapabilitySet::MKNOD,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
];

/// Drops the capabilities that no tool with this access to disks needs.
pub(super) fn drop_beside(disks: Disks) -> io::Result<()> {
    set_no_new_privs(true)?;
    let of_disks: &[CapabilitySet] = match disks {
        Disks::Hidden => &BESIDE_HIDDEN,
        Disks::Query => &BESIDE_QUERY,
        Disks::Write => &[],
    };
    for capability in OF_NO_TOOL.iter().chain(of_disks) {
        drop_one(*capability)?;
    }
    // An inheritable capability would pass the bounding set.
    let inheritable = CapabilitySet::empty();
    let own = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable, ..own })?;
    // The last one, because each drop needs the capability.
    drop_one(CapabilitySet::SETPCAP)
}

fn drop_one(capability: CapabilitySet) -> io::Result<()> {
    match capability_is_in_bounding_set(capability) {
        Ok(true) => Ok(remove_capability_from_bounding_set(capability)?),
        Ok(false) => Ok(()),
        // The kernel is older than the capability.
        Err(error) if error == Errno::INVAL => Ok(()),
        Err(error) => Err(error.into()),
    }
}
