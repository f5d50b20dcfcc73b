//! The rack's switch as its neighbours hear it: a real lldpd (Debian 12: 1.0.16) that announces a port of `leaf1` on every tap, and nowhere else.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::error::{LabError, io};
use crate::plan::MachinePlan;
use crate::rack::{Enclosure, Netns, Rack, taps};
use crate::supervisor::Supervised;

/// The name that it announces.
pub const NAME: &str = "leaf1";
/// Where its configuration is, in a `/run` of its own.
const CONF: &str = "/run/switch.conf";
/// So often it speaks, in seconds; switches do so every 30.
const EVERY_S: u8 = 2;

/// A running switch.
#[derive(Debug)]
pub struct Switch {
    lldpd: Supervised,
}

impl Switch {
    /// Starts it. Every card of every machine is in the port that [`port`] says, but the first cards of the machines at the two `crossed` places are
    /// in each other's.
    pub fn start(
        rack: &Rack,
        machines: &[MachinePlan],
        crossed: [usize; 2],
    ) -> Result<Self, LabError> {
        let dir = rack.dir.join("switch");
        fs::create_dir_all(&dir).map_err(io(format!("make {}", dir.display())))?;
        // Who reads it is not root, and may not enter the rack's directory.
        let files = vec![(CONF.into(), configuration(machines, crossed))];
        let enclosure = Enclosure {
            files,
            ..Enclosure::default()
        };
        Ok(Self {
            lldpd: Supervised::start("lldpd", rack.closing(), start(&dir, &rack.netns, enclosure))?,
        })
    }

    /// Ends it. The rack's closing would, too.
    pub async fn close(self) {
        self.lldpd.close().await;
    }
}

/// The port that a machine's card belongs in, by its place in the rack: the first cards in one row, the second in another.
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
        // In the foreground, on the taps alone, by this configuration alone.
        command.args(["-d", "-I", "tap*", "-O", CONF]);
        command
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(also)
            .kill_on_drop(true);
        // With a /run of its own its socket is nobody else's.
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
