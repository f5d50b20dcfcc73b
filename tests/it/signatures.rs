//! Signatures of images: a pool that asks for a signature gets no other image, by any request.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::images::ImageManifest;
use muster_core::signatures::{
    SecretKey, SignatureError, describe_image, describe_live, verify_order,
};
use muster_core::values::Digest;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::WriteImage;
use muster_core::wire::orders;
use muster_server::tasks::replicas::{self, FIRST};
use serde_json::{Value, json};

use crate::rollouts::{at_once, plan, running, settle, start};
use crate::simulated::World;
use crate::support::fleet;
use crate::support::server::{Caller, Server};

const IMAGE: &str = "/v1/images/debian-12";
const POOL: &str = "/v1/pools/gpu";
const KEY: &str = "/v1/signing_keys/release";
const HOUR_S: i64 = 3600;

fn require_signature(required: bool) -> Value {
    json!({ "spec": { "require_signature": required } })
}

/// Returns the published image with a signature of the key.
async fn sign_image(admin: &Caller, key: &SecretKey) -> Value {
    let mut spec = admin.get(IMAGE).await.expect(200).body["spec"].clone();
    let manifest: ImageManifest = serde_json::from_value(spec.clone()).unwrap();
    spec["signature"] = json!(key.sign(&describe_image(&manifest)));
    json!({ "spec": spec })
}

/// Declares the key, publishes the image with a signature, and lets the pool ask for signatures.
async fn ask_for_signatures(admin: &Caller) {
    admin.put(KEY, &fleet::signing_key()).await.expect(201);
    let signed = sign_image(admin, &fleet::release_key()).await;
    admin.put(IMAGE, &signed).await.expect(200);
    let required = require_signature(true);
    admin.patch(POOL, &required).await.expect(200);
}

/// Ends the trust in the key at a time from now.
async fn end_key(world: &World, in_s: i64) {
    let end = world.server.app.clock.now() + SignedDuration::from_secs(in_s);
    let change = json!({ "spec": { "ends_at": end.to_string() } });
    world.admin.patch(KEY, &change).await.expect(200);
}

/// Lets the server claim the missing nodes. Returns the counts of the pool.
async fn fill_pool(world: &World) -> Value {
    replicas::round(&world.server.app, FIRST).await.unwrap();
    let pool = world.admin.get(POOL).await.expect(200).body;
    pool["status"]["replicas"].clone()
}

fn find_image(job: &Job) -> &WriteImage {
    let JobSpec::WriteImage { plan, .. } = &job.spec else {
        panic!("{:?}", job.spec)
    };
    plan
}

#[tokio::test]
async fn a_pool_that_asks_for_a_signature_gets_no_other_image() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let required = require_signature(true);
    admin.put(KEY, &fleet::signing_key()).await.expect(201);
    let stranger = SecretKey::from_seed(&[8; 32]);
    for publish in [None, Some(&stranger)] {
        if let Some(key) = publish {
            let signed = sign_image(&admin, key).await;
            admin.put(IMAGE, &signed).await.expect(200);
        }
        let refused = admin.patch(POOL, &required).await;
        assert_eq!(
            refused.problem(),
            (422, "unprocessable", "/spec/image"),
            "{}",
            refused.text
        );
        // A plan is refused like the write.
        let mut pool = fleet::pool()["spec"].clone();
        pool["require_signature"] = json!(true);
        let plan = json!({ "objects": [{ "kind": "pool", "name": "gpu", "spec": pool }] });
        let planned = admin.post("/v1/plan", &plan).await.expect(200);
        assert!(planned.text.contains("unsigned_image"), "{}", planned.text);
    }
    let signed = sign_image(&admin, &fleet::release_key()).await;
    admin.put(IMAGE, &signed).await.expect(200);
    admin.patch(POOL, &required).await.expect(200);

    // The image keeps a valid signature while the pool asks for signatures.
    let mut tampered = signed.clone();
    tampered["spec"]["kernel"] = json!("6.1.0-2-amd64");
    for other in [fleet::image(), tampered] {
        let refused = admin.put(IMAGE, &other).await;
        assert_eq!(
            refused.problem(),
            (422, "unprocessable", "/spec/signature"),
            "{}",
            refused.text
        );
    }
    let mut labelled = signed;
    labelled["labels"] = json!({ "channel": "stable" });
    admin.put(IMAGE, &labelled).await.expect(200);
    admin
        .patch(POOL, &require_signature(false))
        .await
        .expect(200);
    admin.put(IMAGE, &fleet::image()).await.expect(200);
}

#[tokio::test]
async fn malformed_keys_and_signatures_are_refused_with_advice() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    admin.put(KEY, &fleet::signing_key()).await.expect(201);
    let wrong = json!({ "spec": { "public_key": "ssh-ed25519 AAAA" } });
    let refused = admin.put("/v1/signing_keys/wrong", &wrong).await;
    assert_eq!(
        refused.problem(),
        (422, "unprocessable", "/spec/public_key")
    );
    assert!(refused.text.contains("muster image key"));
    let mut image = fleet::image();
    image["spec"]["signature"] = json!("none");
    let refused = admin.put(IMAGE, &image).await;
    assert_eq!(refused.problem(), (422, "unprocessable", "/spec/signature"));
    assert!(refused.text.contains("muster image sign"));
}

#[tokio::test]
async fn administrators_alone_trust_keys_and_end_the_need_for_signatures() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    let owner = server.caller(Role::ReleaseOwner).await;
    owner.put(KEY, &fleet::signing_key()).await.expect(403);
    admin.put(KEY, &fleet::signing_key()).await.expect(201);
    let later = json!({ "spec": { "ends_at": "2999-01-01T00:00:00Z" } });
    owner.patch(KEY, &later).await.expect(403);
    owner.expecting(1).delete(KEY).await.expect(403);
    // A release owner signs, publishes, and asks for more.
    let signed = sign_image(&owner, &fleet::release_key()).await;
    owner.put(IMAGE, &signed).await.expect(200);
    let required = require_signature(true);
    owner.patch(POOL, &required).await.expect(200);
    let without = require_signature(false);
    let refused = owner.patch(POOL, &without).await.expect(403);
    assert!(
        refused.text.contains("pool.drop-signature"),
        "{}",
        refused.text
    );
    owner.put(POOL, &fleet::pool()).await.expect(403);
    admin.patch(POOL, &without).await.expect(200);
}

#[tokio::test]
async fn an_order_carries_the_signature_of_its_image() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    assert_eq!(find_image(&job).signed_image, None);
    world.agent.work(&job).await.unwrap();
    world.settle().await;

    ask_for_signatures(&world.admin).await;
    // The revision of n1 is older than the signature of the same image.
    world.ask("n1", "reinstall").await.expect(202);
    let job = world.until_leased("n1", "write_image").await;
    let plan = find_image(&job);
    let signed = plan.signed_image.as_ref().unwrap();
    let keys = [fleet::release_key().public()];
    assert_eq!(signed.keys, [keys[0].to_string()]);
    assert_eq!(verify_order(plan, signed, &keys), Ok(()));
    let other = WriteImage {
        digest: Digest::of(b"other"),
        ..plan.clone()
    };
    let refused = verify_order(&other, signed, &keys);
    assert_eq!(refused, Err(SignatureError::OtherImage));
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");

    // An agent of the version before cannot read the member, and does its work without.
    let said = orders::said();
    let known: Vec<&str> = said
        .split(',')
        .filter(|word| *word != "signed_image")
        .collect();
    world.reads(&known.join(","));
    world.claim("n2").await.expect(201);
    let job = world.until_leased("n2", "write_image").await;
    assert_eq!(find_image(&job).signed_image, None);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
}

#[tokio::test]
async fn a_key_that_has_ended_signs_no_further_installation() {
    let mut world = World::start(2).await;
    world.settle().await;
    ask_for_signatures(&world.admin).await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");

    // The key ends after the request and before the order.
    world.ask("n1", "reinstall").await.expect(202);
    end_key(&world, 0).await;
    world.settle().await;
    assert_eq!(world.state("n1").await, "failed");
    let reason = world.value("n1", "reason").await.unwrap();
    assert!(reason.contains("no trusted key signed"), "{reason}");

    // No further work into the image is accepted, and other changes of the pool are.
    let refused = world.claim("n2").await;
    assert_eq!(refused.problem(), (409, "unsigned_image", ""));
    let window = json!({ "spec": { "undo_window_s": 60 } });
    world.admin.patch(POOL, &window).await.expect(200);
    end_key(&world, HOUR_S).await;
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
    end_key(&world, -HOUR_S).await;
    let refused = world.ask("n2", "reinstall").await;
    assert_eq!(refused.problem(), (409, "unsigned_image", ""));
}

/// Replicas and replacements install the image of the pool too.
#[tokio::test]
async fn no_node_is_claimed_for_an_image_whose_key_has_ended() {
    let mut world = World::start(3).await;
    world.settle().await;
    ask_for_signatures(&world.admin).await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    end_key(&world, 0).await;
    let refused = world.replace("n1").await;
    assert_eq!(refused.problem(), (409, "unsigned_image", ""));
    let one = json!({ "spec": { "replicas": 1 } });
    world.admin.patch(POOL, &one).await.expect(200);
    let standing = fill_pool(&world).await;
    assert_eq!(standing["claimed"], 0, "{standing}");
    let because = standing["because"].as_str().unwrap();
    assert!(because.contains("no trusted key signed"), "{because}");

    end_key(&world, HOUR_S).await;
    assert_eq!(fill_pool(&world).await["claimed"], 1);
    world.replace("n1").await.expect(202);
}

/// Revision 1 has an image without a signature, and the newest revision another image with one.
#[tokio::test]
async fn a_rollout_goes_to_the_signed_image_and_not_back() {
    let mut world = World::serving(1, |_, body| body).await;
    let mut image = fleet::image();
    image["spec"]["digest"] = json!(fleet::digest("image 2"));
    image["spec"]["raw_digest"] = json!(fleet::digest("raw 2"));
    let mut stack = world.admin.get("/v1/stacks/base").await.expect(200).body["spec"].clone();
    stack["version"] = json!("2");
    stack["lock"]["image_digest"] = image["spec"]["digest"].clone();
    let stack = json!({ "spec": stack });
    for (path, body) in [(IMAGE, image), ("/v1/stacks/base", stack)] {
        world.admin.put(path, &body).await.expect(200);
    }
    ask_for_signatures(&world.admin).await;
    let pool = world.admin.get(POOL).await.expect(200).body;
    let newest = pool["status"]["newest_revision"].as_i64().unwrap();

    let mut policy = at_once();
    policy["allow"] = json!("reinstall");
    start(&world, newest, &policy).await;
    settle(&mut world).await;
    assert_eq!(running(&world, "n1").await, Some(newest));

    let refused = plan(&world, 1, &policy).await;
    assert_eq!(
        refused.problem(),
        (409, "unsigned_image", ""),
        "{}",
        refused.text
    );
    let body = json!({ "revision": 1, "reason": "a test" });
    let path = "/v1/claims/c-n1/actions/assign-revision";
    let refused = world.admin.post(path, &body).await;
    assert_eq!(
        refused.problem(),
        (409, "unsigned_image", ""),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn an_agent_gets_the_signature_of_the_live_image() {
    let mut world = World::start(2).await;
    let job = world.until_leased("n1", "boot_live").await;
    let find_boot = |job: &Job| match &job.spec {
        JobSpec::BootLive(boot) => boot.clone(),
        other => panic!("{other:?}"),
    };
    let boot = find_boot(&job);
    assert_eq!(boot.live_signature, None);
    world.agent.work(&job).await.unwrap();
    world.settle().await;

    let signature = fleet::release_key().sign(&describe_live(boot.kernel, boot.initrd));
    let path = "/v1/sites/lab";
    let sign = |signature: &str| json!({ "spec": { "live": { "signature": signature } } });
    let refused = world.admin.patch(path, &sign("none")).await;
    assert_eq!(
        refused.problem(),
        (422, "unprocessable", "/spec/live/signature")
    );
    let written = world.admin.patch(path, &sign(&signature)).await;
    written.expect(200);
    world.ask("n1", "inspect").await.expect(202);
    let job = world.until_leased("n1", "boot_live").await;
    assert_eq!(find_boot(&job).live_signature, Some(signature));
    world.agent.work(&job).await.unwrap();
    world.settle().await;

    // An agent of the version before cannot read the member, and does its work without.
    let said = orders::said();
    let known: Vec<&str> = said
        .split(',')
        .filter(|word| *word != "live_signature")
        .collect();
    world.reads(&known.join(","));
    world.ask("n2", "inspect").await.expect(202);
    let job = world.until_leased("n2", "boot_live").await;
    assert_eq!(find_boot(&job).live_signature, None);
}
