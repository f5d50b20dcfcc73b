//! Terminals and pipes, completion in shells, exit codes.

use std::process::Command;

use serde_json::{Value, json};

use super::fleet;
use crate::muster::{MUSTER, Server, folder, muster, run};

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
        // The command runs under script(1), in a terminal of 80 columns.
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

/// The completions of a shell. The shell runs `completer`, with the folder of the program first in
/// PATH.
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

/// A Tab in a terminal completes the name.
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
        // Typed into a terminal. `rack get r` has a single completion.
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
    // Completion stays silent without a server.
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
