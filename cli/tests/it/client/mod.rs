//! Nouns and verbs, against a real server.

mod nodes; // Operations and plans of nodes
mod objects; // Objects written, listed, removed
mod seals; // The newest seal
mod shells; // Terminals and completion
mod tokens; // Tokens made and revoked

use crate::muster::Server;

const NODE: &str = "
site: lab
power: {manual: {person: the rack team}}
macs: [{mac: '52:54:00:00:00:0N', subnet: prov}]
";

/// A site with a rack, a subnet and two nodes. The site has no agent.
fn fleet() -> Server {
    let server = Server::start();
    server
        .muster(&["site", "create", "lab"])
        .expect(0)
        .says("site lab created");
    let rack = [
        "rack",
        "set",
        "r1",
        "--spec",
        "site=lab",
        "--spec",
        "units=42",
        "--spec",
        "power_budget_w=20000",
    ];
    server
        .muster(&[&rack[..], &["--label", "row=a"]].concat())
        .expect(0)
        .says("rack r1 created");
    let subnet = "kind: subnet\nname: prov\nspec: {site: lab, network: 10.77.0.0/24, agent_address: 10.77.0.1, mode: authoritative}";
    server
        .typed(&["apply", "-f", "-"], subnet)
        .expect(0)
        .says("subnet prov created");
    for (name, number) in [("gpu-1", "1"), ("gpu-2", "2")] {
        server
            .typed(
                &["node", "create", name, "-f", "-"],
                &NODE.replace('N', number),
            )
            .expect(0)
            .says("created");
    }
    server
}
