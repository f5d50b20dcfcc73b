//! Measures the network between six machines in service, pair by pair: TCP by iperf3, RDMA by
//! perftest over Soft-RoCE. For a slow path between two machines, the path is blamed and both ends
//! stay good. A machine with a slow link is found because all its pairs are slow.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_api::pairs::{PairRun, RunPairs};
use muster_core::gates::{Limit, Verdict};
use serde_json::Value;

use super::super::DemoOptions;
use super::super::artifacts::toml_as_json;
use super::super::cast::state;
use super::super::declare::put;
use super::cast::Cast;
use super::declare::POOL;

const RUN: Duration = Duration::from_secs(25 * 60);
const ADAPTER: &str = "rxe0";
const RDMA: &str = "ib-write-bw-pair";
const PROMPT: &str = "ib-write-lat-pair";
const MESSAGES: &str = "200";
const PATH: [&str; 2] = ["n2", "n5"];
const END: &str = "n4";
/// A token bucket filter with a rate below the limits of both tools.
const SLOW: &str = "tbf rate 3mbit burst 16k latency 400ms";
/// Shell expression for the name of the machine's only network card.
const CARD: &str = "$(basename $(dirname /sys/class/net/*/device))";

/// Measures three times: with a healthy network, with a slow path, and with a slow machine.
pub(super) async fn measure(options: &DemoOptions, cast: &mut Cast<'_>) -> anyhow::Result<()> {
    let mut suite = toml_as_json(&options.artifacts.suite.with_file_name("pairs.toml"))?;
    fewer_messages(&mut suite)?;
    put(cast.programs.client(), "suites", "pairs", suite).await?;
    cast.watch.say(&format!(
        "every machine gets the Soft-RoCE adapter {ADAPTER}"
    ));
    let adapter = format!("modprobe rdma_rxe && rdma link add {ADAPTER} type rxe netdev {CARD}");
    let command = [adapter.as_str()];
    try_join_all(cast.veterans.iter().map(|veteran| veteran.run(&command))).await?;
    all_is_well(cast).await?;
    a_slow_path(cast).await?;
    a_slow_machine(cast).await
}

/// Lowers the number of messages in the latency gate. The shipped gate sends 20,000 messages, in a
/// tenth of a second on metal but in minutes on emulated machines.
fn fewer_messages(suite: &mut Value) -> anyhow::Result<()> {
    let gates = suite["gates"]
        .as_array_mut()
        .context("the suite has no gates")?;
    let gate = gates
        .iter_mut()
        .find(|gate| gate["id"] == PROMPT)
        .context("the suite has no latency gate")?;
    for ends in ["/argv", "/peer/argv"] {
        let argv = gate
            .pointer_mut(ends)
            .and_then(Value::as_array_mut)
            .context("the gate has no argv")?;
        let count = argv
            .iter_mut()
            .find(|word| **word == "20000")
            .context("the gate sends another number")?;
        *count = MESSAGES.into();
    }
    Ok(())
}

async fn all_is_well(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    cast.watch
        .say("1. six machines measure each other in rounds");
    let run = measured(cast).await?;
    let pairs = run.pairs.as_deref().unwrap_or_default();
    ensure!(
        run.findings.is_empty(),
        "somebody is blamed: {:?}",
        run.findings
    );
    let left: Vec<String> = run
        .ends
        .iter()
        .filter_map(|end| Some(format!("{}: {}", end.node, end.why.as_ref()?)))
        .collect();
    ensure!(
        run.ends.len() == 6 && left.is_empty(),
        "not everybody took part: {left:?}"
    );
    ensure!(
        pairs.len() == 15,
        "{} pairs of six nodes were measured",
        pairs.len()
    );
    for pair in pairs {
        let why = pair.why.as_deref().unwrap_or_default();
        ensure!(
            pair.verdict.as_deref() == Some("pass"),
            "{} and {} did not pass: {why}",
            pair.a,
            pair.b
        );
    }
    for way in pairs.iter().flat_map(|pair| &pair.ways) {
        for gate in [RDMA, PROMPT] {
            let result = way
                .results
                .iter()
                .find(|result| result.gate == gate)
                .context("RDMA was not measured")?;
            ensure!(
                result.verdict == Verdict::Pass,
                "{} to {}: {}",
                way.from,
                way.to,
                result.reason
            );
        }
    }
    for end in &run.ends {
        cast.serves(&end.node).await?;
    }
    Ok(())
}

async fn a_slow_path(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    let [one, other] = PATH;
    cast.watch.say(&format!(
        "2. the path from {one} to {other} is slow, and no other"
    ));
    let address = cast.veteran(other)?.address;
    let slow = format!(
        "D={CARD}; tc qdisc add dev $D root handle 1: prio && tc qdisc add dev $D parent 1:3 handle 30: {SLOW} && \
         tc filter add dev $D parent 1:0 protocol ip u32 match ip dst {address}/32 flowid 1:3"
    );
    cast.veteran(one)?.run(&[&slow]).await?;
    let run = measured(cast).await?;
    let pairs = run.pairs.as_deref().unwrap_or_default();
    let blamed: Vec<_> = pairs
        .iter()
        .filter(|pair| pair.edge.as_deref() == Some("blamed"))
        .collect();
    ensure!(
        blamed.len() == 1
            && PATH.contains(&blamed[0].a.as_str())
            && PATH.contains(&blamed[0].b.as_str()),
        "the path is not blamed: {:?}",
        run.findings
    );
    ensure!(
        run.ends.iter().all(|end| end.verdict == "good"),
        "an end is blamed for the path: {:?}",
        run.ends
    );
    cast.veteran(one)?
        .run(&[&format!("tc qdisc del dev {CARD} root")])
        .await
        .map(drop)
}

async fn a_slow_machine(cast: &mut Cast<'_>) -> anyhow::Result<()> {
    cast.watch
        .say(&format!("3. the link of {END} is slow, to everybody"));
    cast.veteran(END)?
        .run(&[&format!("tc qdisc add dev {CARD} root {SLOW}")])
        .await?;
    let run = measured(cast).await?;
    let verdict = |node: &str| {
        run.ends
            .iter()
            .find(|end| end.node == node)
            .map(|end| end.verdict.as_str())
    };
    ensure!(
        verdict(END) == Some("blamed"),
        "{END} is not found: {:?}",
        run.ends
    );
    let others = run.ends.iter().filter(|end| end.node != END);
    ensure!(
        others.clone().all(|end| end.verdict == "good"),
        "others are blamed too: {:?}",
        run.ends
    );
    let (client, what) = (cast.programs.client(), format!("{END} to leave service"));
    let left = cast.watch.until(client, &what, RUN, async |fleet| {
        Ok(state(fleet, END) != "in_service")
    });
    left.await?;
    cast.veteran(END)?
        .run(&[&format!("tc qdisc del dev {CARD} root")])
        .await
        .map(drop)
}

/// Measures the pool's idle nodes and prints every pair. Returns the run with its pairs after the
/// run has ended.
async fn measured(cast: &mut Cast<'_>) -> anyhow::Result<PairRun> {
    let client = cast.programs.client();
    let body = RunPairs {
        suite: "pairs".into(),
        within_s: Some(RUN.as_secs().try_into().context("seconds")?),
        variables: [("rdma_device".to_owned(), ADAPTER.to_owned())].into(),
        ..RunPairs::default()
    };
    let asked = client.run_pairs(POOL, &body).await?;
    let ended = cast
        .watch
        .until(client, "the pairs to be measured", RUN, async |_| {
            Ok(client.operation(asked.id).await?.done)
        });
    ended.await?;
    let run = client.pair_run(POOL, asked.id).await?;
    for pair in run.pairs.iter().flatten() {
        let measured = |gate: &str| {
            let results = pair
                .ways
                .iter()
                .flat_map(|way| &way.results)
                .filter(move |result| result.gate == gate);
            results
                .flat_map(|result| &result.measured)
                .map(|one| match &one.value {
                    Limit::Number(number) => format!("{number:.3}"),
                    Limit::Text(word) => word.clone(),
                })
                .collect::<Vec<_>>()
                .join(" ")
        };
        let verdict = pair.verdict.as_deref().unwrap_or("not measured");
        let (tcp, rdma, prompt) = (measured("iperf3-pair"), measured(RDMA), measured(PROMPT));
        println!(
            "          round {} {}-{}: {verdict}; TCP {tcp} Gb/s; RDMA {rdma} Gb/s, {prompt} µs; {}",
            pair.round,
            pair.a,
            pair.b,
            pair.why.as_deref().unwrap_or_default()
        );
    }
    for finding in &run.findings {
        println!("          {finding}");
    }
    ensure!(run.state == "done", "the run ended as {}", run.state);
    Ok(run)
}
