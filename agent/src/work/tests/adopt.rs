//! Tests of adopting a machine installed by others, with a real sshd and the real commands on files
//! of the test.

use std::sync::Arc;
use std::time::Duration;

use muster_core::ids::{ClaimId, JobId, NodeId};
use muster_core::values::{Digest, Secret};
use muster_core::wire::PROTOCOL;
use muster_core::wire::adopt::Adopt;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Failure, FailureCode, Marker};
use muster_core::wire::result::JobResult;
use russh::keys::ssh_key::{LineEnding, PrivateKey};

use super::super::jobs;
use super::agent;
use super::server::FakeServer;
use crate::ssh::sshd::{Sshd, certified, new_key};
use crate::work::context::JobContext;

const LEASE: Duration = Duration::from_secs(60);
const PRINCIPAL: &str = "muster:0197b0f2-9a3c-7000-8000-000000000001:1";
/// Runs the requested command on the files of the test instead of the files of the machine.
const SCRIPT: &str = r#"
printf '%s\n' "$SSH_ORIGINAL_COMMAND" >> "$NODE/asked"
exec sh -c "$(printf '%s' "$SSH_ORIGINAL_COMMAND" | sed "s#/root/.ssh#$NODE/ssh#g; s#/etc/muster#$NODE/etc#g")"
"#;

/// A machine with the key of an operator, and the values of an adopt order.
struct Machine {
    sshd: Sshd,
    operator: PrivateKey,
    ca: PrivateKey,
}

impl Machine {
    fn start() -> Self {
        let (sshd, operator) = (Sshd::start(SCRIPT), new_key());
        std::fs::create_dir(sshd.dir.path().join("ssh")).unwrap();
        let line = operator.public_key().to_openssh().unwrap();
        sshd.write("ssh/authorized_keys", &format!("# ours\n{line} operator\n"));
        Self {
            sshd,
            operator,
            ca: new_key(),
        }
    }

    fn order(&self, host_key: Option<String>, secret: &PrivateKey) -> Adopt {
        let ca = self.ca.public_key().to_openssh().unwrap();
        Adopt {
            address: [127, 0, 0, 1].into(),
            port: self.sshd.port,
            host_key,
            user: "root".into(),
            secret: Secret::new(secret.to_openssh(LineEnding::LF).unwrap().as_str()),
            trust: format!("cert-authority,principals=\"{PRINCIPAL}\" {ca} muster-adopted"),
            marker: Marker {
                protocol: PROTOCOL,
                node: NodeId::new(),
                claim: ClaimId::new(),
                epoch: 1,
                image: Digest([0; 32]),
            },
            user_key: certified(&self.ca, PRINCIPAL),
        }
    }
}

async fn run(order: Adopt) -> Result<JobResult, Failure> {
    let server = FakeServer::start().await;
    let (agent, _dir) = agent(&server, LEASE).await;
    let job = Job {
        id: JobId::new(),
        attempt: 1,
        node: NodeId::new(),
        node_name: "n1".into(),
        origin: None,
        revoked_keys: None,
        epoch: 1,
        timeout_s: 60,
        acts: Vec::new(),
        spec: JobSpec::Adopt(order),
    };
    jobs::execute(&JobContext::new(job, Arc::clone(&agent))).await
}

#[tokio::test]
async fn an_unconfirmed_host_key_is_told_and_nothing_is_sent() {
    let machine = Machine::start();
    let failure = run(machine.order(None, &machine.operator))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("host_key_unconfirmed", false)
    );
    assert!(
        failure.message.contains(&machine.sshd.fingerprint()),
        "{}",
        failure.message
    );
    let other = format!("SHA256:{}", "A".repeat(43));
    let failure = run(machine.order(Some(other.clone()), &machine.operator))
        .await
        .unwrap_err();
    assert_eq!(failure.code, FailureCode::SshHostKeyMismatch);
    assert!(
        failure.message.contains(&other) && failure.message.contains(&machine.sshd.fingerprint())
    );
    assert_eq!(machine.sshd.file("asked"), "");
}

#[tokio::test]
async fn a_credential_that_is_not_taken_is_told_and_never_shown() {
    let machine = Machine::start();
    let failure = run(machine.order(Some(machine.sshd.fingerprint()), &new_key()))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("ssh_auth_refused", false)
    );
    let mut order = machine.order(Some(machine.sshd.fingerprint()), &machine.operator);
    order.secret = Secret::new("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n");
    let failure = run(order).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::SshBadLogin);
    assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    assert_eq!(machine.sshd.file("asked"), "");
}

#[tokio::test]
async fn an_adoption_writes_only_line_and_marker_once() {
    let machine = Machine::start();
    let before = machine.sshd.file("ssh/authorized_keys");
    let order = machine.order(Some(machine.sshd.fingerprint()), &machine.operator);
    let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap()
        .trim()
        .to_owned();
    for _ in 0..2 {
        let adopted = run(order.clone()).await.unwrap();
        let JobResult::Adopted { host_key, boot_id } = adopted else {
            panic!("{adopted:?}")
        };
        assert_eq!(
            (host_key, boot_id),
            (machine.sshd.login(PRINCIPAL).host_key, here.clone())
        );
        assert_eq!(
            machine.sshd.file("ssh/authorized_keys"),
            format!("{before}{}\n", order.trust)
        );
        let marker: Marker = serde_json::from_str(&machine.sshd.file("etc/marker.json")).unwrap();
        assert_eq!(marker, order.marker);
    }
    // A new assignment replaces the previous line, and the lines of the operator stay.
    let mut next = order.clone();
    next.trust = next.trust.replace(":1\"", ":2\"");
    next.user_key = certified(&machine.ca, &PRINCIPAL.replace(":1", ":2"));
    run(next.clone()).await.unwrap();
    assert_eq!(
        machine.sshd.file("ssh/authorized_keys"),
        format!("{before}{}\n", next.trust)
    );
    let asked = machine.sshd.file("asked");
    assert!(
        !["reboot", "poweroff", "muster-node"]
            .iter()
            .any(|word| asked.contains(word)),
        "{asked}"
    );
}
