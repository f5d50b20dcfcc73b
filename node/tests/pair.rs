//! Tests of pair gates with real tools. The program iperf3 runs between machines made of
//! namespaces, over links with a real rate limit.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod programs; // Programs that an image ships for gates
mod rack; // Machines made of namespaces

use std::io::{BufRead as _, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use muster_core::fabric::{
    EdgeVerdict, EndVerdict, Limits, Next, Pair, Verdicts, both_ways, next, one_way, verdicts,
};
use muster_core::gates::{Judged, Suite, Verdict};
use muster_core::ids::JobId;
use muster_core::wire::PROTOCOL;
use muster_core::wire::node::GatePlan;
use muster_core::wire::pair::{PairAnswer, PairLine, PairPlan};
use rack::{Listener, Rack, shipped, within};

const TOOLS: [&str; 2] = ["iperf3", "muster-node"];

/// Measures a single direction: `to` listens, and `from` measures.
fn measure(rack: &Rack, from: usize, to: usize) -> Verdict {
    let mut listener = rack.serve(to, &Rack::gate("serve", &[]));
    let (_, result) = rack.ask(from, to, listener.port);
    assert!(
        listener.child.wait().unwrap().success(),
        "it ends with the one it listened for"
    );
    let suite = shipped();
    let by = Judged {
        suite: &suite,
        profile: None,
        wanted: &["iperf3-pair".into()],
        now: result.started_at,
    };
    one_way(&by, &[result])
}

#[test]
fn two_machines_measure_each_other_and_leave_nothing_running() {
    within(
        "two_machines_measure_each_other_and_leave_nothing_running",
        2,
        |rack| {
            let mut listener = rack.serve(1, &Rack::gate("serve", &[]));
            let (ended, result) = rack.ask(0, 1, listener.port);
            assert_eq!(
                (ended.status.code(), result.verdict),
                (Some(0), Verdict::Pass),
                "{}",
                result.reason
            );
            assert_eq!(result.measured[0].metric, "network.received");
            let mut last = String::new();
            listener.lines.read_line(&mut last).unwrap();
            assert!(
                matches!(
                    serde_json::from_str(&last),
                    Ok(PairLine::Ended { exit: Some(0), .. })
                ),
                "{last}"
            );
            assert!(listener.child.wait().unwrap().success());

            // Machine 0 sends slowly, and receives at full speed.
            rack.slow_down(0);
            assert_eq!(
                [measure(rack, 0, 1), measure(rack, 1, 0)],
                [Verdict::Fail, Verdict::Pass]
            );
            let mut listener = rack.serve(1, &Rack::gate("serve", &[]));
            let (ended, result) = rack.ask(0, 1, listener.port);
            assert_eq!(ended.status.code(), Some(1));
            assert!(listener.child.wait().unwrap().success());
            assert!(
                result.reason.contains("expected >= 0.1"),
                "{}",
                result.reason
            );
            assert_eq!(rack.left(&TOOLS), Vec::<String>::new());
        },
    );
}

/// Stops a listening end with a signal.
fn terminate(listener: &mut Listener) {
    let pid = listener.child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(sent.success());
    assert!(listener.child.wait().unwrap().success());
}

#[test]
fn the_end_that_listens_goes_with_whoever_started_it() {
    within(
        "the_end_that_listens_goes_with_whoever_started_it",
        2,
        |rack| {
            // The signal stops the listener, as Ctrl-C does.
            let mut listener = rack.serve(1, &Rack::gate("serve", &[]));
            assert_eq!(rack.left(&["iperf3"]).len(), 1);
            terminate(&mut listener);
            assert_eq!(rack.left(&TOOLS), Vec::<String>::new());

            // The closed stdin stands for the lost connection of an agent.
            let mut listener = rack.serve_planned(1, &plan(&[]));
            drop(listener.child.stdin.take());
            assert!(listener.child.wait().unwrap().success());
            assert_eq!(rack.left(&TOOLS), Vec::<String>::new());
        },
    );
}

/// Recognizes a listening tool by a text in the output instead of the port. A tool without the text
/// has a second of time.
fn expect_sign(rack: &Rack, own: &str, short: &str, hasty: &str) {
    let flushed = own.replace("\"--server\"", "\"--server\", \"--forceflush\"");
    let says = |suite: &str, sign: &str| {
        let peer = format!("{flushed}\nsays = \"{sign}\"");
        std::fs::write(rack.file("pairs.toml"), suite.replace(own, &peer)).unwrap();
    };
    says(short, "Server listening on");
    terminate(&mut rack.serve(0, &Rack::gate("serve", &[])));
    says(hasty, "Somebody else");
    let ended = rack
        .node(0, &Rack::gate("serve", &[]))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        ended.status.code() == Some(1) && ended.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[test]
fn a_listener_that_nobody_comes_to_has_its_time_and_is_killed() {
    within(
        "a_listener_that_nobody_comes_to_has_its_time_and_is_killed",
        1,
        |rack| {
            let text = std::fs::read_to_string(rack.file("pairs.toml")).unwrap();
            let short = text.replacen("timeout_s = 40", "timeout_s = 1", 1);
            // Only a tool that never listens has the short limit of a second.
            let hasty = short.replacen("ready_s = 10", "ready_s = 1", 1);
            assert_ne!(short, hasty);
            std::fs::write(rack.file("pairs.toml"), &short).unwrap();
            let started = Instant::now();
            let mut listener = rack.serve(0, &Rack::gate("serve", &[]));
            assert_eq!(listener.child.wait().unwrap().code(), Some(1));
            assert!(
                (2..60).contains(&started.elapsed().as_secs()),
                "{:?}",
                started.elapsed()
            );
            assert_eq!(rack.left(&TOOLS), Vec::<String>::new());

            // The first tool runs and never listens. The second tool ends at once. The third tool
            // is not installed.
            let serves = [
                (
                    &hasty,
                    ["sleep", r#""77.25", "#],
                    "did not listen within 1 s",
                ),
                (&short, ["false", ""], "before anybody came"),
                (&short, ["no-such-tool", ""], "not installed"),
            ];
            let own = r#"argv = ["iperf3", "--server", "--one-off", "--port", "${pair_port}"]"#;
            assert!(short.contains(own));
            for (suite, [program, argument], told) in serves {
                let tool = programs::ship(&rack.file("n0"), program);
                let argv = format!(r#"argv = ["{tool}", {argument}"${{pair_port}}"]"#);
                std::fs::write(rack.file("pairs.toml"), suite.replace(own, &argv)).unwrap();
                let ended = rack
                    .node(0, &Rack::gate("serve", &[]))
                    .stdin(Stdio::null())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                assert!(
                    ended.status.code() == Some(1) && said.contains(told),
                    "{argv}: {said}"
                );
                assert!(ended.stdout.is_empty(), "it never listened");
            }
            assert_eq!(rack.left(&["sleep", "iperf3"]), Vec::<String>::new());

            expect_sign(rack, own, &short, &hasty);
            assert_eq!(rack.left(&["sleep", "iperf3"]), Vec::<String>::new());
        },
    );
}

#[test]
fn of_six_machines_the_slow_link_is_found_then_the_slow_path() {
    within(
        "of_six_machines_the_slow_link_is_found_then_the_slow_path",
        6,
        |rack| {
            let names: Vec<String> = (0..rack.machines()).map(|n| format!("n{n}")).collect();
            rack.slow_down(4);
            let found = hunt(
                rack,
                &Limits {
                    survey: 1,
                    ..Limits::default()
                },
            );
            println!("{:?}", found.sentences(&names));
            assert!(
                matches!(&found.ends[4], EndVerdict::Blamed { with } if with.len() == 2),
                "{found:?}"
            );
            assert!(
                found
                    .ends
                    .iter()
                    .enumerate()
                    .all(|(end, verdict)| end == 4 || *verdict == EndVerdict::Good)
            );
            rack.mend(4);

            rack.slow_path(1, 2);
            let found = hunt(
                rack,
                &Limits {
                    survey: 5,
                    ..Limits::default()
                },
            );
            println!("{:?}", found.sentences(&names));
            assert!(
                found
                    .ends
                    .iter()
                    .all(|verdict| *verdict == EndVerdict::Good),
                "{found:?}"
            );
            assert!(
                found.edges.len() == 1 && found.edges[0].pair == Pair::of(1, 2),
                "{found:?}"
            );
            assert_eq!(found.edges[0].verdict, EdgeVerdict::Blamed);
            assert_eq!(rack.left(&TOOLS), Vec::<String>::new());
        },
    );
}

/// Runs the hunt over the whole rack. The pairs of a round run at the same time, and every pair
/// measures both directions.
fn hunt(rack: &Rack, limits: &Limits) -> Verdicts {
    let mut done = Vec::new();
    while let Next::Measure(pairs) = next(rack.machines(), limits, &done) {
        let round = std::thread::scope(|scope| {
            let begun: Vec<_> = pairs
                .iter()
                .map(|pair| {
                    scope.spawn(move || {
                        both_ways(
                            *pair,
                            [measure(rack, pair.a, pair.b), measure(rack, pair.b, pair.a)],
                        )
                    })
                })
                .collect();
            begun
                .into_iter()
                .map(|one| one.join().unwrap())
                .collect::<Vec<_>>()
        });
        println!("round {}: {round:?}", done.len());
        done.push(round);
    }
    verdicts(rack.machines(), limits, &done)
}

/// Returns the line of an agent on the stdin of an end.
fn plan(variables: &[(&str, &str)]) -> Vec<u8> {
    let suite: Suite = shipped();
    let profile = toml::from_str(include_str!("../../suites/profiles/virtual-node.toml")).unwrap();
    let variables = [("former_gates", "")]
        .iter()
        .chain(variables)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let only = vec!["iperf3-pair".to_owned()];
    let plan = GatePlan {
        suite,
        profile,
        only,
        stack: None,
        variables,
        in_use: false,
        protected: false,
        xid: None,
        firmware: Some(vec![]),
        health: None,
        waived: Vec::new(),
        waived_until: [].into(),
    };
    let mut line = serde_json::to_vec(&PairPlan {
        protocol: PROTOCOL,
        job: JobId::new(),
        plan,
    })
    .unwrap();
    line.push(b'\n');
    line
}

#[test]
fn an_agent_gives_both_ends_their_plan_on_stdin() {
    within("an_agent_gives_both_ends_their_plan_on_stdin", 2, |rack| {
        let mut listener = rack.serve_planned(1, &plan(&[]));
        let port = listener.port.to_string();
        let asked = plan(&[("peer_address", &Rack::address(1)), ("pair_port", &port)]);
        let mut child = rack
            .node(0, &["ask", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&asked).unwrap();
        let mut said = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert!(child.wait().unwrap().success());
        let answer: PairAnswer = serde_json::from_str(&said).unwrap();
        assert_eq!(
            (answer.results.len(), answer.results[0].verdict),
            (1, Verdict::Pass),
            "{said}"
        );
        assert!(listener.child.wait().unwrap().success());
    });
}
