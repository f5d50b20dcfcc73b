//! `muster pool budget`, `muster claim write-off`.

use clap::Args;
use jiff::Timestamp;
use muster_api::disruption::{BudgetAccount, Disruption, WriteOff};

use super::output::age;
use super::session::Session;
use crate::duration::parse_duration;

/// The claim and the end of the write-off.
#[derive(Args, Debug)]
pub(crate) struct WriteOffArgs {
    claim: String,
    /// Duration of the write-off, such as `30d`; at most 365 days
    #[arg(long = "for", value_parser = parse_duration, required_unless_present = "end")]
    lasts: Option<std::time::Duration>,
    /// End the write-off now
    #[arg(long, conflicts_with = "lasts")]
    end: bool,
    /// Reason, recorded in the history: the RMA number, or the delivery date of a part
    #[arg(long)]
    reason: String,
}

/// Shows the disruption budget of a pool.
pub(super) async fn show(session: &Session, pool: &str) -> anyhow::Result<()> {
    let seen = session.client.pool_disruption(pool).await?;
    let now = session.clock.now();
    session.output.print_lines(&seen, || describe(&seen, now))
}

/// Writes a claim's node off, or ends the write-off.
pub(super) async fn write_off(session: &Session, args: WriteOffArgs) -> anyhow::Result<()> {
    let lasts = args.lasts.map(jiff::SignedDuration::try_from).transpose()?;
    let body = WriteOff {
        until: lasts.map(|lasts| session.clock.now() + lasts),
        reason: args.reason,
    };
    let claim = session.client.write_off_claim(&args.claim, &body).await?;
    session.output.print_lines(&claim, || {
        let node = &claim.status.node;
        vec![match &claim.status.written_off {
            Some(written_off) => format!(
                "{node} does not count against disruption budgets until {:.0}",
                written_off.until
            ),
            None => format!("{node} counts against disruption budgets"),
        }]
    })
}

/// The accounts, the nodes out of service, then the waiting requests.
fn describe(seen: &Disruption, now: Timestamp) -> Vec<String> {
    let mut lines = vec![describe_account(
        &format!("pool {}", seen.pool),
        seen.account,
    )];
    lines.extend(seen.domains.iter().map(|domain| {
        describe_account(&format!("{} at {}", domain.id, domain.site), domain.account)
    }));
    for out in &seen.nodes_out {
        let reason = out.reason.as_deref().unwrap_or("no reason recorded");
        let since = age(now, Some(out.since));
        let written_off = out.written_off.as_ref().map(|written_off| {
            format!(
                "; written off by {} until {:.0}: {}",
                written_off.by, written_off.until, written_off.reason
            )
        });
        lines.push(format!(
            "out      {:<24} {} for {since}: {reason}{}",
            out.node,
            out.state,
            written_off.unwrap_or_default()
        ));
    }
    if seen.unlisted > 0 {
        lines.push(format!("out      {} more nodes, not listed", seen.unlisted));
    }
    lines.extend(seen.waiting.iter().map(|wait| {
        let action = wait.action.as_deref().unwrap_or("recovery");
        format!("waiting  {:<24} {action}: {}", wait.node, wait.detail)
    }));
    lines
}

fn describe_account(of: &str, account: BudgetAccount) -> String {
    let BudgetAccount {
        max_unavailable,
        max,
        out,
        counted,
    } = account;
    format!(
        "{of}: {out} of {counted} nodes out, {max} may be out (max_unavailable {max_unavailable})"
    )
}

#[cfg(test)]
mod tests {
    use muster_api::disruption::{DomainAccount, NodeOut, SlotWait, WrittenOff};
    use muster_core::rollout::{Amount, Service};

    use super::*;

    #[test]
    fn accounts_come_before_nodes_and_waits() {
        let now: Timestamp = "2026-11-26T08:00:00Z".parse().unwrap();
        let account = |max| BudgetAccount {
            max_unavailable: Amount::Percent(10),
            max,
            out: 1,
            counted: 14,
        };
        let seen = Disruption {
            pool: "gpu".into(),
            account: account(1),
            domains: vec![DomainAccount {
                site: "lab".into(),
                id: "rack:r1".into(),
                account: account(2),
            }],
            nodes_out: vec![NodeOut {
                node: "n1".into(),
                claim: "c1".into(),
                service: Service::Out,
                state: "quarantined".into(),
                since: "2026-11-26T05:00:00Z".parse().unwrap(),
                reason: Some("gate gpu.count".into()),
                written_off: Some(WrittenOff {
                    until: "2026-12-24T00:00:00Z".parse().unwrap(),
                    reason: "RMA 7".into(),
                    by: "ada".into(),
                }),
            }],
            unlisted: 2,
            waiting: vec![SlotWait {
                node: "n2".into(),
                action: Some("drain".into()),
                operation: None,
                since: None,
                detail: "a slot".into(),
            }],
        };
        assert_eq!(
            describe(&seen, now),
            [
                "pool gpu: 1 of 14 nodes out, 1 may be out (max_unavailable 10%)",
                "rack:r1 at lab: 1 of 14 nodes out, 2 may be out (max_unavailable 10%)",
                "out      n1                       quarantined for 3h: gate gpu.count; written off by ada until \
                 2026-12-24T00:00:00Z: RMA 7",
                "out      2 more nodes, not listed",
                "waiting  n2                       drain: a slot",
            ]
        );
    }
}
