//! Claims from creation to release on simulated machines, with the output on a terminal and in a
//! pipe.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::machines::Fleet;
use crate::muster::{MUSTER, muster, run};

const ESCAPE: char = '\u{1b}';
/// The bound of a wait. No healthy run comes near the bound.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn claims_are_made_in_numbers_waited_for_and_given_up() {
    let fleet = Fleet::start(4);
    let made = fleet
        .muster("claim create --pool gpu --count 3 --wait")
        .expect(0);
    assert_eq!(
        made.out.lines().count(),
        4,
        "a heading and three claims: {}",
        made.out
    );
    // A pipe gets a line for each change and for each end. No line is drawn over.
    assert!(
        !made.err.contains(ESCAPE) && !made.err.contains('\r'),
        "{:?}",
        made.err
    );
    let ended: Vec<&str> = made
        .err
        .lines()
        .filter(|line| line.contains(": succeeded"))
        .collect();
    assert_eq!(ended.len(), 3, "{}", made.err);
    assert!(
        made.err
            .lines()
            .any(|line| line.contains(" claim running: ")),
        "{}",
        made.err
    );
    for line in made.err.lines() {
        assert_eq!(
            made.err.lines().filter(|other| *other == line).count(),
            1,
            "said twice: {line}"
        );
    }
    assert_eq!(
        fleet
            .muster("node list --filter state=in_service -o name")
            .out
            .lines()
            .count(),
        3
    );

    // Two nodes are requested and one is left. The output names the bound claim and the unbound
    // claim.
    let half = fleet
        .muster("claim create --pool gpu --count 2 --wait")
        .expect(4);
    assert_eq!(
        (half.out.lines().count(), half.err.is_empty()),
        (2, false),
        "{}{}",
        half.out,
        half.err
    );
    fleet.until("node list --filter state=in_service", 4);

    // The disks are kept. The output contains the command that undoes the release.
    let claim = fleet
        .muster("claim list -o name")
        .expect(0)
        .out
        .lines()
        .next()
        .unwrap()
        .to_owned();
    let node = fleet.value(&format!("claim get {claim}"), "/status/node");
    fleet
        .muster(&format!("claim release {claim} --plan"))
        .expect(0)
        .says("effect: wipe")
        .says(&node);
    let released = fleet.muster(&format!("claim release {claim}")).expect(0);
    let undo = released.out.lines().find_map(|line| {
        line.split_once("muster ")
            .map(|(_, typed)| typed.to_owned())
    });
    let undo = undo.unwrap_or_else(|| panic!("how is it undone? {}", released.out));
    assert_eq!(undo, format!("claim undo {claim}"));
    fleet
        .muster(&format!("{undo} --wait"))
        .expect(0)
        .says(&format!("{node}: succeeded"));
    assert_eq!(
        fleet.value(&format!("node get {node}"), "/status/state"),
        "in_service"
    );
    // The second undo has the same result.
    fleet
        .muster(&undo)
        .expect(0)
        .says(&format!("{claim} is kept"));

    // With --erase-now the node is available at the end of the wait.
    fleet
        .muster(&format!("claim release {claim} --erase-now --wait"))
        .expect(0)
        .says("release ");
    assert_eq!(
        fleet.value(&format!("node get {node}"), "/status/state"),
        "available"
    );
    fleet.muster(&format!("claim get {claim}")).expect(3);
    fleet.muster(&undo).expect(3);
    fleet.muster(&format!("claim release {claim}")).expect(3);

    // A replacement changes the node of a claim. The claim keeps the name.
    let kept = fleet
        .muster("claim list -o name")
        .expect(0)
        .out
        .lines()
        .next()
        .unwrap()
        .to_owned();
    let former = fleet.value(&format!("claim get {kept}"), "/status/node");
    fleet
        .muster(&format!("claim replace {kept} --plan"))
        .expect(0)
        .says(&node)
        .says(&former);
    let replaced = fleet
        .muster(&format!("claim replace {kept} --reason noise --wait"))
        .expect(0);
    replaced
        .says(&format!("{node} comes for {kept}"))
        .says(": succeeded");
    assert_eq!(
        fleet.value(&format!("claim get {kept}"), "/status/node"),
        node
    );

    // The JSON output contains the final state.
    fleet.until("node list --filter state=available", 0);
    let read = fleet
        .muster(&format!("claim get {kept} --json"))
        .expect(0)
        .json();
    assert_eq!(
        (&read["status"]["ready"], &read["status"]["state"]),
        (&true.into(), &"bound".into())
    );
}

#[test]
fn a_release_beyond_the_limit_goes_from_the_refusal_to_the_second_person() {
    let fleet = Fleet::start(2);
    fleet
        .muster("pool set gpu --spec releases_per_hour=1")
        .expect(0);
    let made = fleet
        .muster("claim create --pool gpu --count 2 --wait --json")
        .expect(0)
        .json();
    assert!(
        made.as_array()
            .unwrap()
            .iter()
            .all(|claim| claim["status"]["ready"] == true),
        "{made}"
    );
    let names: Vec<&str> = made
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["name"].as_str().unwrap())
        .collect();
    fleet
        .muster(&format!("claim release {}", names[0]))
        .expect(0);
    let refused = fleet
        .muster(&format!("claim release {}", names[1]))
        .expect(4);
    // The refusal contains the command for the second person.
    let typed = refused
        .err
        .split('`')
        .nth(1)
        .unwrap_or_else(|| panic!("what is typed? {}", refused.err));
    let typed = typed.strip_prefix("muster ").unwrap().to_owned();
    assert!(typed.starts_with("approval approve "), "{typed}");
    fleet.muster("approval list").expect(0).says(names[1]);
    fleet.muster(&typed).expect(7).says("another person");
    fleet
        .muster_as("bob", &format!("{typed} --plan"))
        .expect(0)
        .says("effect: wipe")
        .says(names[1].split('-').next().unwrap());
    assert_eq!(
        fleet.value(&format!("claim get {}", names[1]), "/status/state"),
        "bound"
    );
    fleet.muster_as("bob", &typed).expect(0).says("is released");
    assert_eq!(
        fleet.value(&format!("claim get {}", names[1]), "/status/state"),
        "releasing"
    );
    fleet.muster("approval list").expect(0).says("no approvals");
    fleet.muster_as("bob", &typed).expect(4);

    // A denied request changes nothing.
    fleet
        .muster(&format!("claim undo {} --wait", names[1]))
        .expect(0);
    let refused = fleet
        .muster(&format!("claim release {}", names[1]))
        .expect(4);
    let id = refused
        .err
        .split('`')
        .nth(1)
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .to_owned();
    fleet
        .muster_as("bob", &format!("approval deny {id}"))
        .expect(0)
        .says("is kept");
    assert_eq!(
        fleet.value(&format!("claim get {}", names[1]), "/status/state"),
        "bound"
    );
}

/// A running program and the lines of its output.
struct Following {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Following {
    fn start(fleet: &Fleet, line: &str) -> Self {
        Self::start_at(&fleet.server.url, fleet, line)
    }

    /// Starts `event follow`. Returns once the program waits for new events.
    fn follow(fleet: &Fleet, line: &str) -> Self {
        let (url, waits) = forward(&fleet.server.url);
        let following = Self::start_at(&url, fleet, line);
        waits.recv_timeout(LIMIT).unwrap();
        following
    }

    fn start_at(url: &str, fleet: &Fleet, line: &str) -> Self {
        let mut command = muster(
            fleet.server.dir.path(),
            &line.split(' ').collect::<Vec<_>>(),
        );
        command
            .env("MUSTER_SERVER", url)
            .env("MUSTER_TOKEN", fleet.server.token());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (told, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines()
                .map_while(Result::ok)
                .all(|line| told.send(line).is_ok())
        });
        Self { child, lines }
    }

    /// Reads lines up to a line with these words.
    fn until(&self, words: &str) -> Vec<String> {
        let mut read = Vec::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => read.push(line),
                Err(why) => panic!("{why}: no {words:?} in {read:?}"),
            }
            if read.last().is_some_and(|line| line.contains(words)) {
                return read;
            }
        }
    }

    /// Waits for the end. Returns the exit code and the errors.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (code, said)
    }

    fn interrupt(self) -> (Option<i32>, String) {
        assert!(
            Command::new("kill")
                .args(["-INT", &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        self.end()
    }
}

/// Forwards connections to the server. Returns the address, and a message for each long poll.
fn forward(server: &str) -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = server.trim_start_matches("http://").to_owned();
    let (told, polls) = mpsc::channel();
    std::thread::spawn(move || {
        for caller in listener.incoming().map_while(Result::ok) {
            let onward = TcpStream::connect(&server).unwrap();
            onward.set_nodelay(true).unwrap();
            let mut answers = onward.try_clone().unwrap();
            let mut back = caller.try_clone().unwrap();
            std::thread::spawn(move || {
                std::io::copy(&mut answers, &mut back).ok();
                back.shutdown(Shutdown::Both).ok();
            });
            let told = told.clone();
            std::thread::spawn(move || forward_requests(caller, onward, &told));
        }
    });
    (url, polls)
}

/// Forwards requests without a body, line by line.
fn forward_requests(caller: TcpStream, mut server: TcpStream, polls: &mpsc::Sender<()>) {
    let mut requests = BufReader::new(caller);
    let mut line = String::new();
    while requests.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line.starts_with("GET ") && line.contains("wait=30s") {
            polls.send(()).ok();
        }
        if server.write_all(line.as_bytes()).is_err() {
            break;
        }
        line.clear();
    }
    server.shutdown(Shutdown::Both).ok();
}

#[test]
fn a_node_is_watched_and_events_are_followed_as_they_come() {
    let fleet = Fleet::start(2);
    // Earlier events are shown by the watch only.
    let events = Following::follow(&fleet, "event follow --topics claim.*,node.advanced");
    let programs = Following::follow(&fleet, "event follow --node n1 --json");
    let watch = Following::start(&fleet, "node watch n1 --until in_service");
    watch.until("available");
    fleet
        .muster("claim create --pool gpu --node n1 --name first")
        .expect(0);
    let read = events.until("in_service");
    assert!(
        read.iter()
            .all(|line| !line.contains("registered") && !line.contains("n2")),
        "{read:?}"
    );
    assert!(read.iter().any(|line| line.contains("imaging")), "{read:?}");
    let (code, said) = watch.end();
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let line = programs.until("in_service").pop().unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&event["kind"], event["seq"].is_i64()),
        (&"node.advanced".into(), true),
        "{line}"
    );
    let (code, said) = events.interrupt();
    assert_eq!(
        (code.unwrap_or(130), said.contains("panicked")),
        (130, false),
        "{said}"
    );
    programs.interrupt();

    // A quarantine ends the watch with an error.
    let watch = Following::start(&fleet, "node watch n2 --until in_service");
    watch.until("available");
    fleet
        .muster("node quarantine n2 --reason smoke --wait")
        .expect(0);
    let (code, said) = watch.end();
    assert_eq!(code, Some(9), "{said}");
    assert!(said.contains("smoke"), "{said}");
    // The watch ends at the time limit.
    fleet
        .muster("node watch n1 --until available --timeout 2s")
        .expect(8);
    fleet.muster("node watch nobody").expect(3);
}

/// Runs `muster` on a terminal, by script(1).
fn on_terminal(fleet: &Fleet, line: &str) -> (i32, String) {
    let typed = format!("stty cols 80 rows 24; {MUSTER} {line}");
    let home = muster(fleet.server.dir.path(), &[]);
    let mut script = Command::new("script");
    script.args(["-qec", &typed, "/dev/null"]).env_clear();
    script.envs(
        home.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    script
        .env("TERM", "xterm")
        .env("MUSTER_SERVER", &fleet.server.url)
        .env("MUSTER_TOKEN", fleet.server.token());
    let said = run(&mut script, "");
    (said.code, said.out)
}

#[test]
fn a_terminal_shows_a_bar_per_operation_and_a_pipe_gets_lines() {
    let fleet = Fleet::start(3);
    let (code, drawn) = on_terminal(&fleet, "claim create --pool gpu --count 2 --wait");
    assert_eq!(code, 0, "{drawn}");
    let screen = screen(&drawn);
    let begun = drawn
        .find("n1 claim ")
        .unwrap_or_else(|| panic!("nothing of n1: {drawn:?}"));
    assert!(
        drawn[..begun].contains(ESCAPE) && drawn[begun..].contains(ESCAPE),
        "drawn over: {drawn:?}"
    );
    assert!(
        !drawn.contains('░'),
        "a bar of what nobody knows: {drawn:?}"
    );
    // The table and the end of each operation stay. The bars are cleared.
    let ended = |line: &&String| line.starts_with("claim n") && line.contains(": succeeded");
    assert_eq!(
        (screen.len(), screen.iter().filter(ended).count()),
        (5, 2),
        "{screen:#?}"
    );
    assert!(
        screen[0].starts_with("NAME") && screen[1].starts_with("gpu-"),
        "{screen:#?}"
    );
    let (code, quiet) = on_terminal(&fleet, "claim create --pool gpu --wait -q -o name");
    assert_eq!((code, quiet.contains(ESCAPE)), (0, false), "{quiet:?}");
    // The progress goes to stderr, the result to stdout.
    let claim = fleet
        .muster("claim list -o name")
        .expect(0)
        .out
        .lines()
        .next()
        .unwrap()
        .to_owned();
    let piped = fleet
        .muster(&format!("claim release {claim} --erase-now --wait -o json"))
        .expect(0);
    assert_eq!(piped.json()["state"], "succeeded");
    assert!(
        !piped.err.contains(ESCAPE) && piped.err.contains("release "),
        "{:?}",
        piped.err
    );
}

/// Two fifths of an image are written, by a report in place of an agent.
#[test]
fn a_step_that_has_a_size_has_a_bar() {
    let fleet = Fleet::start(1);
    fleet.stop();
    let made = fleet
        .muster("claim create --pool gpu -o json")
        .expect(0)
        .json();
    let operation = made[0]["status"]["operation"].as_str().unwrap();
    fleet.until("operation list --filter state=running", 1);
    let says = r#"UPDATE jobs SET progress = '{"at": "2026-01-05T08:00:00Z", "message": "writes the image", "done": 40, "total": 100}'
                  WHERE state IN ('queued', 'leased')"#;
    fleet.sql(says);
    let (code, drawn) = on_terminal(&fleet, &format!("operation watch {operation} --timeout 2s"));
    assert_eq!(code, 8, "{drawn}");
    assert!(
        drawn.contains("n1 claim ████░░░░░░  40 % boot_live: writes the image"),
        "{drawn:?}"
    );
    let last = screen(&drawn);
    assert!(
        last.last()
            .unwrap()
            .contains(&format!("muster operation watch {operation}")),
        "{last:#?}"
    );
    let piped = fleet
        .muster(&format!("operation watch {operation} --timeout 2s"))
        .expect(8);
    assert!(
        piped
            .err
            .starts_with("n1 claim running: boot_live: writes the image\n"),
        "{}",
        piped.err
    );
    assert!(
        !piped.err.contains(ESCAPE) && !piped.err.contains('█'),
        "{:?}",
        piped.err
    );
}

/// Returns the final screen of a terminal with 80 columns. Lines are wrapped, drawn over and
/// cleared.
fn screen(drawn: &str) -> Vec<String> {
    const WIDTH: usize = 80;
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0);
    let mut rest = drawn.chars();
    while let Some(one) = rest.next() {
        match one {
            '\r' => column = 0,
            '\n' => row += 1,
            ESCAPE => {
                let (mut count, mut what) = (String::new(), ' ');
                for next in rest.by_ref().skip(1) {
                    match next.is_ascii_alphabetic() {
                        true => {
                            what = next;
                            break;
                        }
                        false => count.push(next),
                    }
                }
                match (what, count.parse().unwrap_or(1)) {
                    ('A', lines) => row = row.saturating_sub(lines),
                    ('B', lines) => row += lines,
                    ('K', _) => lines[row].clear(),
                    _ => {}
                }
            }
            one => {
                // A line wraps at the character after the last column.
                if column == WIDTH {
                    (row, column) = (row + 1, 0);
                }
                lines.resize_with(lines.len().max(row + 1), Vec::new);
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = one;
                column += 1;
            }
        }
        lines.resize_with(lines.len().max(row + 1), Vec::new);
    }
    let lines = lines
        .iter()
        .map(|line| line.iter().collect::<String>().trim_end().to_owned());
    let mut lines: Vec<String> = lines.collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}
