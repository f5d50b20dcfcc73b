//! Verification of the history after changes by a writer with access to every row. The report names
//! every change to a sealed event.

use muster_api::tokens::Role;
use muster_core::audit::{BEGINNING, Seal};
use muster_server::audit::{self, Copies, Fault, Report};
use muster_server::db::events::NewEvent;
use muster_server::{db, tasks};
use serde_json::json;
use sqlx::{Executor as _, PgPool};

use crate::support::fleet;
use crate::support::server::Server;

/// Returns a server with a history under four anchored seals.
async fn sealed() -> Server {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut anchored = tasks::seals::round(&server.app, 0).await.unwrap();
    for number in 1..4 {
        admin
            .put(&format!("/v1/nodes/n{number}"), &fleet::node(number))
            .await
            .expect(201);
        anchored = tasks::seals::round(&server.app, anchored).await.unwrap();
    }
    assert_eq!(anchored, 4);
    server
}

async fn verify(server: &Server) -> Report {
    let anchors = audit::read_anchors(&server.app.anchors).unwrap();
    let copies = Copies {
        anchors: &anchors,
        exports: None,
    };
    audit::verify(&mut server.app.pool.acquire().await.unwrap(), copies)
        .await
        .unwrap()
}

/// Runs statements with all triggers disabled, as the owner of the tables can.
async fn as_owner(pool: &PgPool, statements: &[&str]) {
    let mut conn = pool.acquire().await.unwrap();
    for statement in [
        &[
            "ALTER TABLE events DISABLE TRIGGER ALL",
            "ALTER TABLE event_seals DISABLE TRIGGER ALL",
        ],
        statements,
        &[
            "ALTER TABLE events ENABLE TRIGGER ALL",
            "ALTER TABLE event_seals ENABLE TRIGGER ALL",
        ],
    ]
    .concat()
    {
        conn.execute(sqlx::AssertSqlSafe(statement.to_owned()))
            .await
            .unwrap();
    }
}

fn found(report: &Report) -> Vec<(Fault, i64, Option<i64>)> {
    assert_eq!(report.whole, report.findings.is_empty());
    report
        .findings
        .iter()
        .map(|finding| (finding.fault, finding.seal, finding.seq))
        .collect()
}

#[tokio::test]
async fn an_untouched_history_is_whole_to_its_last_event() {
    let server = sealed().await;
    let report = verify(&server).await;
    assert_eq!(found(&report), []);
    let events: i64 = sqlx::query_scalar("SELECT count(*) FROM events")
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(
        (report.seals, report.anchors, report.events, report.unsealed),
        (4, 4, events, 0)
    );
    // A round without new events adds no seal. Triggers reject changes to events and seals.
    assert_eq!(tasks::seals::round(&server.app, 4).await.unwrap(), 4);
    for statement in [
        "UPDATE events SET actor = 'x'",
        "DELETE FROM events",
        "TRUNCATE events",
        "DELETE FROM event_seals",
    ] {
        assert!(
            server.app.pool.execute(statement).await.is_err(),
            "{statement}"
        );
    }
}

#[tokio::test]
async fn an_edited_event_is_named_whatever_was_edited() {
    for edit in [
        "actor = 'user:somebody-else'",
        "at = at + interval '1 microsecond'",
        "detail = jsonb_set(detail, '{kind}', '\"other\"')",
        "detail = detail || '{\"n\": 10000000000000000000000001}'",
        "request_id = ''",
        "object_id = NULL",
        "summary = summary || ' '",
        "kind = 'object.changed'",
    ] {
        let server = sealed().await;
        as_owner(
            &server.app.pool,
            &[&format!("UPDATE events SET {edit} WHERE seq = 2")],
        )
        .await;
        assert_eq!(
            found(&verify(&server).await),
            [(Fault::EventChanged, 1, Some(2))],
            "{edit}"
        );
    }
}

#[tokio::test]
async fn an_event_that_was_removed_or_slipped_in_is_named() {
    let server = sealed().await;
    as_owner(&server.app.pool, &["DELETE FROM events WHERE seq = 3"]).await;
    assert_eq!(
        found(&verify(&server).await),
        [(Fault::EventRemoved, 1, Some(3))]
    );
    let again = "INSERT INTO events (seq, id, at, actor, kind, summary) VALUES (3, gen_random_uuid(), now(), 'a', 'b', 'c')";
    server.app.pool.execute(again).await.unwrap();
    assert_eq!(
        found(&verify(&server).await),
        [(Fault::EventChanged, 1, Some(3))]
    );
    let before = again.replace("VALUES (3", "VALUES (-3");
    server
        .app
        .pool
        .execute(sqlx::AssertSqlSafe(before))
        .await
        .unwrap();
    let report = verify(&server).await;
    assert!(
        found(&report).contains(&(Fault::EventAdded, 1, Some(-3))),
        "{report:?}"
    );
}

#[tokio::test]
async fn a_history_cut_at_its_end_is_detected_by_seals_or_anchors() {
    let server = sealed().await;
    let last: i64 = sqlx::query_scalar("SELECT max(seq) FROM events")
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    as_owner(
        &server.app.pool,
        &["DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)"],
    )
    .await;
    assert_eq!(
        found(&verify(&server).await),
        [(Fault::EventRemoved, 4, Some(last))]
    );
    as_owner(
        &server.app.pool,
        &["DELETE FROM event_seals WHERE number = 4"],
    )
    .await;
    assert_eq!(found(&verify(&server).await), [(Fault::Truncated, 4, None)]);
    // The server continues after the cut and seals other events under number 4. The anchor differs.
    let admin = server.caller(Role::Admin).await;
    admin.put("/v1/nodes/n9", &fleet::node(9)).await.expect(201);
    tasks::seals::round(&server.app, 0).await.unwrap();
    let report = verify(&server).await;
    assert_eq!(found(&report), [(Fault::AnchorDiffers, 4, None)]);
    // All events and seals are removed.
    as_owner(
        &server.app.pool,
        &["TRUNCATE events", "TRUNCATE event_seals"],
    )
    .await;
    let report = verify(&server).await;
    assert_eq!(
        report
            .findings
            .iter()
            .filter(|finding| finding.fault == Fault::Truncated)
            .count(),
        4,
        "{report:?}"
    );
}

#[tokio::test]
async fn a_chain_forged_after_an_edit_differs_from_the_anchors() {
    let server = sealed().await;
    let pool = &server.app.pool;
    as_owner(
        pool,
        &["UPDATE events SET actor = 'user:nobody' WHERE seq = 2"],
    )
    .await;
    let mut conn = pool.acquire().await.unwrap();
    let mut forged: Vec<Seal> = Vec::new();
    let (mut previous, mut after) = (BEGINNING, 0);
    for row in db::seals::list(&mut conn, 0, 10).await.unwrap() {
        let last = *row.seqs.last().unwrap();
        let events = db::seals::list_digests(&mut conn, after, last, 1000)
            .await
            .unwrap();
        let seal = Seal {
            number: row.number,
            previous,
            sealed_at: row.sealed_at,
            events,
        };
        (previous, after) = (seal.hash(), last);
        forged.push(seal);
    }
    // A single forged seal breaks the chain. A completely forged chain is sound, but differs from
    // the anchors.
    let digests = hex::encode(
        forged[0]
            .events
            .iter()
            .flat_map(|(_, digest)| *digest)
            .collect::<Vec<u8>>(),
    );
    as_owner(
        pool,
        &[&format!(
            "UPDATE event_seals SET digests = '\\x{digests}' WHERE number = 1"
        )],
    )
    .await;
    assert_eq!(
        found(&verify(&server).await),
        [(Fault::SealChanged, 1, None)]
    );
    as_owner(pool, &["TRUNCATE event_seals"]).await;
    for seal in &forged {
        db::seals::insert(&mut conn, seal).await.unwrap();
    }
    let report = audit::verify(&mut conn, Copies::default()).await.unwrap();
    assert!(report.whole, "without anchors nobody can tell: {report:?}");
    let expected: Vec<_> = (1..5)
        .map(|number| (Fault::AnchorDiffers, number, None))
        .collect();
    assert_eq!(found(&verify(&server).await), expected);
    as_owner(pool, &["DELETE FROM event_seals WHERE number = 2"]).await;
    let report = verify(&server).await;
    assert!(
        found(&report).contains(&(Fault::SealRemoved, 2, None)),
        "{report:?}"
    );
}

#[tokio::test]
async fn who_writes_events_and_who_seals_them_never_wait_for_each_other() {
    let server = Server::start().await;
    let pool = &server.app.pool;
    let event = |summary: &str| NewEvent {
        at: server.app.clock.now(),
        actor: "muster".into(),
        kind: "test",
        node: None,
        object: None,
        operation: None,
        request_id: None,
        summary: summary.into(),
        detail: json!({ "a": [1, 2.50, null] }),
    };
    let mut slow = pool.begin().await.unwrap();
    slow.execute("SET LOCAL lock_timeout = '5s'").await.unwrap();
    db::events::insert(&mut slow, event("slow")).await.unwrap();
    db::events::insert(&mut pool.acquire().await.unwrap(), event("quick"))
        .await
        .unwrap();
    assert!(!tasks::seals::seal(&server.app).await.unwrap());
    assert!(
        db::seals::latest(&mut pool.acquire().await.unwrap())
            .await
            .unwrap()
            .is_none(),
        "one before is under way"
    );
    // Inserts continue while a replica seals. A second replica skips the sealing.
    let mut sealer = pool.begin().await.unwrap();
    assert!(db::seals::try_lock(&mut sealer).await.unwrap());
    db::seals::list_digests(&mut sealer, 0, 10, 10)
        .await
        .unwrap();
    db::events::insert(&mut slow, event("slow again"))
        .await
        .unwrap();
    slow.commit().await.unwrap();
    assert!(!tasks::seals::seal(&server.app).await.unwrap());
    sealer.rollback().await.unwrap();
    tasks::seals::seal(&server.app).await.unwrap();
    let report = audit::verify(&mut pool.acquire().await.unwrap(), Copies::default())
        .await
        .unwrap();
    assert_eq!((report.whole, report.events, report.unsealed), (true, 3, 0));
}

#[tokio::test]
async fn only_an_anchor_line_cut_by_a_crash_is_accepted() {
    let server = sealed().await;
    let text = std::fs::read_to_string(&*server.app.anchors).unwrap();
    std::fs::write(&*server.app.anchors, format!("{text}{}", &text[..30])).unwrap();
    assert_eq!(found(&verify(&server).await), []);
    std::fs::write(&*server.app.anchors, format!("{}\n{text}", &text[..30])).unwrap();
    assert_eq!(
        found(&verify(&server).await),
        [(Fault::AnchorUnreadable, 1, None)]
    );
    assert!(
        audit::read_anchors(std::path::Path::new("/nonexistent/anchors")).is_err(),
        "no anchors are not all anchors"
    );
}
