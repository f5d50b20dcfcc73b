//! Messages between server and agent.

use super::{at, challenge, cluster, golden, id, jobs, mac, permit};
use crate::ids::{AgentId, JobId, NodeId, ObjectId};
use crate::wire::PROTOCOL;
use crate::wire::calls::{
    ActReply, ConsoleTarget, DhcpMode, Hello, LeaseJobs, LogLine, RedeemPermit, Redeemed, RenewJob,
    Renewed, Reservation, Seen, Sighting, Sightings, SiteConfig, SitePoll, StartAct, Subnet,
    Welcome,
};
use crate::wire::consoles::{ConsoleChunk, ConsoleReport};
use crate::wire::job::ActRecord;
use crate::wire::node::Answer;
use crate::wire::scheduler::{
    ClusterLook, NodeOut, SchedulerReport, SchedulerWatch, WatchedCluster,
};

#[test]
fn between_server_and_agent() {
    check_session();
    check_acts();
    check_renewal_and_permit();
    check_sightings_and_consoles();
    check_scheduler();
    jobs::check();
    golden("agent-site", &site());
}

/// The start of a session, and the lease of jobs.
fn check_session() {
    golden(
        "agent-hello",
        &Hello {
            protocol: PROTOCOL,
            version: "0.1.0".into(),
            instance: "i".into(),
        },
    );
    golden(
        "agent-welcome",
        &Welcome {
            protocol: PROTOCOL,
            agent: AgentId(id(6)),
            site: "lab".into(),
            epoch: 1,
            lease_s: 30,
            permit_public_key: "AA==".into(),
            user_ca: "ssh-ed25519 AAAA".into(),
        },
    );
    golden(
        "agent-lease",
        &LeaseJobs {
            epoch: 1,
            capacity: 8,
            wait_s: 30,
        },
    );
}

/// An act of an order, and the replies.
fn check_acts() {
    let act = StartAct {
        epoch: 1,
        attempt: 2,
        act: "reset".into(),
        before: "on".into(),
    };
    golden("agent-act", &act);
    golden("agent-act-reply", &ActReply::Go);
    let earlier = ActRecord {
        attempt: 1,
        act: "reset".into(),
        before: "on".into(),
        started_at: at(),
        age_s: 7,
    };
    golden("agent-act-reply-already", &ActReply::Already(earlier));
}

/// The renewal of a job, and the redemption of a permit.
fn check_renewal_and_permit() {
    let log = vec![LogLine {
        at: at(),
        text: "line".into(),
    }];
    let waiting_for = Some("DHCP from the node".into());
    golden(
        "agent-renew",
        &RenewJob {
            epoch: 1,
            attempt: 2,
            progress: None,
            log,
            waiting_for,
        },
    );
    golden("agent-renewed", &Renewed { cancel: false });
    let redeem = RedeemPermit {
        epoch: 1,
        job: JobId(id(1)),
        attempt: 2,
        permit: permit(),
        challenge: Some(challenge()),
    };
    golden("agent-redeem", &redeem);
    golden(
        "agent-redeemed",
        &Redeemed {
            answer: Answer::Granted {
                signature: "AA==".into(),
            },
        },
    );
}

/// Sightings, console output, and the poll for changes of the site.
fn check_sightings_and_consoles() {
    let sighting = Sighting {
        at: at(),
        mac: mac(),
        what: Seen::Dhcp,
        uuid: None,
        serial: None,
        detail: String::new(),
    };
    golden(
        "agent-sightings",
        &Sightings {
            epoch: 1,
            sightings: vec![sighting],
        },
    );
    let chunk = ConsoleChunk {
        node: NodeId(id(2)),
        at: at(),
        text: "login: ".into(),
    };
    golden(
        "agent-consoles",
        &ConsoleReport {
            epoch: 1,
            chunks: vec![chunk],
        },
    );
    golden(
        "agent-site-poll",
        &SitePoll {
            epoch: 1,
            have: None,
            wait_s: 30,
        },
    );
}

/// The scheduler's nodes out of service, and the watched clusters.
fn check_scheduler() {
    let out = NodeOut {
        name: "n1".into(),
        state: "drained".into(),
        reason: Some("muster: gate gpu.memory: r".into()),
    };
    let look = ClusterLook {
        cluster: ObjectId(id(9)),
        out: vec![out],
    };
    golden(
        "agent-scheduler",
        &SchedulerReport {
            epoch: 1,
            looks: vec![look],
        },
    );
    let watched = WatchedCluster {
        id: ObjectId(id(9)),
        cluster: cluster(),
    };
    golden(
        "agent-scheduler-watch",
        &SchedulerWatch {
            clusters: vec![watched],
            every_s: 60,
        },
    );
}

fn site() -> SiteConfig {
    let reservation = Reservation {
        node: NodeId(id(2)),
        name: "n1".into(),
        mac: mac(),
        address: "10.77.0.11".parse().unwrap(),
    };
    let subnet = Subnet {
        name: "provisioning".into(),
        network: "10.77.0.0/24".parse().unwrap(),
        agent_address: "10.77.0.1".parse().unwrap(),
        gateway: None,
        dns: vec![],
        mode: DhcpMode::Authoritative,
        dynamic_range: Some((
            "10.77.0.200".parse().unwrap(),
            "10.77.0.220".parse().unwrap(),
        )),
        reservations: vec![reservation],
        relays: vec![],
    };
    let console = ConsoleTarget {
        node: NodeId(id(2)),
        address: "10.77.1.1".parse().unwrap(),
        port: 7001,
    };
    SiteConfig {
        revision: "r".into(),
        site: "lab".into(),
        subnets: vec![subnet],
        consoles: vec![console],
        console_networks: vec!["10.77.1.0/24".parse().unwrap()],
    }
}
