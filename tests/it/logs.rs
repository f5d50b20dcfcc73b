//! The log: a request's id leads to the operation, the job, and the agent's lines of the job.

use muster_agent::boot::arm::ArmedBoots;
use muster_agent::boot::lookout::{Identity, Lookout};
use muster_core::clock::Clock;
use muster_core::values::Mac;
use muster_core::wire::calls::Seen;
use muster_core::wire::job::{Job, JobSpec};
use muster_server::engine;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::support::agents::{self, Door};
use crate::support::fleet;
use crate::support::log::Log;
use crate::support::server::{Caller, Server};

const REQUEST: &str = "ticket-4711";
/// Captures the log of this process as JSON lines, at the default level.
fn start_log() -> Log {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
        .with_writer(move || writer.clone())
        .init();
    log
}

/// Returns the first line with the message and the field, in the line or in a span of the line.
fn find(text: &str, target: &str, message: &str, (field, value): (&str, &str)) -> Option<Value> {
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| {
        line["target"].as_str().unwrap().starts_with(target)
            && line["message"] == message
            && field_of(line, field).is_some_and(|found| found == value)
    })
}

async fn wait_for(log: &Log, target: &str, message: &str, field: (&str, &str)) -> Value {
    log.wait_for(|text| find(text, target, message, field))
        .await
}

/// Returns the field of a line, or of the innermost span with the field.
fn field_of(line: &Value, field: &str) -> Option<String> {
    let spans = line["spans"].as_array().into_iter().flatten().rev();
    let value = std::iter::once(line)
        .chain(spans)
        .map(|place| &place[field])
        .find(|value| !value.is_null())?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}

/// Declares a site with a subnet of documentation addresses, so the agent opens no port.
async fn declare(admin: &Caller) {
    let live = json!({ "kernel": fleet::digest("vmlinuz"), "initrd": fleet::digest("initrd") });
    let subnet = json!({ "site": "lab", "network": "192.0.2.0/24", "agent_address": "192.0.2.1", "mode": "off" });
    for (path, spec) in [
        ("/v1/sites/lab", json!({ "live": live })),
        ("/v1/subnets/prov", subnet),
    ] {
        admin.put(path, &json!({ "spec": spec })).await.expect(201);
    }
    for (path, body) in [
        ("/v1/racks/r1", fleet::rack()),
        ("/v1/hardware_profiles/virtual", fleet::profile()),
    ] {
        admin.put(path, &body).await.expect(201);
    }
}

#[tokio::test]
async fn a_request_id_leads_to_the_agents_lines_of_the_job() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let log = start_log();
    let server = Server::start().await;
    let admin = server.admin().await;
    declare(&admin).await;
    let made = admin
        .post("/v1/sites/lab/agents", &json!({ "name": "a" }))
        .await
        .expect(201);
    let door = Door::open(&server.app).await;
    let dir = tempfile::tempdir().unwrap();
    let options = agents::options(&door, made.body["token"].as_str().unwrap(), dir.path());
    let stop = CancellationToken::new();
    let agent = tokio::spawn(muster_agent::work::run(options, stop.clone()));
    let node = json!({ "spec": {
        "site": "lab", "rack": "r1", "rack_unit": 1, "profile": "virtual", "power": { "manual": { "person": "alice" } },
        "macs": [{ "mac": "52:54:00:00:00:01", "subnet": "prov", "address": "192.0.2.11" }],
    }});
    let tried = admin.header("x-request-id", "only-tried");
    tried
        .put("/v1/nodes/n1?dry_run=true", &node)
        .await
        .expect(201);
    admin
        .header("x-request-id", REQUEST)
        .put("/v1/nodes/n1", &node)
        .await
        .expect(201);
    engine::run_until_idle(&server.app).await.unwrap();

    let answered = wait_for(
        &log,
        "muster_server",
        "request answered",
        ("request_id", REQUEST),
    )
    .await;
    for (field, value) in [
        ("method", "PUT"),
        ("route", "/v1/nodes/{node}"),
        ("node", "n1"),
        ("status", "201"),
    ] {
        assert_eq!(field_of(&answered, field).as_deref(), Some(value));
    }
    assert!(field_of(&answered, "took_ms").is_some(), "{answered}");
    let actor = field_of(&answered, "actor").unwrap();
    assert!(actor.starts_with("token:admin-"), "{actor}");

    // From the request to the operation, to the job, to the lease.
    let created = wait_for(
        &log,
        "muster_server",
        "operation created",
        ("request_id", REQUEST),
    )
    .await;
    let operation = field_of(&created, "operation").unwrap();
    let queued = wait_for(
        &log,
        "muster_server",
        "job queued",
        ("operation", &operation),
    )
    .await;
    assert_eq!(field_of(&queued, "node").as_deref(), Some("n1"));
    let job = field_of(&queued, "job").unwrap();
    let leased = wait_for(&log, "muster_server", "job leased", ("job", &job)).await;
    assert_eq!(field_of(&leased, "operation").as_ref(), Some(&operation));
    assert_eq!(field_of(&leased, "agent").as_deref(), Some("a"));
    // From the request straight to the agent.
    let id = ("request_id", REQUEST);
    let started = wait_for(&log, "muster_agent", "job started", id).await;
    for (field, value) in [
        ("node", "n1"),
        ("operation", &*operation),
        ("job", &*job),
        ("attempt", "1"),
        ("kind", "boot_live"),
    ] {
        assert_eq!(field_of(&started, field).as_deref(), Some(value));
    }
    // The live image has no bytes on the server, and the failure is in both logs.
    wait_for(&log, "muster_agent", "job failed", ("job", &job)).await;
    let failed = wait_for(&log, "muster_server", "job failed", ("job", &job)).await;
    assert_eq!(field_of(&failed, "attempt").as_deref(), Some("1"));

    let tried = wait_for(
        &log,
        "muster_server",
        "operation created",
        ("request_id", "only-tried"),
    )
    .await;
    assert_eq!(field_of(&tried, "dry_run").as_deref(), Some("true"));
    assert!(
        !log.text().contains("dry_run=true"),
        "a query is in the log"
    );
    stop.cancel();
    agent.await.unwrap().unwrap();
}

#[test]
fn a_booting_machine_is_logged_with_the_waiting_job() {
    let log = start_log();
    let golden = include_str!("../../core/golden/job-boot-live.json");
    let job: Job = serde_json::from_str(golden).unwrap();
    let JobSpec::BootLive(mut spec) = job.spec else {
        panic!("another kind of order: {golden}")
    };
    spec.nonce = "0".repeat(32);
    let boots = ArmedBoots::new();
    let waiting = tracing::error_span!("job", job = %job.id, node = job.node_name);
    let _armed = waiting.in_scope(|| boots.arm(job.node, &spec)).unwrap();
    let (queue, _sightings) = mpsc::channel(9);
    let lookout = Lookout::new(boots, queue, Clock::System);
    for mac in [spec.macs[0], Mac([2, 0, 0, 0, 0, 9])] {
        lookout.saw(mac, Seen::Script, Identity::default(), "script given");
    }
    let id = job.id.to_string();
    let line = find(&log.text(), "muster_agent", "machine seen", ("job", &id));
    let line = line.unwrap_or_else(|| panic!("not in {}", log.text()));
    assert_eq!(field_of(&line, "node"), Some(job.node_name));
    assert_eq!(field_of(&line, "mac"), Some(spec.macs[0].to_string()));
    assert!(!log.text().contains("02:00:00:00:00:09"), "{}", log.text());
}
