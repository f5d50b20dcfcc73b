//! Claims, releases, undos, new installations, retries and agents at once, again and again; the machines' own logs say whether anything was done that should not
//! have been.

use muster_core::wire::job::JobSpec;
use muster_core::wire::result::Outcome;
use serde_json::json;
use tokio::task::JoinSet;

use crate::simulated::World;
use crate::support::server::Caller;
use muster_lab::simulated::agent::Agent;

const NODES: u8 = 3;
const ROUNDS: usize = 40;

/// Requests that race: each of them may be refused, none may break a promise.
async fn ask(admin: Caller, round: usize, number: usize) {
    let node = format!("n{}", 1 + (round + number) % usize::from(NODES));
    let claim = format!("/v1/claims/c-{node}");
    let reply = match (round + number * number) % 9 {
        0 | 1 => {
            let body =
                json!({ "name": format!("c-{node}"), "spec": { "pool": "gpu", "node": node } });
            admin.post("/v1/claims", &body).await
        }
        2 => admin.expecting(1).delete(&claim).await,
        3 => {
            admin
                .expecting(1)
                .delete(&format!("{claim}?erase_now=true"))
                .await
        }
        4 => admin.post(&format!("{claim}/undo"), &json!({})).await,
        5 => {
            admin
                .expecting(1)
                .post(&format!("{claim}/actions/replace"), &json!({}))
                .await
        }
        6 => {
            admin
                .post(&format!("/v1/nodes/{node}/actions/retry"), &json!({}))
                .await
        }
        7 => {
            let because = json!({ "reason": "its root file system is damaged" });
            admin
                .expecting(1)
                .post(&format!("/v1/nodes/{node}/actions/reinstall"), &because)
                .await
        }
        _ => {
            admin
                .post(&format!("/v1/nodes/{node}/actions/inspect"), &json!({}))
                .await
        }
    };
    assert!(reply.status < 500, "{}", reply.text);
}

/// What an agent does with what it can get, whatever becomes of it.
async fn work(agent: Agent) {
    let Ok(jobs) = agent.lease(100, 0).await else {
        return;
    };
    for job in jobs {
        // Some are slower than the person who changes their mind.
        if !matches!(job.spec, JobSpec::Inventory { .. }) {
            tokio::task::yield_now().await;
        }
        let _: Result<Outcome, _> = agent.work(&job).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_written_but_under_the_permit_of_its_moment() {
    let mut world = World::start(NODES).await;
    world.settle().await;
    for round in 0..ROUNDS {
        if round % 9 == 0 {
            world.fail(&format!("n{}", 1 + round % 3), "write_image", false, 1);
        }
        if round % 5 == 0 {
            // As many as can be are in service: what is asked next is about what jobs run on.
            for number in 1..=NODES {
                let _taken = world.claim(&format!("n{number}")).await;
            }
            world.settle().await;
        }
        let mut racing = JoinSet::new();
        for number in 0..6 {
            racing.spawn(ask(world.admin.clone(), round, number));
        }
        for _ in 0..2 {
            let app = world.server.app.clone();
            racing.spawn(async move {
                let _turns = muster_server::engine::run_until_idle(&app).await.unwrap();
            });
            racing.spawn(work(world.agent.clone()));
        }
        while let Some(ended) = racing.join_next().await {
            ended.unwrap();
        }
        world.check().await;
        world.advance(31);
        world.expire_leases().await;
        for _ in 0..6 {
            world.pass().await;
        }
        world.check().await;
    }
    // It raced about something.
    let acts = |kind: &str| {
        let rack = world.rack();
        rack.machines
            .values()
            .flat_map(|machine| &machine.log)
            .filter(|done| done.act == kind)
            .count()
    };
    let again = "SELECT count(*) FROM operations WHERE kind = 'reinstall'";
    let again: i64 = sqlx::query_scalar(again)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    let (wipes, images) = (acts("wipe"), acts("image"));
    assert!(
        wipes > 3 && images > 3 && again > 3,
        "{wipes} wipes, {images} images, {again} new installations"
    );
}
