//! Pairs of a pool's nodes: a run is asked for and written down here, with who takes part; the engine does the rest. Runs as people read them.

use std::collections::BTreeMap;

use axum::extract::State;
use jiff::SignedDuration;
use muster_api::object::Page;
use muster_api::operations::Operation;
use muster_api::pairs::{
    DEFAULT_MOST, DEFAULT_WITHIN_S, MOST, MeasuredPair, MeasuredWay, PairEnd, PairRun, RunPairs,
};
use muster_api::problem::Problem;
use muster_core::fabric::{EdgeVerdict, EndVerdict, Verdicts};
use muster_core::gates::{Gate, Suite};
use muster_core::ids::{NodeId, ObjectId, OperationId};
use muster_core::lifecycle::state::State as NodeState;
use muster_core::lifecycle::steps::Step;
use muster_core::wire::pair::PairWay;
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::answer::Answer;
use super::document;
use super::extract::{Json, Path};
use super::idempotency::IdempotencyKey;
use super::writing::{self, Effect};
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::db::operations::NewOperation;
use crate::db::pairs::ends::{Candidate, EndRow};
use crate::db::pairs::runs::{NewRun, RunRow};
use crate::db::pairs::trials::MeasuredRow;
use crate::error::Error;

/// Runs that are listed.
const NEWEST: i64 = 20;
/// Nodes of a pool that are looked at for one run.
const LOOKED_AT: i64 = 4096;
/// Nodes that are told as left out: who asks wants to know of a few, not of a thousand.
const TOLD: usize = 200;
const WITHIN_S: std::ops::RangeInclusive<u32> = 300..=43_200;
/// Of the words that a gate may name, those that no order fills in.
const WORDS: [&str; 1] = ["rdma_device"];
/// Bytes of such a word's value.
const LONGEST_WORD: usize = 64;
/// Beside the times of its gates, each way: two log-ins, and starting the tools.
const MARGIN_S: u64 = 300;

/// The routes of pairs.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(run_pairs))
        .routes(routes!(list_pair_runs))
        .routes(routes!(get_pair_run))
}

/// Measures idle nodes of a pool against each other, by turns: everybody with a few others, then each end that failed with known-good partners, until what
/// failed can be blamed on a node or on the path between two. The nodes stay in service; their scheduler starts no job on them meanwhile. A node
/// with jobs is left out, with the reason. An end that is blamed is recovered or quarantined as one that fails its sweep; a path is only shown.
#[utoipa::path(post, path = "/v1/pools/{pool}/actions/run-pairs", tag = "pools", params(("pool", description = "Name or id"),
    ("Idempotency-Key" = Option<String>, Header)), request_body = RunPairs, responses(
    (status = 202, description = "Begun; Location leads to the operation, whose id is the run's", body = Operation),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
    (status = 409, description = "Its pairs are being measured already, or fewer than two of its nodes are idle", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The suite has no pair gate, or takes too long", body = Problem, content_type = "application/problem+json"),
))]
async fn run_pairs(
    State(app): State<App>,
    actor: Actor,
    Path(pool): Path<String>,
    idempotency: IdempotencyKey,
    Json(body): Json<RunPairs>,
) -> Result<Answer, Error> {
    check(&body)?;
    writing::once(&app, &actor, idempotency, &body, async |conn| {
        let pool = find(conn, &pool).await?;
        begin(conn, &app, &actor, &pool, &body)
            .await
            .map(Effect::Begun)
    })
    .await
}

/// Runs of a pool's pairs, newest first; the first may be under way.
#[utoipa::path(get, path = "/v1/pools/{pool}/pair-runs", tag = "pools", params(("pool", description = "Name or id")), responses(
    (status = 200, description = "The newest twenty, without what each pair measured", body = Page<PairRun>),
    (status = 404, description = "No such pool", body = Problem, content_type = "application/problem+json"),
))]
async fn list_pair_runs(
    State(app): State<App>,
    _: Actor,
    Path(pool): Path<String>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find(&mut conn, &pool).await?;
    let mut items = Vec::new();
    for row in db::pairs::runs::list(&mut conn, pool.id, NEWEST).await? {
        items.push(view(&mut conn, &pool.name, row).await?);
    }
    Answer::ok(&Page {
        items,
        next_page_token: None,
    })
}

/// One run, with what each pair measured and its evidence.
#[utoipa::path(get, path = "/v1/pools/{pool}/pair-runs/{run}", tag = "pools", params(("pool", description = "Name or id"),
    ("run", description = "Id")), responses(
    (status = 200, description = "The run", body = PairRun),
    (status = 404, description = "No such pool or run", body = Problem, content_type = "application/problem+json"),
))]
async fn get_pair_run(
    State(app): State<App>,
    _: Actor,
    Path((pool, key)): Path<(String, String)>,
) -> Result<Answer, Error> {
    let mut conn = app.pool.acquire().await?;
    let pool = find(&mut conn, &pool).await?;
    let missing = || Error::NotFound(format!("run {key:?} of the pairs of {}", pool.name));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    let row = db::pairs::runs::find(&mut conn, pool.id, id)
        .await?
        .ok_or_else(missing)?;
    let found = row.verdicts.as_ref().map(|json| json.0.clone());
    let run = view(&mut conn, &pool.name, row).await?;
    let pairs = measured(&mut conn, &run, found.as_ref()).await?;
    Answer::ok(&PairRun {
        pairs: Some(pairs),
        ..run
    })
}

/// Begins a run as the route does, for somebody whose page shows it.
pub(crate) async fn begin_run(
    app: &App,
    actor: &Actor,
    pool: &str,
    body: &RunPairs,
) -> Result<OperationId, Error> {
    check(body)?;
    writing::write(app, actor, async |conn| {
        let pool = find(conn, pool).await?;
        begin(conn, app, actor, &pool, body).await
    })
    .await
}

/// Who would take part in a run, what of the suite it would measure, and who would not and why; nothing is begun.
pub(crate) async fn foresee(
    app: &App,
    actor: &Actor,
    pool: &str,
    body: &RunPairs,
) -> Result<PairRun, Error> {
    check(body)?;
    writing::tell(app, async |conn| {
        let pool = find(conn, pool).await?;
        let id = begin(conn, app, actor, &pool, body).await?;
        let row = db::pairs::runs::find(conn, pool.id, id.0).await?;
        view(
            conn,
            &pool.name,
            row.ok_or_else(|| Error::NotFound(format!("run {id}")))?,
        )
        .await
    })
    .await
}

async fn find(conn: &mut PgConnection, key: &str) -> Result<ObjectRow, Error> {
    db::objects::find(conn, "pool", key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("pool {key:?}")))
}

fn check(body: &RunPairs) -> Result<(), Error> {
    let wrong =
        |pointer: &str, detail: String| Err(Error::unprocessable(pointer, "out_of_range", detail));
    if body.most.is_some_and(|most| !(2..=MOST).contains(&most)) {
        return wrong("/most", format!("2 to {MOST} nodes."));
    }
    if body.nodes.len() > MOST as usize {
        return wrong("/nodes", format!("At most {MOST} nodes."));
    }
    if body
        .within_s
        .is_some_and(|within| !WITHIN_S.contains(&within))
    {
        return wrong(
            "/within_s",
            format!("{} to {} seconds.", WITHIN_S.start(), WITHIN_S.end()),
        );
    }
    for (word, value) in &body.variables {
        let pointer = format!("/variables/{word}");
        if !WORDS.contains(&word.as_str()) {
            return wrong(&pointer, format!("Only {} can be given.", WORDS.join(", ")));
        }
        // An argument of a tool: none that it would take for an option.
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
        let begins = value
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphanumeric());
        if !(begins && value.len() <= LONGEST_WORD && value.chars().all(plain)) {
            return wrong(
                &pointer,
                "Letters, digits, and _ . : - behind the first.".to_owned(),
            );
        }
    }
    Ok(())
}

/// The suite's pair gates, which fit into the time of one step both ways.
async fn suite_of(conn: &mut PgConnection, name: &str) -> Result<Suite, Error> {
    let wrong = |code, detail: String| Error::unprocessable("/suite", code, detail);
    let row = db::objects::find_for_reference(conn, "suite", name).await?;
    let row =
        row.ok_or_else(|| wrong("not_found", format!("There is no suite called {name:?}.")))?;
    let mut suite: Suite = document::stored(&row)?;
    suite.gates.retain(|gate| gate.peer.is_some());
    if suite.gates.is_empty() {
        return Err(wrong(
            "no_pair_gate",
            format!("{name} has no gate with a peer: nothing in it is measured between two nodes."),
        ));
    }
    let runs = |gate: &Gate| u64::from(gate.retries) + 1;
    let longest = |gate: &Gate| {
        (gate.timeout_s + gate.peer.as_ref().map_or(0, |peer| peer.ready_s)) * runs(gate)
    };
    let once: u64 = suite.gates.iter().map(longest).sum();
    if once * 2 + MARGIN_S > Step::Pair.timeout_s() {
        let detail = format!(
            "One pair could take {} s, and has {} s.",
            once * 2 + MARGIN_S,
            Step::Pair.timeout_s()
        );
        return Err(wrong("too_long", detail));
    }
    Ok(suite)
}

async fn begin(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pool: &ObjectRow,
    body: &RunPairs,
) -> Result<OperationId, Error> {
    let suite = suite_of(conn, &body.suite).await?;
    let named = Some(body.nodes.as_slice()).filter(|names| !names.is_empty());
    let candidates = db::pairs::ends::list_candidates(conn, pool.id, named, LOOKED_AT).await?;
    if let Some(stranger) = body
        .nodes
        .iter()
        .find(|name| candidates.iter().all(|one| one.name != **name))
    {
        let detail = format!("{} holds no node called {stranger:?}.", pool.name);
        return Err(Error::unprocessable("/nodes", "not_found", detail));
    }
    let chosen = Chosen::of(&candidates, body.most.unwrap_or(DEFAULT_MOST) as usize);
    if chosen.taken.len() < 2 {
        let first: Vec<String> = chosen
            .left
            .iter()
            .take(5)
            .map(|(_, name, why)| format!("{name}: {why}"))
            .collect();
        let detail = format!(
            "Fewer than two nodes of {} are idle. {}",
            pool.name,
            first.join("; ")
        );
        return Err(Error::conflict("too_few", detail.trim().to_owned()));
    }
    let (now, id) = (app.clock.now(), OperationId::new());
    let told = format!(
        "{} against each other by {} {}",
        count(chosen.taken.len()),
        suite.name,
        suite.version
    );
    let operation = NewOperation {
        id,
        kind: "run-pairs",
        node: None,
        claim: None,
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
        message: told.clone(),
        now,
    };
    db::operations::insert(conn, &operation).await?;
    let within = SignedDuration::from_secs(i64::from(body.within_s.unwrap_or(DEFAULT_WITHIN_S)));
    let run = NewRun {
        id,
        pool: pool.id,
        actor: &actor.name,
        suite: &suite,
        variables: &body.variables,
        beyond: chosen.beyond,
        begun_at: now,
        deadline_at: now + within,
    };
    db::pairs::runs::insert(conn, &run).await?;
    db::pairs::ends::insert(conn, id, &chosen.taken, &chosen.left, now).await?;
    db::pairs::ends::wake(conn, id, now).await?;
    let summary = format!("{} asked for pairs of {}: {told}", actor.name, pool.name);
    let event = actor
        .event(now, "pairs.begun", None, summary)
        .about(pool.id)
        .under(Some(id));
    let names: Vec<&str> = chosen.taken.iter().map(|(_, name)| *name).collect();
    db::events::insert(
        conn,
        event.with(json!({ "pool": pool.name, "suite": suite.name, "nodes": names })),
    )
    .await?;
    Ok(id)
}

fn count(nodes: usize) -> String {
    if nodes == 1 {
        "1 node".to_owned()
    } else {
        format!("{nodes} nodes")
    }
}

/// Who takes part, and who does not and why.
#[derive(Debug, Default)]
struct Chosen<'a> {
    taken: Vec<(NodeId, &'a str)>,
    left: Vec<(NodeId, &'a str, String)>,
    /// Idle nodes that are more than the run takes.
    beyond: usize,
}

impl<'a> Chosen<'a> {
    /// Of one site: an agent reaches no other. The one with the most idle nodes, the first of them where two have as many.
    fn of(candidates: &'a [Candidate], most: usize) -> Self {
        let mut sites: BTreeMap<ObjectId, usize> = BTreeMap::new();
        for one in candidates.iter().filter(|one| refusal(one).is_none()) {
            *sites.entry(one.site).or_default() += 1;
        }
        let largest = sites.values().max().copied().unwrap_or(0);
        let site = candidates
            .iter()
            .find(|one| sites.get(&one.site) == Some(&largest));
        let mut chosen = Self::default();
        for one in candidates {
            let elsewhere = site.filter(|site| site.site != one.site);
            let why = refusal(one).or_else(|| {
                elsewhere.map(|site| {
                    format!(
                        "it is at site {}, and this run measures {}",
                        one.site_name, site.site_name
                    )
                })
            });
            match why {
                Some(why) if chosen.left.len() < TOLD => chosen.left.push((one.id, &one.name, why)),
                Some(_) => {}
                None if chosen.taken.len() < most => chosen.taken.push((one.id, &one.name)),
                None => chosen.beyond += 1,
            }
        }
        chosen
    }
}

/// Why a node is not idle.
fn refusal(one: &Candidate) -> Option<String> {
    match one {
        _ if one.releasing => Some("it is being released".to_owned()),
        _ if one.state != NodeState::InService.as_str() => Some(format!("it is {}", one.state)),
        _ if one.protected => Some("it is protected: nothing is drained of it".to_owned()),
        _ if one.held => Some("another run has not given it back yet".to_owned()),
        // Whoever drained it decides when that is over.
        Candidate { out: Some(out), .. } => Some(format!("its scheduler shows it {out}")),
        Candidate {
            wish: Some(wish), ..
        } => Some(format!("it was asked to {wish}")),
        _ if one.busy => Some("a job of its own is under way".to_owned()),
        _ if !one.installed => Some("no installed system of it is known".to_owned()),
        _ => None,
    }
}

/// A run without its pairs.
pub(crate) async fn view(
    conn: &mut PgConnection,
    pool: &str,
    row: RunRow,
) -> Result<PairRun, Error> {
    let rows = db::pairs::ends::list(conn, OperationId(row.id)).await?;
    let names: Vec<String> = rows
        .iter()
        .filter(|end| end.position.is_some())
        .map(|end| end.name.clone())
        .collect();
    let found = row.verdicts.as_ref().map(|json| &json.0);
    Ok(PairRun {
        id: row.id,
        pool: pool.to_owned(),
        suite: row.suite,
        actor: row.actor,
        state: row.ended.unwrap_or_else(|| "running".to_owned()),
        begun_at: row.begun_at,
        deadline: row.deadline_at,
        ended_at: row.ended_at.map(|at| at.to_jiff()),
        beyond: u32::try_from(row.beyond).unwrap_or(0),
        findings: found
            .map(|found| found.sentences(&names))
            .unwrap_or_default(),
        ends: rows.into_iter().map(|end| shown(end, found)).collect(),
        pairs: None,
    })
}

fn shown(end: EndRow, found: Option<&Verdicts>) -> PairEnd {
    let at = end.position.and_then(|at| usize::try_from(at).ok());
    let verdict = match at.and_then(|at| found?.ends.get(at)) {
        Some(EndVerdict::Good) => "good",
        Some(EndVerdict::Blamed { .. }) => "blamed",
        None if end.left_out.is_some() => "left_out",
        Some(EndVerdict::Unknown { .. }) | None => "unknown",
    };
    PairEnd {
        verdict: verdict.to_owned(),
        why: end.blamed.or(end.left_out),
        node: end.name,
    }
}

/// What each pair of a run measured.
pub(crate) async fn measured(
    conn: &mut PgConnection,
    run: &PairRun,
    found: Option<&Verdicts>,
) -> Result<Vec<MeasuredPair>, Error> {
    let rows = db::pairs::trials::list_measured(conn, run.id).await?;
    let ends: Vec<&str> = run.ends.iter().map(|end| end.node.as_str()).collect();
    Ok(rows
        .into_iter()
        .map(|row| pair(row, found, &ends))
        .collect())
}

/// The ends that are measured come first, in their order: as `db::pairs::ends::list` has them.
fn pair(row: MeasuredRow, found: Option<&Verdicts>, ends: &[&str]) -> MeasuredPair {
    let is = |at: usize, name: &str| ends.get(at) == Some(&name);
    let edge = found
        .into_iter()
        .flat_map(|found| &found.edges)
        .find(|edge| is(edge.pair.a, &row.a) && is(edge.pair.b, &row.b));
    let failed = row.verdict.as_deref() == Some("fail");
    let edge = edge.filter(|_| failed).map(|edge| match edge.verdict {
        EdgeVerdict::Blamed => "blamed",
        EdgeVerdict::Explained { .. } => "explained",
        EdgeVerdict::Unknown => "unknown",
    });
    let [there, back] = [(&row.a, &row.b), (&row.b, &row.a)];
    let way = |((from, to), way): ((&String, &String), PairWay)| MeasuredWay {
        from: from.clone(),
        to: to.clone(),
        results: way.results,
    };
    let ways = row.ways.map(|json| json.0).unwrap_or_default();
    MeasuredPair {
        round: u32::try_from(row.round).unwrap_or(0) + 1,
        ways: [there, back].into_iter().zip(ways).map(way).collect(),
        verdict: row.verdict,
        edge: edge.map(str::to_owned),
        why: row.why,
        finished_at: row.finished_at.map(|at| at.to_jiff()),
        a: row.a.clone(),
        b: row.b.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: u128, site: u128) -> Candidate {
        Candidate {
            id: NodeId(Uuid::from_u128(number)),
            name: format!("n{number}"),
            site: ObjectId(Uuid::from_u128(site)),
            site_name: format!("s{site}"),
            state: "in_service".into(),
            wish: None,
            protected: false,
            releasing: false,
            installed: true,
            busy: false,
            held: false,
            out: None,
        }
    }

    #[test]
    fn who_is_not_idle_is_left_out_and_says_why() {
        type Break = (&'static str, fn(&mut Candidate));
        let breaks: [Break; 8] = [
            ("released", |one| one.releasing = true),
            ("it is draining", |one| one.state = "draining".into()),
            ("protected", |one| one.protected = true),
            ("given it back", |one| one.held = true),
            ("shows it drained: fan 3", |one| {
                one.out = Some("drained: fan 3".into())
            }),
            ("asked to sweep", |one| one.wish = Some("sweep".into())),
            ("under way", |one| one.busy = true),
            ("no installed system", |one| one.installed = false),
        ];
        for (told, break_it) in breaks {
            let mut all = vec![candidate(1, 1), candidate(2, 1), candidate(3, 1)];
            break_it(&mut all[1]);
            let chosen = Chosen::of(&all, 64);
            assert_eq!(
                chosen
                    .taken
                    .iter()
                    .map(|(_, name)| *name)
                    .collect::<Vec<_>>(),
                ["n1", "n3"],
                "{told}"
            );
            assert!(
                chosen.left.len() == 1 && chosen.left[0].2.contains(told),
                "{:?}",
                chosen.left
            );
        }
    }

    #[test]
    fn a_run_is_of_one_site_and_of_so_many_nodes() {
        let mut all: Vec<Candidate> = (1..=2).map(|number| candidate(number, 1)).collect();
        all.extend((3..=7).map(|number| candidate(number, 2)));
        let chosen = Chosen::of(&all, 4);
        assert_eq!(
            chosen
                .taken
                .iter()
                .map(|(_, name)| *name)
                .collect::<Vec<_>>(),
            ["n3", "n4", "n5", "n6"]
        );
        assert_eq!((chosen.beyond, chosen.left.len()), (1, 2));
        assert_eq!(
            chosen.left[0].2,
            "it is at site s1, and this run measures s2"
        );
        // Those that are not idle make no site the larger one.
        for one in &mut all[2..6] {
            one.busy = true;
        }
        assert_eq!(Chosen::of(&all, 4).taken.len(), 2);
    }

    #[test]
    fn what_is_given_for_a_word_is_no_option_and_no_other_word() {
        let given = |word: &str, value: &str| RunPairs {
            suite: "pairs".into(),
            variables: [(word.to_owned(), value.to_owned())].into(),
            ..RunPairs::default()
        };
        assert!(check(&given("rdma_device", "mlx5_0")).is_ok());
        for (word, value) in [
            ("rdma_device", "-d"),
            ("rdma_device", ""),
            ("rdma_device", "a b"),
            ("peer_address", "10.0.0.1"),
        ] {
            assert!(check(&given(word, value)).is_err(), "{word}={value}");
        }
        assert!(
            check(&RunPairs {
                most: Some(1),
                ..given("rdma_device", "mlx5_0")
            })
            .is_err()
        );
        assert!(
            check(&RunPairs {
                within_s: Some(299),
                ..given("rdma_device", "mlx5_0")
            })
            .is_err()
        );
    }
}
