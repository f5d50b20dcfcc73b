//! A network namespace of the test's own: every port is free, and no packet leaves it.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// The agent's address on the provisioning subnet.
pub(crate) const AGENT: &str = "10.77.0.1";
/// The node's address there.
pub(crate) const NODE: &str = "10.77.0.11";
/// The address of the node's BMC, and of its console server.
pub(crate) const BMC: &str = "10.78.0.1";

/// Runs the body on a thread inside a new network namespace. Sockets and processes that the body makes belong to the namespace.
pub(crate) fn within<F: Future<Output = ()>>(body: impl FnOnce() -> F + Send + 'static) {
    let inside = move || {
        unshare(CloneFlags::CLONE_NEWNET)
            .expect("a network namespace: these tests run as root, as CI does");
        ip("link set lo up");
        for address in [AGENT, NODE, BMC] {
            ip(&format!("address add {address}/24 dev lo"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(body());
    };
    if let Err(panic) = std::thread::spawn(inside).join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}
