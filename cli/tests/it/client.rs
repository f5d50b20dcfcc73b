//! Nouns and verbs, against a real server.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::muster::{MUSTER, Server, folder, muster, run};

const NODE: &str = "
site: lab
power: {manual: {person: the rack team}}
macs: [{mac: '52:54:00:00:00:0N', subnet: prov}]
";

/// A site with a rack, a subnet and two nodes: the first one quarantined, the second one waiting for an agent that never comes.
fn fleet() -> Server {
    let server = Server::start();
    server
        .muster(&["site", "create", "lab"])
        .expect(0)
        .says("site lab created");
    let rack = [
        "rack",
        "set",
        "r1",
        "--spec",
        "site=lab",
        "--spec",
        "units=42",
        "--spec",
        "power_budget_w=20000",
    ];
    server
        .muster(&[&rack[..], &["--label", "row=a"]].concat())
        .expect(0)
        .says("rack r1 created");
    let subnet = "kind: subnet\nname: prov\nspec: {site: lab, network: 10.77.0.0/24, agent_address: 10.77.0.1, mode: authoritative}";
    server
        .typed(&["apply", "-f", "-"], subnet)
        .expect(0)
        .says("subnet prov created");
    for (name, number) in [("gpu-1", "1"), ("gpu-2", "2")] {
        server
            .typed(
                &["node", "create", name, "-f", "-"],
                &NODE.replace('N', number),
            )
            .expect(0)
            .says("created");
    }
    server
}

#[test]
fn objects_are_created_changed_listed_and_removed_by_every_noun_alike() {
    let server = fleet();
    server
        .muster(&["site", "create", "lab"])
        .expect(4)
        .says("exists");
    server
        .muster(&["rack", "set", "r1", "--spec", "units=42"])
        .expect(0)
        .says("unchanged");
    server
        .muster(&["rack", "set", "r1", "--spec", "units=48", "--label", "row="])
        .expect(0)
        .says("changed");
    let rack = server
        .muster(&["rack", "get", "r1", "-o", "json"])
        .expect(0)
        .json();
    assert_eq!(
        (
            &rack["spec"]["units"],
            &rack["spec"]["site"],
            &rack["labels"]
        ),
        (&json!(48), &json!("lab"), &json!({}))
    );
    server
        .muster(&["rack", "set", "r1", "--spec", "colour=red"])
        .expect(2)
        .says("/spec/colour");

    // Nothing stays of what was only tried.
    let tried = [
        "rack",
        "create",
        "r9",
        "--spec",
        "site=lab",
        "--spec",
        "units=1",
        "--spec",
        "power_budget_w=1",
        "--dry-run",
    ];
    server.muster(&tried).expect(0).says("would be created");
    server.muster(&["rack", "get", "r9"]).expect(3);
    for name in ["r2", "r3"] {
        let spec = [
            "--spec",
            "site=lab",
            "--spec",
            "units=42",
            "--spec",
            "power_budget_w=1000",
            "--label",
            "row=b",
        ];
        server
            .muster(&[&["rack", "create", name][..], &spec].concat())
            .expect(0);
    }

    // The words of documents, of paths, and with dashes.
    assert_eq!(
        server.muster(&["rack", "list", "-o", "name"]).expect(0).out,
        "r1\nr2\nr3\n"
    );
    assert_eq!(
        server
            .muster(&["racks", "list", "-o", "name", "--limit", "2"])
            .expect(0)
            .out,
        "r1\nr2\n"
    );
    assert_eq!(
        server
            .muster(&["rack", "list", "-o", "name", "--sort=-name", "--limit", "1"])
            .expect(0)
            .out,
        "r3\n"
    );
    assert_eq!(
        server
            .muster(&["rack", "list", "-o", "name", "--filter", "label.row=b"])
            .expect(0)
            .out,
        "r2\nr3\n"
    );
    server
        .muster(&["hardware-profile", "list"])
        .expect(0)
        .says("no hardware profiles fit");
    server
        .muster(&["rack", "list", "--sort", "units"])
        .expect(2)
        .says("sort");
    let cut = server
        .muster(&[
            "rack",
            "list",
            "--fields",
            "spec.units",
            "--json",
            "--limit",
            "1",
        ])
        .expect(0)
        .json();
    assert_eq!(
        (&cut[0]["spec"], cut[0].get("created_at")),
        (&json!({ "units": 48 }), None)
    );
    server
        .muster(&["rack", "list", "--fields", "spec.units"])
        .expect(0)
        .says("SPEC.UNITS");
    server
        .muster(&["rack", "list", "-o", "wide"])
        .expect(0)
        .says("ID");
    let yaml = server
        .muster(&["rack", "get", "r2", "-o", "yaml"])
        .expect(0);
    assert!(yaml.out.contains("power_budget_w: 1000\n"), "{}", yaml.out);
    let whole = server.muster(&["rack", "describe", "r1"]).expect(0).out;
    assert!(
        whole.starts_with("rack r1\n") && whole.contains("power_budget_w       20000"),
        "{whole}"
    );

    server
        .muster(&["rack", "delete", "r3", "--dry-run"])
        .expect(0)
        .says("could be removed");
    server
        .muster(&["rack", "delete", "r2", "r3"])
        .expect(0)
        .says("rack r3 removed");
    server.muster(&["rack", "get", "r3"]).expect(3);
    server
        .muster(&["site", "delete", "lab"])
        .expect(4)
        .says("referred to");
    server.muster(&["tower", "list"]).expect(2);
}

#[test]
fn nodes_are_asked_and_operations_waited_for() {
    let server = fleet();
    let done = server
        .muster(&[
            "node",
            "quarantine",
            "gpu-1",
            "--reason",
            "a fan rattles",
            "--wait",
            "-o",
            "json",
        ])
        .expect(0);
    assert_eq!(done.json()["state"], "succeeded");
    let lines = server.muster(&[
        "node",
        "quarantine",
        "gpu-2",
        "gpu-1",
        "--reason",
        "a fan rattles",
        "--wait",
    ]);
    // One of them is quarantined already: the other one is asked all the same.
    lines
        .expect(4)
        .says("gpu-1: ")
        .says("quarantine gpu-2: succeeded");
    server
        .muster(&["node", "why", "gpu-1"])
        .expect(0)
        .says("because a fan rattles");
    server
        .muster(&["node", "describe", "gpu-1"])
        .expect(0)
        .says("a fan rattles")
        .says("52:54:00:00:00:01");
    server
        .muster(&["node", "list", "--filter", "state=quarantined"])
        .expect(0)
        .says("gpu-1");
    assert_eq!(
        server
            .muster(&["node", "list", "-f", "state=in_service", "-o", "name"])
            .expect(0)
            .out,
        ""
    );
    server.muster(&["node", "get", "nobody"]).expect(3);
    let operations = server
        .muster(&["operation", "list", "--node", "gpu-1", "--json"])
        .expect(0)
        .json();
    assert_eq!(operations.as_array().unwrap().len(), 2);
    server
        .muster(&["event", "list", "--limit", "1", "--json"])
        .expect(0)
        .says("site lab created");
    server
        .muster(&["node", "events", "gpu-1"])
        .expect(0)
        .says("gpu-1 registered");
    let quiet = server
        .muster(&["node", "recover", "gpu-1", "-q", "-o", "name"])
        .expect(0);
    assert_eq!(quiet.err, "");

    // No agent ever takes this one's job.
    let id = quiet.out.trim();
    let late = server
        .muster(&["operation", "watch", id, "--timeout", "1s"])
        .expect(8);
    let late = late.says(&format!("To go on watching: muster operation watch {id}"));
    assert!(
        late.err.contains("waits for the site's agent"),
        "progress is told in lines: {}",
        late.err
    );
    interrupted(&server, id);
    server.muster(&["operation", "cancel", id]).expect(0);
    server
        .muster(&["operation", "watch", id, "--timeout", "60s"])
        .expect(9)
        .says("cancelled");
}

/// Ctrl-C ends the waiting and says how to go on with it.
fn interrupted(server: &Server, id: &str) {
    let mut command = muster(server.dir.path(), &["operation", "watch", id]);
    command
        .env("MUSTER_SERVER", &server.url)
        .env("MUSTER_TOKEN", server.token());
    let mut child = command
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    assert!(first.contains("waits for"), "{first}");
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let rest: Vec<String> = told.map_while(Result::ok).collect();
    assert!(
        rest.iter()
            .any(|line| line.contains(&format!("muster operation watch {id}"))),
        "{rest:?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// What is kept by anybody elsewhere holds the history as the server's own file does.
#[test]
fn the_newest_seal_is_shown_and_kept() {
    let server = fleet();
    let kept = server.dir.path().join("kept");
    let mut anchor = String::new();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while anchor.is_empty() {
        assert!(std::time::Instant::now() < until, "nothing is sealed");
        anchor = server.muster(&["audit", "head", "--anchor"]).expect(0).out;
    }
    std::fs::write(&kept, &anchor).unwrap();
    let head = server.muster(&["audit", "head", "--json"]).expect(0).json();
    assert!(
        head["number"].as_i64().unwrap() >= 1 && head["hash"].as_str().unwrap().len() == 64,
        "{head}"
    );
    server
        .muster(&["audit", "head"])
        .expect(0)
        .says("over every event up to")
        .says("hash ");
    let (database, kept) = (server.database("muster"), kept.display().to_string());
    let verify = [
        "audit",
        "verify",
        "--database-url",
        &database,
        "--anchors",
        &kept,
    ];
    server.muster(&verify).expect(0).says("1 anchors");
    let hash = serde_json::from_str::<Value>(&anchor).unwrap()["hash"]
        .as_str()
        .unwrap()
        .to_owned();
    std::fs::write(&kept, anchor.replace(&hash, &"0".repeat(64))).unwrap();
    server
        .muster(&verify)
        .expect(6)
        .says("not the one in the anchors");
}

#[test]
fn what_cannot_be_taken_back_is_planned_first() {
    let server = fleet();
    let reason = ["--reason", "a fan rattles"];
    let plan = |arguments: &[&str]| server.muster(&[arguments, &reason, &["--plan"]].concat());
    plan(&["node", "quarantine", "gpu-1"])
        .expect(0)
        .says("effect: ");
    assert_eq!(
        server
            .muster(&["operation", "list", "--node", "gpu-1", "-o", "name"])
            .expect(0)
            .out
            .lines()
            .count(),
        1
    );
    server
        .muster(&[&["node", "quarantine", "gpu-1", "--wait"][..], &reason].concat())
        .expect(0);
    plan(&["node", "wipe", "gpu-1"])
        .expect(0)
        .says("effect: wipe")
        .says("gpu-1: ");
    plan(&["node", "retire", "gpu-1"])
        .expect(0)
        .says("effect: ");
    let both = plan(&["node", "wipe", "gpu-1", "gpu-2"]).expect(0);
    let refused = both
        .out
        .lines()
        .find(|line| line.starts_with("gpu-2"))
        .unwrap();
    assert!(
        refused.contains("wipe is possible in") && both.out.contains("NODE"),
        "{}",
        both.out
    );
    plan(&["node", "wipe", "gpu-2"])
        .expect(4)
        .says("wipe is possible in");
    plan(&["node", "replace-parts", "gpu-1", "--part", "disk:A=B"])
        .expect(2)
        .says("never had");
    server
        .muster(&["node", "wipe", "gpu-1", "--plan", "--wait"])
        .expect(2);
    let node = server
        .muster(&["node", "get", "gpu-1", "-o", "json"])
        .expect(0)
        .json();
    assert_eq!(node["status"]["state"], "quarantined");
    assert_eq!(
        server
            .muster(&["operation", "list", "--node", "gpu-1", "-o", "name"])
            .expect(0)
            .out
            .lines()
            .count(),
        2
    );
    server
        .muster(&["claim", "release", "none", "--plan"])
        .expect(3);
    server
        .muster(&["rack", "delete", "r1", "--plan"])
        .expect(0)
        .says("could be removed");
    server.muster(&["rack", "get", "r1"]).expect(0);
}

#[test]
fn a_plan_is_shown_and_what_is_applied_is_told() {
    let server = fleet();
    let wanted = "kind: rack\nname: r1\nspec: {site: lab, units: 48, power_budget_w: 20000}\n---\nkind: rack\nname: r2\nspec: {site: lab, units: 42, power_budget_w: 1}";
    server
        .typed(&["plan", "-f", "-"], wanted)
        .expect(0)
        .says("CHANGE")
        .says("r2");
    server.muster(&["rack", "get", "r2"]).expect(3);
    let done = server
        .typed(&["apply", "-f", "-", "-o", "json"], wanted)
        .expect(0)
        .json();
    assert_eq!(
        done,
        json!([{ "kind": "rack", "name": "r1", "done": "changed" }, { "kind": "rack", "name": "r2", "done": "created" }])
    );
    server
        .typed(&["apply", "-f", "-"], wanted)
        .expect(0)
        .says("rack r1 unchanged");
    server
        .typed(&["apply", "-f", "-"], "kind: tower\nname: x\nspec: {}")
        .expect(2)
        .says("is no kind");
    // All or nothing, where nobody is asked as well.
    let half = "kind: site\nname: other\nspec: {}\n---\nkind: rack\nname: r3\nspec: {site: other, units: 48}";
    let refused = server.typed(&["apply", "--yes", "-f", "-"], half).expect(2);
    refused
        .says("power_budget_w")
        .says("1 of 2 objects cannot be written; no object was written");
    server.muster(&["site", "get", "other"]).expect(3);
}

#[test]
fn an_array_in_the_place_of_a_deep_object_is_refused_with_a_pointer() {
    let server = fleet();
    let node = "
kind: node
name: gpu-3
spec:
  site: lab
  power: {redfish: {bmc: [10.78.0.1, bmc]}}
  macs: [{mac: '52:54:00:00:00:03', subnet: prov}]
";
    let addresses = json!(["storage_address"]);
    let vlan = json!({ "id": 120, "over": "first", "addresses": [addresses] });
    let interface = json!({ "is": { "boot": true } });
    let spec = json!({ "interfaces": { "first": interface }, "vlans": { "storage": vlan } });
    let profile = json!({ "kind": "network_profile", "name": "bonded", "spec": spec }).to_string();
    let address = "/spec/vlans/storage/addresses/0 ";
    let suite = r#"
name = "smoke"
version = "1"
[[gates]]
id = "node.profile"
title = "Facts fit the profile"
stage = "inventory"
timeout_s = 30
parser = "facts"
criteria = [["profile.misses", "==", 0, "misses"]]
finding = "The machine is not what was bought."
"#;
    for (file, text, pointer) in [
        ("node.yaml", node, "/spec/power/redfish/bmc "),
        ("profile.json", profile.as_str(), address),
        ("smoke.toml", suite, "/spec/gates/0/criteria/0 "),
    ] {
        let path = server.dir.path().join(file);
        std::fs::write(&path, text).unwrap();
        server
            .muster(&["apply", "--yes", "-f", path.to_str().unwrap()])
            .expect(2)
            .says(pointer)
            .says("no object was written");
    }
    for written in [
        ["node", "get", "gpu-3"],
        ["network_profile", "get", "bonded"],
        ["suite", "get", "smoke"],
    ] {
        server.muster(&written).expect(3);
    }
}

#[test]
fn a_token_is_made_once_and_revoked() {
    let server = Server::start();
    let made = server
        .muster(&["token", "create", "ci", "--role", "viewer", "--lasts", "1h"])
        .expect(0);
    let secret = made.out.trim().to_owned();
    let listed = server.muster(&["token", "list", "--json"]).expect(0);
    assert!(secret.starts_with("mst_") && !listed.out.contains(&secret));
    let tokens = listed.json();
    let id = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["name"] == "ci")
        .unwrap()["id"]
        .as_str()
        .unwrap();
    let as_it = |arguments: &[&str]| {
        let mut command = muster(server.dir.path(), arguments);
        run(
            command
                .env("MUSTER_SERVER", &server.url)
                .env("MUSTER_TOKEN", &secret),
            "",
        )
    };
    as_it(&["node", "list"]).expect(0);
    as_it(&["site", "create", "lab"]).expect(7);
    server.muster(&["token", "revoke", id]).expect(0);
    as_it(&["node", "list"]).expect(7);
    // Nobody listens on the port of a server that was there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    server
        .muster(&["node", "list", "--server", &gone])
        .expect(5)
        .says("cannot be reached");
}

#[test]
fn a_terminal_gets_colours_and_a_pipe_none() {
    let server = fleet();
    server
        .muster(&[
            "node",
            "quarantine",
            "gpu-1",
            "--reason",
            "a reason that is much longer than a line of a terminal can hold, and so is cut",
            "--wait",
            "-q",
        ])
        .expect(0);
    let piped = server.muster(&["node", "list"]).expect(0).out;
    assert!(!piped.contains('\u{1b}'), "{piped:?}");
    let on_terminal = |colour: &str| {
        // script(1) gives its command a terminal of 80 columns.
        let typed = format!("stty cols 80 rows 24; {MUSTER} node list");
        let mut command = muster(server.dir.path(), &[]);
        command = {
            let mut script = Command::new("script");
            script.args(["-qec", &typed, "/dev/null"]).env_clear();
            script.envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            script
        };
        command
            .env("TERM", "xterm")
            .env("NO_COLOR", colour)
            .env("MUSTER_SERVER", &server.url);
        run(command.env("MUSTER_TOKEN", server.token()), "")
            .expect(0)
            .out
    };
    let coloured = on_terminal("");
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    let plain = on_terminal("1");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    assert!(
        plain
            .lines()
            .all(|line| line.trim_end().chars().count() <= 80)
            && plain.contains('…'),
        "{plain}"
    );
}

/// What a shell offers after a line, by its own means: `completer` is run with the program's folder in front of its path.
fn offered(server: &Server, shell: &str, completer: &str) -> Vec<String> {
    let path = format!(
        "{}:{}",
        std::path::Path::new(MUSTER).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = Command::new(shell);
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", server.dir.path());
    command
        .env("MUSTER_SERVER", &server.url)
        .env("MUSTER_TOKEN", server.token());
    let mut offered: Vec<String> = run(&mut command, completer)
        .expect(0)
        .out
        .lines()
        .map(str::to_owned)
        .collect();
    offered.sort();
    offered
}

#[test]
fn a_shell_offers_the_names_of_what_there_is() {
    let server = fleet();
    let bash = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "source <(muster completion bash)\nCOMP_WORDS=(muster {})\nCOMP_CWORD={}\n_muster\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words.join(" "),
            words.len(),
        );
        offered(&server, "bash", &script)
    };
    assert_eq!(bash(&["node", "why", "gpu"]), ["gpu-1", "gpu-2"]);
    assert_eq!(bash(&["node", "wipe", "gpu-1", "gpu-2"]), ["gpu-2"]);
    assert_eq!(bash(&["racks", "get", ""]), ["r1"]);
    assert_eq!(
        bash(&["claim", "create", "--node", "=", "gpu-1"]),
        ["gpu-1"]
    );
    assert_eq!(
        bash(&["claim", "create", "--node=gpu-"]),
        ["--node=gpu-1", "--node=gpu-2"]
    );
    assert_eq!(bash(&["node", "qua"]), ["quarantine"]);
    assert_eq!(bash(&["node", "why", "$(id)"]), [""]);
}

/// As a terminal does it: a Tab, and the name is there.
#[test]
fn a_tab_in_an_interactive_shell_completes_a_name() {
    let server = fleet();
    for (shell, arguments) in [("bash", "--norc --noprofile -i"), ("zsh", "-f -i")] {
        if Command::new(shell).arg("--version").output().is_err() {
            eprintln!("{shell} is not installed: not looked at");
            continue;
        }
        let begin = match shell {
            "zsh" => "autoload -U compinit; compinit -u -D; source <(muster completion zsh)",
            _ => "source <(muster completion bash)",
        };
        // Typed as a person does, into a terminal of its own; `rack get r` has one end.
        let typed = format!("{begin}\nmuster rack get r\t-o name\nexit\n");
        let path = format!(
            "{}:{}",
            std::path::Path::new(MUSTER).parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = Command::new("script");
        command
            .args(["-qec", &format!("{shell} {arguments}"), "/dev/null"])
            .env_clear()
            .env("PATH", path);
        command
            .env("HOME", server.dir.path())
            .env("TERM", "dumb")
            .env("MUSTER_SERVER", &server.url);
        let said = run(command.env("MUSTER_TOKEN", server.token()), &typed).out;
        assert!(
            said.lines().any(|line| line.trim() == "r1"),
            "{shell}: {said}"
        );
    }
}

#[test]
fn shells_complete_and_exit_codes_are_told() {
    let home = folder();
    let said = |arguments: &[&str]| run(&mut muster(home.path(), arguments), "").expect(0).out;
    for shell in ["elvish", "powershell"] {
        let script = said(&["completion", shell]);
        assert!(
            script.contains("role_binding") && script.contains("quarantine"),
            "{shell}"
        );
    }
    assert!(said(&["completion", "fish"]).contains("complete -c muster"));
    // Nobody is there to ask, and nothing is said about it.
    let alone = run(
        &mut muster(
            home.path(),
            &[
                "__complete",
                "--",
                "--server",
                "http://127.0.0.1:9",
                "node",
                "why",
                "",
            ],
        ),
        "",
    );
    assert_eq!(
        (alone.code, alone.out.as_str(), alone.err.as_str()),
        (0, "", "")
    );
    assert!(said(&["__complete", "--", "node", "wi"]).contains("wipe"));
    assert!(said(&["exit-codes"]).contains("  8  The time limit --timeout passed"));
    assert!(said(&["help", "exit-codes"]).contains("  8  The time limit --timeout passed"));
    assert!(said(&["help", "node", "drain"]).contains("--reason"));
    let stray: Value = json!(
        run(&mut muster(home.path(), &["node", "drain"]), "")
            .expect(2)
            .err
    );
    assert!(stray.as_str().unwrap().contains("<NODE>"), "{stray}");
}
