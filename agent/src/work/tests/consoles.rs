//! Tests of recording during broken console connections and server outages.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::NodeId;
use muster_core::wire::calls::{ConsoleTarget, SiteConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::agent;
use super::server::FakeServer;
use crate::consoles;

const LIMIT: Duration = Duration::from_secs(30);

fn site(consoles: Vec<ConsoleTarget>) -> Option<SiteConfig> {
    Some(SiteConfig {
        revision: "r".into(),
        site: "lab".into(),
        subnets: Vec::new(),
        consoles,
        console_networks: vec!["127.0.0.0/8".parse().unwrap()],
    })
}

/// Returns the console text reported to the server for a node.
fn told(server: &FakeServer, node: NodeId) -> String {
    let ledger = server.ledger.lock().unwrap();
    ledger
        .consoles
        .iter()
        .filter(|chunk| chunk.node == node)
        .map(|chunk| chunk.text.as_str())
        .collect()
}

async fn wait_until(server: &FakeServer, node: NodeId, done: impl Fn(&str) -> bool) -> String {
    let waited = tokio::time::timeout(LIMIT, async {
        loop {
            let text = told(server, node);
            if done(&text) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("told: {:?}", told(server, node)))
}

#[tokio::test]
async fn a_broken_console_is_read_again_and_no_line_is_lost() {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, Duration::from_secs(60)).await;
    let console = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (node, gone) = (NodeId::new(), NodeId::new());
    let target = ConsoleTarget {
        node,
        address: "127.0.0.1".parse().unwrap(),
        port: console.local_addr().unwrap().port(),
    };
    let refusing = ConsoleTarget {
        node: gone,
        port: 1,
        ..target
    };
    let (config, configs) = watch::channel(site(vec![target, refusing]));
    let recording =
        AbortOnDropHandle::new(tokio::spawn(consoles::record(Arc::clone(&agent), configs)));

    let (mut line, _) = console.accept().await.unwrap();
    line.write_all(b"SeaBIOS\r\n\x00\xff").await.unwrap();
    wait_until(&server, node, |text| text == "SeaBIOS\r\n\u{fffd}").await;
    wait_until(&server, gone, |text| text.contains("cannot be read; ")).await;

    // The connection breaks while the server is unreachable. Both recover.
    server.ledger.lock().unwrap().away_for = 2;
    line.write_all(b"Kernel panic").await.unwrap();
    drop(line);
    let (mut line, _) = console.accept().await.unwrap();
    line.write_all(b"second boot").await.unwrap();
    let text = wait_until(&server, node, |text| text.ends_with("second boot")).await;
    let parts: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(parts.len(), 6, "{text:?}");
    assert!(
        parts[1] == "\u{fffd}Kernel panic" && parts[2].ends_with("is lost; it is tried again]"),
        "{text:?}"
    );
    assert!(
        parts[3].is_empty() && parts[4].ends_with("is read again]"),
        "{text:?}"
    );

    // A console removed from the configuration is disconnected, and the agent has never sent data.
    config.send_replace(site(Vec::new()));
    let mut sent = Vec::new();
    tokio::time::timeout(LIMIT, line.read_to_end(&mut sent))
        .await
        .unwrap()
        .unwrap();
    assert!(sent.is_empty());
    drop(config);
    tokio::time::timeout(LIMIT, recording)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_console_is_read_inside_of_the_networks_only_and_no_port_is_told() {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, Duration::from_secs(60)).await;
    let console = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = NodeId::new();
    let target = ConsoleTarget {
        node,
        address: "127.0.0.1".parse().unwrap(),
        port: console.local_addr().unwrap().port(),
    };
    let (config, configs) = watch::channel(site(vec![target]));
    let _recording =
        AbortOnDropHandle::new(tokio::spawn(consoles::record(Arc::clone(&agent), configs)));
    let (mut line, _) = console.accept().await.unwrap();
    line.write_all(b"login:").await.unwrap();
    wait_until(&server, node, |text| text == "login:").await;

    // Without declared networks loopback is refused, too.
    for networks in [vec!["10.78.0.0/24".parse().unwrap()], Vec::new()] {
        let mut other = site(vec![ConsoleTarget {
            node: NodeId::new(),
            ..target
        }]);
        let outside = other.as_mut().unwrap();
        outside.console_networks = networks;
        let node = outside.consoles[0].node;
        config.send_replace(other);
        let text = wait_until(&server, node, |text| text.contains("is not read")).await;
        let port = target.port.to_string();
        assert!(
            !text.contains("os error") && !text.contains(&port),
            "{text:?}"
        );
    }
    // The listener does not block: a second connection would be here already.
    let waiting = console.into_std().unwrap().accept();
    assert!(waiting.is_err(), "the agent connected to a console outside");
}
