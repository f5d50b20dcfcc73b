//! The plan of a rack: a JSON document (`rack.json`), validated completely before any part of the
//! rack is built.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use muster_core::values::{Mac, Name, Secret};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::LabError;

/// Gateway of the provisioning network: the address of `br0`. The server, the agent and Slurm
/// listen here.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// MTU of every link of the provisioning network, in bytes.
pub const MTU: u32 = 9000;
/// The VLAN on the provisioning network; the rack is the other end of the VLAN.
pub const VLAN: u16 = 120;
/// Address of the rack on [`VLAN`], in a /24.
pub const VLAN_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 120, 1);
/// PCI address of every second network card.
pub const SECOND_NIC_PCI: &str = "0000:00:10.0";
/// Address of the rack on the out-of-band network `bmc0`, a /24.
pub const BMC_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
/// The out-of-band network, with the BMCs and the terminal server.
pub const OOB_NETWORK: &str = "10.77.1.0/24";
/// The first port of the rack's terminal server at [`BMC_GATEWAY`]. The first machine's console
/// uses this port, each further console the next port.
const FIRST_CONSOLE_PORT: u16 = 7001;
/// Name of the undeclared machine in [`RackPlan::with_stranger`]: Muster has no record of the node.
pub const STRANGER: &str = "stranger";
/// Serial of the stranger's only disk.
pub const STRANGER_DISK: &str = "MUSTER-NVME-A-9";
/// SMBIOS product name of the rack's own machines; the veteran has another product name.
pub const PRODUCT: &str = "Virtual Rack Node";
/// Name of the machine in [`RackPlan::veteran`], installed without Muster and adopted later.
pub const VETERAN: &str = "veteran";
/// Serial of the veteran's boot disk.
pub const VETERAN_DISK: &str = "MUSTER-NVME-A-8";
/// Size of a disk with room for a GPU stack and the archives of two drivers, in GiB.
const LARGE_GIB: u32 = 16;
/// Maximum number of machines: enough for a hand-made rack. A fleet of thousands is simulated, not
/// virtualised.
const MAX_MACHINES: usize = 32;

/// Returns the terminal server's address for the console of the machine at this index in the plan.
/// The port sends the raw bytes as the machine writes them.
pub fn console_address(index: usize) -> SocketAddrV4 {
    let index = u16::try_from(index).expect("a rack holds few machines");
    SocketAddrV4::new(BMC_GATEWAY, FIRST_CONSOLE_PORT + index)
}

/// A rack.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RackPlan {
    /// The way in which guests run: KVM or emulation.
    #[serde(default)]
    pub accel: AccelPlan,
    /// The machines, in rack order.
    pub machines: Vec<MachinePlan>,
}

/// The way in which guests run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum AccelPlan {
    /// KVM if a probe guest really runs under KVM, else TCG.
    #[default]
    Probe,
    /// KVM, without a probe.
    Kvm,
    /// Emulation.
    Tcg,
}

/// A machine of the rack.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachinePlan {
    /// Name in the rack; used only by the lab.
    pub name: Name,
    /// Firmware of the machine.
    pub firmware: FirmwareKind,
    /// Number of virtual CPUs; with emulated guests on few cores, a single CPU is fastest.
    pub vcpus: u8,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// MAC address of the network card used for boot.
    pub mac: Mac,
    /// MAC address of a second network card on the same switch, never used for boot. `None` means a
    /// single card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_mac: Option<Mac>,
    /// SMBIOS system serial; board and chassis serials are derived from this serial.
    pub serial: String,
    /// SMBIOS system UUID.
    pub uuid: Uuid,
    /// SMBIOS manufacturer.
    pub manufacturer: String,
    /// SMBIOS product name.
    pub product: String,
    /// The BMC. A machine without a BMC has a power button pressed by a person.
    pub bmc: Option<BmcPlan>,
    /// The disks, in the order of PCI addresses.
    pub disks: Vec<DiskPlan>,
}

/// The firmware of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirmwareKind {
    /// SeaBIOS.
    Bios,
    /// OVMF with persistent variables.
    Uefi,
}

/// A BMC.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BmcPlan {
    /// Address of the listener; the port is 443.
    pub address: Ipv4Addr,
    /// User name of the factory account.
    pub user: String,
    /// Password of the factory account.
    pub password: Secret,
    /// Delay between an accepted reset and the power change, in milliseconds; real BMCs also answer
    /// first.
    pub reset_delay_ms: u64,
    /// Number of failed logins before an account is locked; 0 never locks.
    pub lockout_threshold: u32,
    /// Duration of a lock-out, in seconds.
    pub lockout_s: u64,
}

/// A disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPlan {
    /// The way in which the disk is attached.
    pub kind: DiskKind,
    /// Serial of the disk: 1 to 20 letters, digits, dots and dashes.
    pub serial: String,
    /// Size in GiB; the file behind the disk is sparse.
    pub size_gib: u32,
}

/// The way in which a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    /// virtio-blk: `/dev/vdX`.
    Virtio,
    /// NVMe behind a PCIe root port, so the disk has a PCIe link.
    Nvme,
}

impl MachinePlan {
    /// Whether a person must press the power button, because the machine has no BMC.
    pub fn manual_power(&self) -> bool {
        self.bmc.is_none()
    }
}

impl RackPlan {
    /// Returns the rack of the demo and the end-to-end test: a UEFI and a BIOS machine with a BMC
    /// each, and a BIOS machine without a BMC. Each machine has a decoy disk first and two NVMe
    /// disks. The first two machines have a second network card. Each call makes new passwords.
    pub fn reference() -> Self {
        let bmc = |last| Some(BmcPlan::factory(Ipv4Addr::new(10, 77, 1, last)));
        Self {
            accel: AccelPlan::Probe,
            machines: vec![
                with_second(1, reference_machine(1, FirmwareKind::Uefi, 2048, bmc(11))),
                with_second(2, reference_machine(2, FirmwareKind::Bios, 2048, bmc(12))),
                reference_machine(3, FirmwareKind::Bios, 1024, None),
            ],
        }
    }

    /// Returns the reference rack plus an undeclared machine, whose single disk already has an
    /// operating system.
    pub fn with_stranger() -> Self {
        let mut plan = Self::reference();
        let mut stranger = reference_machine(9, FirmwareKind::Bios, 1024, None);
        stranger.name = STRANGER.parse().expect("a constant name is a name");
        stranger.disks.retain(|disk| disk.serial == STRANGER_DISK);
        plan.machines.push(stranger);
        plan
    }

    /// Returns a machine like the others, already in service without Muster.
    pub fn veteran() -> MachinePlan {
        let name = VETERAN.parse().expect("a constant name is a name");
        let product = "Another Server".to_owned();
        MachinePlan {
            name,
            product,
            ..reference_machine(8, FirmwareKind::Bios, 2048, None)
        }
    }

    /// Returns a rack of small machines with a BMC and a disk each, already in service. Used to
    /// test events on nodes in service.
    pub fn small(machines: u8) -> Self {
        let small = |index| {
            let bmc = BmcPlan::factory(Ipv4Addr::new(10, 77, 1, 10 + index));
            let mut machine = reference_machine(index, FirmwareKind::Bios, 1024, Some(bmc));
            machine
                .disks
                .retain(|disk| disk.serial == small_disk(index));
            machine
        };
        Self {
            accel: AccelPlan::Probe,
            machines: (1..=machines).map(small).collect(),
        }
    }

    /// Returns a rack of a single machine with a BMC, like the second reference machine, and two
    /// disks of 16 GiB. Used for a stack of gigabytes.
    pub fn with_large_disks() -> Self {
        let bmc = BmcPlan::factory(Ipv4Addr::new(10, 77, 1, 11));
        let mut machine = reference_machine(1, FirmwareKind::Bios, 2048, Some(bmc));
        for disk in machine
            .disks
            .iter_mut()
            .filter(|disk| disk.kind == DiskKind::Nvme)
        {
            disk.size_gib = LARGE_GIB;
        }
        Self {
            accel: AccelPlan::Probe,
            machines: vec![machine],
        }
    }

    /// Rejects an impossible plan, and any text with a special meaning on a command line.
    pub fn validate(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Plan(why));
        if self.machines.is_empty() || self.machines.len() > MAX_MACHINES {
            return refuse(format!("a rack holds 1 to {MAX_MACHINES} machines"));
        }
        let (mut unique, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for machine in &self.machines {
            let own = [
                machine.name.to_string(),
                machine.mac.to_string(),
                machine.uuid.to_string(),
                machine.serial.clone(),
            ];
            let disks = machine.disks.iter().map(|disk| disk.serial.clone());
            let second = machine.second_mac.iter().map(ToString::to_string);
            for word in own.into_iter().chain(second).chain(disks) {
                if !unique.insert(word.clone()) {
                    return refuse(format!("{word} appears twice"));
                }
            }
            machine
                .validate()
                .map_err(|why| LabError::Plan(format!("{}: {why}", machine.name)))?;
            let Some(bmc) = &machine.bmc else { continue };
            let oob = bmc.address.octets()[..3] == BMC_GATEWAY.octets()[..3]
                && bmc.address != BMC_GATEWAY;
            if !oob || !addresses.insert(bmc.address) {
                return refuse(format!(
                    "{}: BMC addresses are distinct and inside 10.77.1.0/24, not .1",
                    machine.name
                ));
            }
        }
        Ok(())
    }
}

impl BmcPlan {
    /// Returns a new BMC with the factory settings and its own random password.
    pub fn factory(address: Ipv4Addr) -> Self {
        Self {
            address,
            user: "admin".to_owned(),
            password: Secret::new(hex::encode(rand::random::<[u8; 10]>())),
            reset_delay_ms: 500,
            lockout_threshold: 5,
            lockout_s: 60,
        }
    }
}

impl MachinePlan {
    fn validate(&self) -> Result<(), String> {
        let plain = |text: &str, max: usize| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ' ');
            !text.trim().is_empty() && text.len() <= max && text.chars().all(fits)
        };
        if self.name.as_str().len() > 32 {
            return Err("a machine's name has at most 32 characters".to_owned());
        }
        for text in [&self.serial, &self.manufacturer, &self.product] {
            if !plain(text, 48) {
                return Err(format!(
                    "{text:?}: 1 to 48 letters, digits, dots, dashes and spaces"
                ));
            }
        }
        if !(1..=64).contains(&self.vcpus) || !(256..=1_048_576).contains(&self.memory_mib) {
            return Err("1 to 64 CPUs and 256 MiB to 1 TiB of memory".to_owned());
        }
        if let Some(group) = self
            .second_mac
            .iter()
            .chain([&self.mac])
            .find(|mac| mac.0[0] & 1 == 1)
        {
            return Err(format!("{group} is a group address"));
        }
        if self.disks.len() > 8 {
            return Err("at most 8 disks".to_owned());
        }
        for disk in &self.disks {
            if !plain(&disk.serial, 20)
                || disk.serial.contains(' ')
                || !(1..=4096).contains(&disk.size_gib)
            {
                return Err(format!(
                    "disk {:?}: a serial of 1 to 20 letters, digits and dashes; 1 to 4096 GiB",
                    disk.serial
                ));
            }
        }
        Ok(())
    }
}

fn with_second(index: u8, machine: MachinePlan) -> MachinePlan {
    MachinePlan {
        second_mac: Some(Mac([0x52, 0x54, 0x00, 0x4d, 0x56, index])),
        ..machine
    }
}

/// Returns the serial of the only disk of the machine with this number in [`RackPlan::small`].
pub fn small_disk(index: u8) -> String {
    format!("MUSTER-NVME-A-{index}")
}

fn reference_machine(
    index: u8,
    firmware: FirmwareKind,
    memory_mib: u32,
    bmc: Option<BmcPlan>,
) -> MachinePlan {
    let disk = |kind, label: &str, size_gib| DiskPlan {
        kind,
        serial: format!("MUSTER-{label}-{index}"),
        size_gib,
    };
    let name = format!("n{index}")
        .parse()
        .expect("n and a digit are a name");
    MachinePlan {
        name,
        firmware,
        vcpus: 1,
        memory_mib,
        mac: Mac([0x52, 0x54, 0x00, 0x4d, 0x55, index]),
        second_mac: None,
        serial: format!("MSTR-000{index}"),
        uuid: Uuid::from_u128(0x6d75_7374_6572_4c61_8b00_0000_0000_0000 + u128::from(index)),
        manufacturer: "Muster".to_owned(),
        product: PRODUCT.to_owned(),
        bmc,
        disks: vec![
            disk(DiskKind::Virtio, "DECOY", 1),
            disk(DiskKind::Nvme, "NVME-A", 8),
            disk(DiskKind::Nvme, "NVME-B", 8),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_racks_can_be_built_and_read_back() {
        let mut plan = RackPlan::with_stranger();
        assert!(
            plan.machines
                .last()
                .unwrap()
                .disks
                .iter()
                .all(|disk| disk.serial == STRANGER_DISK)
        );
        plan.machines.push(RackPlan::veteran());
        assert_eq!(plan.machines[4].disks[1].serial, VETERAN_DISK);
        plan.validate().unwrap();
        let again: RackPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(again.machines.len(), 5);
        assert!(again.machines[2].manual_power());
        let small = RackPlan::small(6);
        small.validate().unwrap();
        let large = RackPlan::with_large_disks();
        large.validate().unwrap();
        let sizes: Vec<u32> = large.machines[0]
            .disks
            .iter()
            .map(|disk| disk.size_gib)
            .collect();
        assert_eq!(sizes, [1, LARGE_GIB, LARGE_GIB]);
        assert!(
            small
                .machines
                .iter()
                .all(|machine| machine.bmc.is_some() && machine.disks.len() == 1)
        );
    }

    #[test]
    fn a_plan_that_would_bend_a_command_line_is_refused() {
        let spoil: [fn(&mut RackPlan); 6] = [
            |plan| plan.machines[0].second_mac = Some(plan.machines[1].mac),
            |plan| plan.machines[0].serial = "X,uuid=1".to_owned(),
            |plan| plan.machines[0].disks[1].serial = "A B".to_owned(),
            |plan| plan.machines[1].mac = plan.machines[0].mac,
            |plan| plan.machines[1].bmc = plan.machines[0].bmc.clone(),
            |plan| plan.machines.clear(),
        ];
        for change in spoil {
            let mut plan = RackPlan::reference();
            change(&mut plan);
            assert!(plan.validate().is_err());
        }
    }
}
