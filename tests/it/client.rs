//! The typed client against a real socket: what the CLI, the lab and Terraform stand on.

use std::time::Duration;

use muster_api::claims::{ClaimSpec, CreateClaim};
use muster_api::client::{Client, ClientError, Precondition};
use muster_api::nodes::{NodeMac, NodePower, NodeSpec};
use muster_api::object::Draft;
use muster_api::racks::RackSpec;
use muster_api::sites::SiteSpec;
use muster_core::claims::ClaimState;
use muster_core::values::{Digest, Secret};
use serde_json::json;

use crate::support::fleet;
use crate::support::server::Server;

async fn client(server: &Server) -> Client {
    let token = server.admin().await.token.map(Secret::new);
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    Client::new(&server.listen().await, token).unwrap()
}

fn node(number: u8) -> NodeSpec {
    NodeSpec {
        site: "lab".into(),
        rack: None,
        rack_unit: None,
        profile: Some("virtual".into()),
        serial: None,
        smbios_uuid: None,
        power: NodePower::Manual {
            person: "alice".into(),
        },
        console: None,
        macs: vec![NodeMac {
            mac: format!("52:54:00:00:00:{number:02x}").parse().unwrap(),
            subnet: Some("prov".into()),
            address: None,
        }],
        accept: true,
        protected: false,
    }
}

#[tokio::test]
async fn objects_go_round_by_type() {
    let server = Server::start().await;
    let client = client(&server).await;
    client
        .put(
            "lab",
            &Draft::new(SiteSpec::default()),
            Precondition::Absent,
        )
        .await
        .unwrap();
    let spec = RackSpec {
        site: "lab".into(),
        units: 42,
        power_budget_w: 9000,
        cables: Vec::new(),
    };
    let rack = client
        .put(
            "r1",
            &Draft::new(spec.clone()).label("row", "a"),
            Precondition::None,
        )
        .await
        .unwrap();
    assert_eq!((rack.spec, rack.generation), (spec, 1));
    let rack = client
        .patch::<RackSpec>(
            "r1",
            &json!({ "spec": { "units": 48 } }),
            Precondition::Generation(1),
        )
        .await
        .unwrap();
    assert_eq!(rack.spec.units, 48);
    let stale = client.delete::<RackSpec>("r1", 1).await.unwrap_err();
    assert!(stale.is("stale_generation"), "{stale}");
    let missing = client.get::<RackSpec>("../sites/lab").await.unwrap_err();
    assert_eq!(
        missing.status(),
        Some(404),
        "a name never becomes another path: {missing}"
    );
    let wrong = client
        .put_value(
            &["racks", "r2"],
            &json!({ "spec": { "colour": 1 } }),
            Precondition::None,
        )
        .await
        .unwrap_err();
    match wrong {
        ClientError::Problem(problem) => assert_eq!(problem.errors[0].pointer, "/spec/colour"),
        other => panic!("{other}"),
    }
    client.delete::<RackSpec>("r1", 2).await.unwrap();
    assert_eq!(client.list_all::<RackSpec>(None).await.unwrap(), []);
}

#[tokio::test]
async fn a_node_is_claimed_and_released_by_type() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let client = client(&server).await;
    let registered = client
        .put("n1", &Draft::new(node(1)), Precondition::Absent)
        .await
        .unwrap();
    assert_eq!(registered.spec, node(1));
    let operation = registered.status.operation.unwrap();
    let late = client
        .wait_operation(operation, Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(matches!(late, ClientError::TimedOut(_)), "{late}");
    fleet::arrive(&server).await;
    let spec = ClaimSpec::new("gpu", Some("n1".into()), None);
    let claim = client
        .create_claim(&CreateClaim {
            name: None,
            spec: spec.clone(),
        })
        .await
        .unwrap();
    assert_eq!((claim.spec, claim.status.state), (spec, ClaimState::Bound));
    let overtaken = client
        .wait_operation(operation, Duration::from_secs(1))
        .await;
    assert!(overtaken.is_ok() || matches!(overtaken, Err(ClientError::TimedOut(_))));
    let release = client
        .delete_claim(claim.name.as_str(), claim.generation)
        .await
        .unwrap();
    assert_eq!(release.kind, "release");
    let events = client.events(0, &[("node", "n1")]).await.unwrap();
    assert_eq!(events.items.last().unwrap().kind, "claim.releasing");
    assert!(client.node_facts("n1").await.unwrap_err().status() == Some(404));
    assert_eq!(client.node_gate_runs("n1").await.unwrap().items, []);
    assert!(client.node_timeline("n1").await.unwrap().items.len() >= 4);
}

#[tokio::test]
async fn blobs_are_uploaded_once_and_agents_enrolled_and_removed() {
    let server = Server::start().await;
    let client = client(&server).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes = vec![42_u8; 3 << 20];
    std::fs::write(file.path(), &bytes).unwrap();
    let digest = Digest::of(&bytes);
    assert!(!client.has_blob(digest).await.unwrap());
    client.upload_blob(digest, file.path()).await.unwrap();
    client.upload_blob(digest, file.path()).await.unwrap();
    assert!(client.has_blob(digest).await.unwrap());
    let wrong = client
        .upload_blob(Digest::of(b"other"), file.path())
        .await
        .unwrap_err();
    assert_eq!(wrong.status(), Some(422), "{wrong}");

    client
        .put("lab", &Draft::new(SiteSpec::default()), Precondition::None)
        .await
        .unwrap();
    let enrolled = client
        .enrol_agent("lab", &"a1".parse().unwrap())
        .await
        .unwrap();
    assert!(enrolled.token.reveal().starts_with("msa_"));
    assert_eq!(
        client.list_agents("lab").await.unwrap().items,
        [enrolled.agent]
    );
    let refused = client.delete::<SiteSpec>("lab", 1).await.unwrap_err();
    assert!(refused.to_string().contains("agent a1"), "{refused}");
    client
        .delete_value(&["sites", "lab", "agents", "a1"], 1)
        .await
        .unwrap();
    client.delete::<SiteSpec>("lab", 1).await.unwrap();
}

#[tokio::test]
async fn the_stream_resumes_and_ends_with_its_readers_right() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let url = server.listen().await;
    let reader = admin
        .post(
            "/v1/tokens",
            &json!({ "name": "r", "role": "viewer", "expires_in_s": 600 }),
        )
        .await
        .expect(201);
    let after = admin.get("/v1/events").await.body["last_seq"]
        .as_i64()
        .unwrap();
    let http = reqwest::Client::builder()
        .timeout(Duration::from_secs(20))
        .no_proxy()
        .build()
        .unwrap();
    let mut stream = http
        .get(format!("{url}/v1/events"))
        .bearer_auth(reader.body["secret"].as_str().unwrap())
        .header("accept", "text/event-stream")
        .header("last-event-id", after.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    admin
        .put("/v1/sites/a", &json!({ "spec": {} }))
        .await
        .expect(201);
    let first = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        first.contains("site a created") && first.contains("event: object.created"),
        "{first}"
    );
    admin
        .expecting(1)
        .delete(&format!(
            "/v1/tokens/{}",
            reader.body["token"]["id"].as_str().unwrap()
        ))
        .await
        .expect(204);
    let mut rest = Vec::new();
    while let Some(chunk) = stream.chunk().await.unwrap() {
        rest.extend(chunk);
    }
    assert!(
        !String::from_utf8_lossy(&rest).contains("revoked"),
        "a revoked reader sees nothing more"
    );
}

#[tokio::test]
async fn a_server_that_is_away_is_told_apart() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let nobody = Client::new("http://127.0.0.1:9", None).unwrap();
    let away = nobody.get::<SiteSpec>("a").await.unwrap_err();
    assert!(away.away() && away.status().is_none(), "{away}");
    assert!(matches!(
        Client::new("ftp://x", None),
        Err(ClientError::Usage(_))
    ));
    assert!(matches!(
        Client::new("nonsense", None),
        Err(ClientError::Usage(_))
    ));
}
