//! The engine's promises as the database says them: each is broken by hand and refused by name. What the engine never does, a bug of it
//! cannot do either.

use sqlx::PgPool;

use crate::simulated::World;

/// The name of the constraint that refuses a statement.
async fn refused_by(pool: &PgPool, statement: &'static str) -> String {
    let error = sqlx::query(statement)
        .execute(pool)
        .await
        .expect_err(statement);
    let database = error
        .as_database_error()
        .unwrap_or_else(|| panic!("{statement}: {error}"));
    database
        .constraint()
        .unwrap_or_else(|| panic!("{statement}: {error}"))
        .to_owned()
}

const OPERATION: &str = "INSERT INTO operations (id, kind, node_id, state, actor, created_at) SELECT gen_random_uuid(), 'test', id, 'queued', 'test', now() FROM nodes";
const CLAIM: &str = "INSERT INTO claims (id, name, node_id, pool_id, spec, state, epoch, actor, created_at, updated_at)
    SELECT gen_random_uuid(), 'second', node_id, pool_id, spec, 'bound', epoch, actor, now(), now() FROM claims";

/// A permit of this assignment whose job is done, once more.
const ENDED: &str = "UPDATE permits SET redemptions = redemptions + 1
    WHERE kind = 'power' AND redeemed_at IS NOT NULL AND epoch = (SELECT epoch FROM nodes)";
const ACT: &str = "INSERT INTO job_acts SELECT id, round, 'reset', attempt, '', now() FROM jobs WHERE state = 'leased'";

#[tokio::test]
async fn what_the_engine_promises_the_database_refuses_to_break() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    let pool = world.server.app.pool.clone();
    let permit = |kind: &str, epoch: &str, disks: &str| {
        format!(
            "INSERT INTO permits (id, kind, node_id, operation_id, job_id, epoch, disk_serials, expires_at)
             SELECT gen_random_uuid(), '{kind}', n.id, n.operation_id, j.id, {epoch}, {disks}, now()
             FROM nodes n JOIN jobs j ON j.node_id = n.id AND j.state = 'leased'"
        )
    };
    let leak = |text: String| -> &'static str { text.leak() };
    for (statement, constraint) in [
        // I1: a node works on one operation. I2: it has one owner.
        (OPERATION, "operations_open_key"),
        (CLAIM, "claims_unsanitised"),
        // I3, I4, I12: wiped by its release alone, under the assignment of now, and never while protected.
        (
            leak(permit("wipe", "n.epoch", "'{ROOT-n1}'")),
            "permits_claimed",
        ),
        (
            leak(permit("power", "n.epoch + 1", "NULL")),
            "permits_epoch",
        ),
        (
            leak(permit("power", "n.epoch - 1", "NULL")),
            "permits_epoch",
        ),
        ("UPDATE nodes SET epoch = epoch - 1", "nodes_epoch_rises"),
        // I5, I6, I11: what was fenced stays fenced, what has ended stays so.
        ("UPDATE agents SET epoch = epoch - 1", "agents_epoch_rises"),
        (
            "UPDATE jobs SET attempt = attempt - 1 WHERE state = 'leased'",
            "jobs_attempts_rise",
        ),
        (
            "UPDATE jobs SET state = 'cancelled', result = NULL WHERE state = 'succeeded'",
            "jobs_end_once",
        ),
        (
            "UPDATE operations SET state = 'failed' WHERE state = 'succeeded'",
            "operations_end_once",
        ),
        (
            "UPDATE operations SET finished_at = now() WHERE state = 'running'",
            "operations_finished",
        ),
        (
            "UPDATE nodes SET state = 'failed', failed_phase = 'draining'",
            "nodes_drain_purpose",
        ),
        // I8: a boot belongs to work that is under way, and nothing is begun before its permit was redeemed.
        (
            "UPDATE jobs SET permit_id = NULL WHERE kind = 'boot_live'",
            "jobs_armed",
        ),
        (ENDED, "permits_armed"),
        (ACT, "job_acts_permitted"),
        // I9: two boots share no secret.
        ("UPDATE jobs SET nonce = 'the same'", "jobs_nonce_key"),
    ] {
        assert_eq!(
            refused_by(&pool, statement).await,
            constraint,
            "{statement}"
        );
    }
    sqlx::query("UPDATE nodes SET unsanitised = false")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(refused_by(&pool, CLAIM).await, "claims_node_key");
    sqlx::query("UPDATE nodes SET unsanitised = true")
        .execute(&pool)
        .await
        .unwrap();
    world.protect("n1", true).await;
    let image = leak(permit("image", "n.epoch", "'{ROOT-n1}'"));
    assert_eq!(refused_by(&pool, image).await, "permits_protected");
    let redeemed = "UPDATE permits SET redemptions = redemptions + 1 WHERE kind = 'image'";
    assert_eq!(refused_by(&pool, redeemed).await, "permits_protected");
    // Power is not taken from a protected node's boots, and clearing it lets the work go on.
    sqlx::query(leak(permit("power", "n.epoch", "NULL")))
        .execute(&pool)
        .await
        .unwrap();
    world.protect("n1", false).await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    world.check().await;
}

/// I9: what let Muster into a machine for the first time does not outlive that.
#[tokio::test]
async fn an_adoption_does_not_end_with_its_credential_kept() {
    let world = World::start(1).await;
    let pool = &world.server.app.pool;
    let asked = "INSERT INTO adoptions (node_id, claim_id, claim_name, pool_id, credential_id, actor, created_at)
        SELECT n.id, gen_random_uuid(), 'c', p.id, c.id, 'test', now() FROM nodes n, objects p, objects c WHERE p.kind = 'pool' AND c.kind = 'credential'";
    sqlx::query(asked).execute(pool).await.unwrap();
    sqlx::query("UPDATE nodes SET adopted = true")
        .execute(pool)
        .await
        .unwrap();
    assert_eq!(
        refused_by(pool, "DELETE FROM adoptions").await,
        "adoptions_secret"
    );
    sqlx::query("UPDATE nodes SET adopted = false")
        .execute(pool)
        .await
        .unwrap();
    sqlx::query("DELETE FROM adoptions")
        .execute(pool)
        .await
        .unwrap();
}

/// I10: every event is read once and in order, whoever wrote meanwhile.
#[tokio::test]
async fn readers_of_the_history_miss_nothing() {
    let mut world = World::start(2).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    let (mut after, mut seen) = (0, Vec::new());
    for _ in 0..1000 {
        let page = world
            .admin
            .get(&format!("/v1/events?after={after}&limit=7"))
            .await
            .expect(200)
            .body;
        let items = page["items"].as_array().unwrap();
        if items.is_empty() {
            break;
        }
        seen.extend(items.iter().map(|event| event["seq"].as_i64().unwrap()));
        after = page["last_seq"].as_i64().unwrap();
    }
    assert!(seen.is_sorted_by(|one, next| one < next));
    let all: i64 = sqlx::query_scalar("SELECT count(*) FROM events")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(i64::try_from(seen.len()).unwrap(), all);
}

/// Two who wait for each other: the database ends one, and that one is told to come again.
#[tokio::test]
async fn a_deadlock_is_told_as_something_to_try_again() {
    let mut world = World::start(2).await;
    world.settle().await;
    let pool = &world.server.app.pool;
    let (mut one, mut other) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    let hold = |name: &str| format!("UPDATE nodes SET updated_at = now() WHERE name = '{name}'");
    sqlx::query(sqlx::AssertSqlSafe(hold("n1")))
        .execute(&mut *one)
        .await
        .unwrap();
    sqlx::query(sqlx::AssertSqlSafe(hold("n2")))
        .execute(&mut *other)
        .await
        .unwrap();
    let crossed = async {
        let second = sqlx::query(sqlx::AssertSqlSafe(hold("n2")))
            .execute(&mut *one)
            .await;
        one.rollback().await.unwrap();
        second
    };
    let (first, second) = tokio::join!(crossed, async {
        let second = sqlx::query(sqlx::AssertSqlSafe(hold("n1")))
            .execute(&mut *other)
            .await;
        other.rollback().await.unwrap();
        second
    });
    let ended: Vec<muster_server::error::Error> = [first.err(), second.err()]
        .into_iter()
        .flatten()
        .map(Into::into)
        .collect();
    let [error] = ended.as_slice() else {
        panic!("{ended:?}")
    };
    assert!(error.retryable(), "{error:?}");
    assert_eq!(error.public().0, "contended");
}

#[tokio::test]
async fn a_release_with_writable_disks_cannot_be_undone() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    world.settle().await;
    world.release("n1").await.expect(202);
    let wipe = world.until_leased("n1", "wipe").await;
    let pool = world.server.app.pool.clone();
    // Until then it is a person's to undo.
    let back = "UPDATE claims SET state = 'bound'";
    let mut undone = pool.begin().await.unwrap();
    sqlx::query(back).execute(&mut *undone).await.unwrap();
    undone.rollback().await.unwrap();
    let redeemed =
        "UPDATE permits SET redemptions = redemptions + 1, redeemed_at = now() WHERE kind = 'wipe'";
    sqlx::query(redeemed).execute(&pool).await.unwrap();
    assert_eq!(refused_by(&pool, back).await, "claims_kept");
    world.agent.work(&wipe).await.unwrap();
    world.settle().await;
    for state in [back, "UPDATE claims SET state = 'releasing'"] {
        assert_eq!(refused_by(&pool, state).await, "claims_end_once");
    }
    world.check().await;
}
