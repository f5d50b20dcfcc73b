//! What one look at the database cannot show: what may only rise, what has ended, and what nobody may do meanwhile. The looks of a walk are
//! held against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use sqlx::PgPool;
use uuid::Uuid;

use crate::simulated::World;
use muster_lab::simulated::machine::{Done, Running};

/// What the looks before have seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    node_epochs: BTreeMap<Uuid, i64>,
    agent_epochs: BTreeMap<Uuid, i64>,
    /// Round and attempt of each job, and its end.
    jobs: BTreeMap<Uuid, (i32, i32, Option<String>)>,
    /// How operations ended.
    ended: BTreeMap<Uuid, String>,
    events: BTreeSet<i64>,
    /// What each boot into the live image is known by, and whose it is.
    nonces: BTreeMap<String, String>,
    /// Protected nodes, and how often a disk of theirs was written or may be.
    protected: BTreeMap<String, (usize, i64)>,
}

impl Seen {
    /// Looks, and panics with the first promise that is broken.
    pub(super) async fn look(&mut self, world: &World) {
        let pool = &world.server.app.pool;
        self.epochs_rise(pool).await;
        self.attempts_rise(pool).await;
        self.ends_stay(pool).await;
        self.history_stays(pool).await;
        self.boots_are_armed(world).await;
        self.protected_is_not_written(world).await;
        permits_are_of_their_assignment(pool).await;
        credentials_are_for_once(pool).await;
    }

    /// I4, I5: what was fenced stays fenced.
    async fn epochs_rise(&mut self, pool: &PgPool) {
        let nodes: Vec<(Uuid, i64)> = sqlx::query_as("SELECT id, epoch FROM nodes")
            .fetch_all(pool)
            .await
            .unwrap();
        let agents: Vec<(Uuid, i64)> = sqlx::query_as("SELECT id, epoch FROM agents")
            .fetch_all(pool)
            .await
            .unwrap();
        for (before, now) in [
            (&mut self.node_epochs, nodes),
            (&mut self.agent_epochs, agents),
        ] {
            for (id, epoch) in now {
                let former = before.insert(id, epoch).unwrap_or(0);
                assert!(former <= epoch, "{id}: epoch {former} became {epoch}");
            }
        }
    }

    /// I6: only the latest attempt commits, and a round that has ended stays ended.
    async fn attempts_rise(&mut self, pool: &PgPool) {
        let jobs: Vec<(Uuid, i32, i32, Option<String>)> =
            sqlx::query_as("SELECT id, round, attempt, CASE WHEN finished_at IS NULL THEN NULL ELSE state || finished_at::text END FROM jobs")
                .fetch_all(pool)
                .await
                .unwrap();
        for (id, round, attempt, end) in jobs {
            if let Some((old_round, old_attempt, old_end)) =
                self.jobs.insert(id, (round, attempt, end.clone()))
            {
                assert!(
                    (old_round, old_attempt) <= (round, attempt),
                    "job {id}: {old_attempt} became {attempt}"
                );
                let stays = old_end.is_none() || old_end == end || round > old_round;
                assert!(stays, "job {id} ended as {old_end:?}, and then as {end:?}");
            }
        }
    }

    /// I11.
    async fn ends_stay(&mut self, pool: &PgPool) {
        let ended: Vec<(Uuid, String)> = sqlx::query_as(
            "SELECT id, state || finished_at::text FROM operations WHERE finished_at IS NOT NULL",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        let ended: BTreeMap<Uuid, String> = ended.into_iter().collect();
        for (id, end) in &self.ended {
            assert_eq!(ended.get(id), Some(end), "operation {id} had ended");
        }
        self.ended = ended;
    }

    /// I10: nothing is taken from the history, and what is new stands after what was read.
    async fn history_stays(&mut self, pool: &PgPool) {
        let events: Vec<i64> = sqlx::query_scalar("SELECT seq FROM events ORDER BY seq")
            .fetch_all(pool)
            .await
            .unwrap();
        let events: BTreeSet<i64> = events.into_iter().collect();
        let last = self.events.last().copied().unwrap_or(0);
        assert_eq!(
            events.range(..=last).copied().collect::<BTreeSet<_>>(),
            self.events,
            "the history was changed"
        );
        self.events = events;
    }

    /// I8, I9: a machine in the live image was let in there by a permit, for its node, under a secret of that boot alone.
    async fn boots_are_armed(&mut self, world: &World) {
        let pool = &world.server.app.pool;
        let armed: Vec<(String, String)> = sqlx::query_as(
            "SELECT j.nonce, n.name FROM jobs j JOIN nodes n ON n.id = j.node_id JOIN operations o ON o.id = j.operation_id
             WHERE j.kind = 'boot_live'",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        for (nonce, node) in armed {
            let owner = self.nonces.entry(nonce).or_insert_with(|| node.clone());
            assert_eq!(*owner, node, "two boots share a secret");
        }
        let unpermitted: Vec<Uuid> = sqlx::query_scalar(
            "SELECT a.job_id FROM job_acts a WHERE NOT EXISTS
               (SELECT FROM permits p WHERE p.job_id = a.job_id AND p.kind = 'power' AND p.redeemed_at <= a.started_at)",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        assert!(
            unpermitted.is_empty(),
            "acts without a permit: {unpermitted:?}"
        );
        for (name, nonce) in live(world) {
            assert_eq!(
                self.nonces.get(&nonce),
                Some(&name),
                "{name} runs the live image, and nobody armed that"
            );
        }
    }

    /// I12: from one look at a protected node to the next, no disk of it was written, and no permit to do so was made or used.
    async fn protected_is_not_written(&mut self, world: &World) {
        let now: Vec<(String, i64)> = sqlx::query_as(
            "SELECT n.name, (SELECT COALESCE(sum(1 + p.redemptions), 0) FROM permits p WHERE p.node_id = n.id AND p.kind <> 'power')
             FROM nodes n WHERE n.protected",
        )
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap();
        let count = |name: &str| {
            world.machine(name, |machine| {
                machine.log.iter().filter(|done| writes(done)).count()
            })
        };
        let now: BTreeMap<_, _> = now
            .into_iter()
            .map(|(name, permits)| (name.clone(), (count(&name), permits)))
            .collect();
        for (name, before) in &self.protected {
            assert!(
                now.get(name).is_none_or(|now| now == before),
                "{name} is protected and was written"
            );
        }
        self.protected = now;
    }
}

/// Machines in the live image, and the secret each was let in with.
fn live(world: &World) -> Vec<(String, String)> {
    let rack = world.rack();
    let live = rack
        .machines
        .iter()
        .filter_map(|(name, machine)| match &machine.running {
            Running::Live { nonce } => Some((name.clone(), nonce.clone())),
            Running::Off | Running::Installed | Running::Nothing => None,
        });
    live.collect()
}

fn writes(done: &Done) -> bool {
    matches!(&*done.act, "image" | "wipe")
}

/// I3, I4: no permit is of an assignment to come, and none to wipe is of a claim that holds its node.
async fn permits_are_of_their_assignment(pool: &PgPool) {
    let wrong: Vec<Uuid> = sqlx::query_scalar(
        "SELECT p.id FROM permits p JOIN nodes n ON n.id = p.node_id
         WHERE p.epoch > n.epoch OR (p.kind = 'wipe' AND EXISTS
           (SELECT FROM claims c WHERE c.node_id = n.id AND c.state = 'bound' AND c.epoch = p.epoch))",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    assert!(wrong.is_empty(), "permits that should not be: {wrong:?}");
}

/// I9: what let Muster into a machine for the first time is forgotten.
async fn credentials_are_for_once(pool: &PgPool) {
    let kept: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM secrets s JOIN objects o ON o.id = s.object_id
         WHERE o.spec ->> 'purpose' = 'adopt' AND EXISTS (SELECT FROM nodes WHERE adopted)",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    assert_eq!(kept, 0, "an adoption is done and its credential is kept");
}

/// What a look panics with; nothing where it finds nothing.
async fn complaint(mut seen: Seen, world: &World) -> String {
    let mut look = pin!(seen.look(world));
    let panic =
        poll_fn(
            |context| match catch_unwind(AssertUnwindSafe(|| look.as_mut().poll(context))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(None),
                Err(panic) => Poll::Ready(Some(panic)),
            },
        );
    panic
        .await
        .and_then(|panic| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Breaks a promise behind the back of everything that keeps it; what the next look says of that.
async fn broken(world: &World, statements: &[&'static str]) -> String {
    let mut seen = Seen::default();
    seen.look(world).await;
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    sqlx::query("SET session_replication_role = replica")
        .execute(&mut *conn)
        .await
        .unwrap();
    for statement in statements {
        let done = sqlx::query(*statement).execute(&mut *conn).await.unwrap();
        assert!(done.rows_affected() > 0, "{statement} breaks nothing");
    }
    sqlx::query("SET session_replication_role = DEFAULT")
        .execute(&mut *conn)
        .await
        .unwrap();
    drop(conn);
    complaint(seen, world).await
}

#[tokio::test]
async fn a_broken_promise_is_seen() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.until_leased("n1", "write_image").await;
    world.protect("n1", true).await;
    for (statement, told) in [
        ("UPDATE nodes SET epoch = epoch - 1", "epoch 1 became 0"),
        ("UPDATE nodes SET epoch = epoch + 5", ""),
        ("UPDATE agents SET epoch = epoch - 1", "epoch 1 became 0"),
        (
            "UPDATE jobs SET attempt = attempt - 1 WHERE state = 'leased'",
            "1 became 0",
        ),
        (
            "UPDATE jobs SET state = 'failed', result = NULL WHERE kind = 'power_off'",
            "ended as",
        ),
        (
            "UPDATE operations SET state = 'failed' WHERE state = 'succeeded'",
            "had ended",
        ),
        (
            "DELETE FROM events WHERE seq = (SELECT min(seq) FROM events)",
            "the history was changed",
        ),
        (
            "UPDATE permits SET redemptions = redemptions + 1 WHERE kind = 'image'",
            "is protected and was written",
        ),
    ] {
        match told {
            // Not a promise broken, but the way back from one.
            "" => drop(
                sqlx::query(statement)
                    .execute(&world.server.app.pool)
                    .await
                    .unwrap(),
            ),
            told => assert!(
                broken(&world, &[statement]).await.contains(told),
                "{statement}"
            ),
        }
    }
    world.machine("n1", |machine| {
        machine.running = Running::Live {
            nonce: "nobody's".into(),
        }
    });
    assert!(
        complaint(Seen::default(), &world)
            .await
            .contains("nobody armed that")
    );
    world.machine("n1", |machine| machine.running = Running::Off);
    let unpermitted = "UPDATE permits SET redeemed_at = NULL WHERE kind = 'power'";
    assert!(
        broken(&world, &[unpermitted])
            .await
            .contains("acts without a permit")
    );
    sqlx::query("DELETE FROM job_acts")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    let adopted = [
        "UPDATE nodes SET adopted = true",
        "UPDATE objects SET spec = spec || '{\"purpose\": \"adopt\"}' WHERE kind = 'credential'",
    ];
    assert!(
        broken(&world, &adopted)
            .await
            .contains("its credential is kept")
    );
    sqlx::query("DELETE FROM secrets")
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    let wipe = "UPDATE permits SET kind = 'wipe' WHERE kind = 'image' AND epoch = (SELECT epoch FROM claims)";
    let told = broken(&world, &["UPDATE nodes SET protected = false", wipe]).await;
    assert!(told.contains("permits that should not be"), "{told}");
}
