//! The disruption budget of a pool as returned to readers: the accounts, the nodes out of service, and
//! the requests waiting for a slot.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_api::disruption::{BudgetAccount, Disruption, DomainAccount, NodeOut, SlotWait};
use muster_api::pools::PoolSpec;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::rollout::{Account, Amount, Ledger, Member, build_budget};
use sqlx::PgConnection;

use crate::access::Place;
use crate::auth::Actor;
use crate::db::disruption::{MemberRow, WaitRow};
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::intents::claims::view;
use crate::{db, document};

/// Most nodes, and most waits, of an answer.
const LISTED: usize = 1000;

/// The nodes of a pool at one site, with the ledger for these nodes.
struct SiteLedger {
    name: String,
    ledger: Ledger,
    domains: Vec<DomainAccount>,
}

/// Counts the nodes of a pool and of the pool's failure domains now. Nodes outside the actor's read
/// scope are counted, and are not named.
///
/// # Errors
/// When the database fails.
pub(crate) async fn describe(
    conn: &mut PgConnection,
    actor: &Actor,
    pool: &ObjectRow,
    now: Timestamp,
) -> Result<Disruption, Error> {
    let spec: PoolSpec = document::stored(pool)?;
    let none = BTreeSet::new();
    let rows = db::disruption::list_members(conn, pool.id, None, &[], &none).await?;
    let sites: BTreeMap<ObjectId, &str> = rows
        .iter()
        .map(|row| (row.site, row.site_name.as_str()))
        .collect();
    let mut ledgers = Vec::new();
    for (site, name) in sites {
        let ledger = open(conn, pool.id, site, name, &rows, now).await?;
        ledgers.extend(ledger);
    }
    ledgers.sort_by(|a, b| a.name.cmp(&b.name));
    // Every ledger counts every node of the pool.
    let first = ledgers.first();
    let counted = first.map(|site| site.ledger.pool()).unwrap_or(Account {
        max: spec.max_unavailable.of(0),
        ..Account::default()
    });
    let is_out = |row: &&MemberRow| first.is_some_and(|site| site.ledger.is_out(row.node));
    let out: Vec<&MemberRow> = rows.iter().filter(is_out).collect();
    let total = out.len();
    let nodes_out: Vec<NodeOut> = out
        .into_iter()
        .filter(|row| is_seen(actor, row))
        .take(LISTED)
        .map(render_out)
        .collect();
    let seen: BTreeSet<NodeId> = rows
        .iter()
        .filter(|row| is_seen(actor, row))
        .map(|row| row.node)
        .collect();
    let waiting = db::disruption::list_waiting(conn, pool.id, LISTED as i64).await?;
    Ok(Disruption {
        pool: pool.name.clone(),
        account: render_account(spec.max_unavailable, counted),
        domains: ledgers.into_iter().flat_map(|site| site.domains).collect(),
        unlisted: u32::try_from(total - nodes_out.len()).unwrap_or(u32::MAX),
        nodes_out,
        waiting: waiting
            .into_iter()
            .filter(|row| seen.contains(&row.node))
            .map(render_wait)
            .collect(),
    })
}

/// Opens the ledger of a site without locks.
async fn open(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: ObjectId,
    name: &str,
    own: &[MemberRow],
    now: Timestamp,
) -> Result<Option<SiteLedger>, Error> {
    let Some(budgets) = db::disruption::find_budgets(conn, pool, site).await? else {
        return Ok(None);
    };
    let axes = &budgets.axes;
    let own = own.iter().filter(|row| row.site == site);
    let domains: BTreeSet<String> = own.flat_map(|row| row.member(site, axes).domains).collect();
    let rows = db::disruption::list_members(conn, pool, Some(site), axes, &domains).await?;
    let members: Vec<Member> = rows.iter().map(|row| row.member(site, axes)).collect();
    let budget = build_budget(budgets.max_unavailable, axes, &members);
    let ledger = Ledger::open(&budget, &members, now);
    let listed = budget
        .domains
        .iter()
        .filter(|domain| domains.contains(&domain.id));
    let domains = listed.filter_map(|domain| {
        Some(DomainAccount {
            site: name.to_owned(),
            id: domain.id.clone(),
            account: render_account(domain.max_unavailable, ledger.domain(&domain.id)?),
        })
    });
    Ok(Some(SiteLedger {
        name: name.to_owned(),
        domains: domains.collect(),
        ledger,
    }))
}

fn render_account(max_unavailable: Amount, account: Account) -> BudgetAccount {
    let Account { counted, out, max } = account;
    BudgetAccount {
        max_unavailable,
        max,
        out,
        counted,
    }
}

fn is_seen(actor: &Actor, row: &MemberRow) -> bool {
    let place = Place {
        site: Some(row.site_name.clone()),
        rack: row.rack.clone(),
        pool: Some(row.pool_name.clone()),
        labels: row.labels.0.clone(),
    };
    actor.holding.there("fleet.read", &place)
}

fn render_out(row: &MemberRow) -> NodeOut {
    NodeOut {
        node: row.name.clone(),
        claim: row.claim.clone(),
        service: row.service(),
        state: row.state.to_string(),
        since: row.entered_at,
        reason: row.out.clone().or_else(|| row.reason.clone()),
        written_off: view::written_off(
            row.written_off_until.map(|at| at.to_jiff()),
            row.written_off_reason.clone(),
            row.written_off_by.clone(),
        ),
    }
}

fn render_wait(row: WaitRow) -> SlotWait {
    SlotWait {
        node: row.name,
        action: row.action.map(|action| action.to_string()),
        operation: row.operation.map(|id| id.0),
        since: row.since.map(|at| at.to_jiff()),
        detail: row.detail,
    }
}
