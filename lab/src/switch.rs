//! The rack's switch as seen by its LLDP neighbours. A real lldpd (Debian 12: 1.0.16) announces a
//! port of `leaf1` on every tap, and on no other interface.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::error::{LabError, io};
use crate::plan::MachinePlan;
use crate::rack::{Enclosure, Netns, Rack, taps};
use crate::supervisor::Supervised;

/// The announced name of the switch.
pub const NAME: &str = "leaf1";
/// Path of the configuration, inside a private `/run`.
const CONF: &str = "/run/switch.conf";
/// Interval between announcements in seconds; real switches announce every 30 seconds.
const EVERY_S: u8 = 2;

/// A running switch.
#[derive(Debug)]
pub struct Switch {
    lldpd: Supervised,
}

impl Switch {
    /// Starts the switch. Every card of every machine is in the port given by [`port`], with an
    /// exception for tests of cabling. The first cards of the machines at the two `crossed` places
    /// are in each other's ports.
    pub fn start(
        rack: &Rack,
        machines: &[MachinePlan],
        crossed: [usize; 2],
    ) -> Result<Self, LabError> {
        let dir = rack.dir.join("switch");
        fs::create_dir_all(&dir).map_err(io(format!("make {}", dir.display())))?;
        // The configuration is a file in the private `/run`, because lldpd does not run as root and
        // cannot enter the rack's directory.
        let files = vec![(CONF.into(), configuration(machines, crossed))];
        let enclosure = Enclosure {
            files,
            ..Enclosure::default()
        };
        Ok(Self {
            lldpd: Supervised::start("lldpd", rack.closing(), start(&dir, &rack.netns, enclosure))?,
        })
    }

    /// Ends the switch. Closing the rack also ends the switch.
    pub async fn close(self) {
        self.lldpd.close().await;
    }
}

/// Returns the correct port for a machine's card, by the machine's place in the rack. The first
/// cards are in a row of ports, the second cards in another row.
pub fn port(machine: usize, card: usize) -> String {
    format!("Ethernet{}/{}", card + 1, machine + 1)
}

fn configuration(machines: &[MachinePlan], [one, other]: [usize; 2]) -> String {
    let mut text =
        format!("configure system hostname {NAME}\nconfigure lldp tx-interval {EVERY_S}\n");
    for (index, machine) in machines.iter().enumerate() {
        for (card, tap) in taps(index, machine).into_iter().enumerate() {
            let place = match (card, index) {
                (0, index) if index == one => other,
                (0, index) if index == other => one,
                _ => index,
            };
            text += &format!(
                "configure ports {tap} lldp portidsubtype local {}\n",
                port(place, card)
            );
        }
    }
    text
}

fn start(
    dir: &Path,
    netns: &Netns,
    enclosure: Enclosure,
) -> impl Fn() -> Result<Child, LabError> + Send + use<> {
    let (dir, netns) = (dir.to_owned(), netns.clone());
    move || {
        let path = dir.join("lldpd.log");
        let said = fs::File::create(&path).map_err(io(format!("make {}", path.display())))?;
        let also = said.try_clone().map_err(io("share a log"))?;
        let mut command = Command::new("lldpd");
        // Run in the foreground, on the taps only, with this configuration only.
        command.args(["-d", "-I", "tap*", "-O", CONF]);
        command
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(also)
            .kill_on_drop(true);
        // With a private `/run`, the lldpd socket is separate from any other lldpd's.
        netns.spawn_enclosed(&enclosure, command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RackPlan;

    #[test]
    fn two_first_cards_are_in_each_others_ports() {
        let said = configuration(&RackPlan::reference().machines, [1, 2]);
        let ports: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix("configure ports "))
            .collect();
        let told = ["tap0 1/1", "tap0b 2/1", "tap1 1/3", "tap1b 2/2", "tap2 1/2"];
        let told = told.map(|told| told.replace(' ', " lldp portidsubtype local Ethernet"));
        assert_eq!(ports, told);
    }
}
