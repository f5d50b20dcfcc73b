//! The sandbox of a gate's tool, from the gate's parser and from the effects that the gate names.

use super::catalogue::Parser;
use super::gate::{Gate, SideEffect};
use super::reach::{Disks, Network};

/// The limits of a tool towards the network and the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox {
    pub network: Network,
    pub disks: Disks,
}

impl Sandbox {
    /// Returns the sandbox of both ends of a gate.
    pub fn of(gate: &Gate) -> Self {
        let parser = Parser::find(&gate.parser);
        let is_networked = gate.peer.is_some() || gate.effects.contains(&SideEffect::NetworkLoad);
        let network = match is_networked {
            true => Network::Host,
            false => parser.map_or(Network::Off, |parser| parser.network),
        };
        let disks = match gate.effects.contains(&SideEffect::WritesDisk) {
            true => Disks::Write,
            false => parser.map_or(Disks::Hidden, |parser| parser.disks),
        };
        Self { network, disks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::Suite;

    const ADMIT: &str = include_str!("../../../suites/admit.toml");
    const PAIRS: &str = include_str!("../../../suites/pairs.toml");

    fn gate(parser: &str, more: &str) -> Gate {
        let text = format!(
            "id = \"a\"\ntitle = \"t\"\nstage = \"node\"\nparser = \"{parser}\"\ntimeout_s = 5\nfinding = \"f\"\n\
             criteria = []\n{more}"
        );
        toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn sandbox(parser: &str, more: &str) -> [&'static str; 2] {
        let Sandbox { network, disks } = Sandbox::of(&gate(parser, more));
        [network.as_str(), disks.as_str()]
    }

    #[test]
    fn a_tool_reaches_what_its_parser_needs_and_no_more() {
        for (parser, wanted) in [
            ("stressapptest", ["none", "hidden"]),
            ("nvidia-smi-xml", ["none", "hidden"]),
            ("gpu-burn", ["none", "hidden"]),
            ("kernel-log", ["none", "hidden"]),
            ("smartctl", ["none", "query"]),
            ("nvme-smart-log", ["none", "query"]),
            ("mdadm-detail", ["none", "query"]),
            // /etc/nccl.conf may name an interface of the node.
            ("nccl-tests", ["host", "hidden"]),
            ("dcgmproftester", ["loopback", "query"]),
            // nv-hostengine listens on the node's own loopback.
            ("dcgm-diag", ["host", "hidden"]),
            ("perfquery", ["host", "hidden"]),
            // The list of network interfaces is that of the tool's network.
            ("lshw", ["host", "query"]),
            ("no-such-parser", ["none", "hidden"]),
        ] {
            assert_eq!(sandbox(parser, ""), wanted, "{parser}");
        }
    }

    #[test]
    fn a_gate_that_names_an_effect_reaches_more() {
        let network = "effects = [\"network_load\"]";
        assert_eq!(sandbox("dcgmproftester", network), ["host", "query"]);
        assert_eq!(sandbox("stressapptest", network), ["host", "hidden"]);
        let disk = "effects = [\"writes_disk\"]";
        assert_eq!(sandbox("fio", disk), ["none", "write"]);
        assert_eq!(sandbox("fio", ""), ["none", "hidden"]);
    }

    #[test]
    fn shipped_gates_have_the_network_of_their_tools() {
        let [admit, pairs]: [Suite; 2] =
            [ADMIT, PAIRS].map(|text| toml::from_str(text).expect("a shipped suite"));
        for gate in &pairs.gates {
            assert_eq!(Sandbox::of(gate).network, Network::Host, "{}", gate.id);
        }
        let writes = |gate: &&Gate| Sandbox::of(gate).disks == Disks::Write;
        let named = |gate: &&Gate| gate.effects.contains(&SideEffect::WritesDisk);
        let [writes, named] = [
            admit.gates.iter().filter(writes).count(),
            admit.gates.iter().filter(named).count(),
        ];
        assert!(writes == named && writes > 0, "{writes} of {named}");
    }
}
