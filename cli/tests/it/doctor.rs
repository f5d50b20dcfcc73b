//! Tests of `muster doctor` with real faults. A fault is reported, and a healthy host has no report.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::muster::{MUSTER, Server, file, folder, muster, run};

/// Runs the doctor, with the wanted exit code. Returns verdict and sentence of every finding. A
/// finding that is not `ok` must have a remedy.
pub(crate) fn doctor(home: &Path, arguments: &[&str], code: i32) -> Vec<(String, String)> {
    let said = run(
        &mut muster(home, &[&["doctor", "--json"][..], arguments].concat()),
        "",
    )
    .expect(code)
    .json();
    assert_eq!(said["sound"], Value::Bool(code == 0));
    let text =
        |finding: &Value, member: &str| finding[member].as_str().unwrap_or_default().to_owned();
    let finding = |finding: &Value| {
        let advised = finding["verdict"] == "ok" || !text(finding, "todo").is_empty();
        assert!(advised, "it does not say what to do: {finding}");
        (text(finding, "verdict"), text(finding, "found"))
    };
    said["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(finding)
        .collect()
}

#[track_caller]
pub(crate) fn tells(findings: &[(String, String)], verdict: &str, text: &str) {
    let found = findings
        .iter()
        .any(|(word, found)| word == verdict && found.contains(text));
    assert!(found, "no {verdict} {text:?} in {findings:?}");
}

#[test]
fn a_taken_port_is_told_with_who_has_it() {
    let home = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ask = [
        "--as",
        "server",
        "--only",
        "ports",
        "--agent-listen",
        "127.0.0.1:1",
        "--listen",
        &address,
    ];
    let me = std::fs::read_to_string("/proc/self/comm").unwrap();
    tells(
        &doctor(home.path(), &ask, 10),
        "fail",
        &format!("is taken by {}, process {}", me.trim(), std::process::id()),
    );
    drop(taken);
    let free = doctor(home.path(), &ask, 0);
    tells(
        &free,
        "ok",
        &format!("TCP {}", address.rsplit(':').next().unwrap()),
    );
}

#[test]
fn files_that_others_read_or_that_are_not_there_are_told() {
    let home = folder();
    let at = |name: &str| home.path().join(name).display().to_string();
    let (key, data, agent, token) = (at("master.key"), at("data"), at("agent"), at("token"));
    std::fs::create_dir(&data).unwrap();
    std::fs::create_dir(&agent).unwrap();
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::write(&token, "mst_a").unwrap();
    let ask = [
        "--as",
        "server,agent",
        "--only",
        "files",
        "--key-file",
        &key,
        "--data-dir",
        &data,
    ];
    let ask = [
        &ask[..],
        &["--agent-data-dir", &agent, "--agent-token-file", &token],
    ]
    .concat();
    let mode = |path: &str, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    for path in [&key, &token] {
        mode(path, 0o600);
    }
    assert!(
        doctor(home.path(), &ask, 0)
            .iter()
            .all(|(verdict, _)| verdict == "ok")
    );
    for path in [&key, &token] {
        mode(path, 0o640);
        tells(
            &doctor(home.path(), &ask, 10),
            "fail",
            &format!("{path} may be read by others"),
        );
        mode(path, 0o600);
    }
    mode(&data, 0o777);
    tells(
        &doctor(home.path(), &ask, 10),
        "fail",
        "everybody may write",
    );
    mode(&data, 0o755);
    std::fs::write(&key, [7; 31]).unwrap();
    tells(&doctor(home.path(), &ask, 10), "fail", "not 32 bytes");
    std::fs::remove_file(&key).unwrap();
    tells(&doctor(home.path(), &ask, 10), "fail", "cannot be read");
}

/// Runs a statement past the server.
pub(crate) fn psql(database: &str, statement: &str) {
    let options = ["-qX", "-v", "ON_ERROR_STOP=1", database, "-c", statement];
    run(Command::new("psql").args(options), "").expect(0);
}

#[test]
fn a_database_is_looked_into() {
    let server = Server::start();
    let home = server.dir.path();
    let psql = |database: &str, statement: &str| psql(&server.database(database), statement);
    let ask = |database: &str, code: i32| {
        let url = server.database(database);
        doctor(
            home,
            &[
                "--as",
                "server",
                "--only",
                "database,schema,remains,clocks",
                "--database-url",
                &url,
                "--server",
                &server.url,
            ],
            code,
        )
    };
    let sound = ask("muster", 0);
    tells(&sound, "ok", "takes writes");
    tells(&sound, "ok", "migrations have run");
    tells(&sound, "ok", "agrees with the database's");
    tells(&sound, "ok", "agrees with the server's");
    tells(&sound, "ok", "no deleted node has left data");
    for left in [
        "INSERT INTO remains VALUES (gen_random_uuid(), gen_random_uuid(), 'n17', now(), true, 'a wipe failed', 2, false, NULL)",
        "INSERT INTO remains_identifiers SELECT id, 'disk', 'D-17' FROM remains",
    ] {
        psql("muster", left);
    }
    tells(&ask("muster", 0), "warn", "the disks of n17");
    tells(&ask("muster", 0), "warn", "disk D-17");

    psql("postgres", "CREATE DATABASE other");
    tells(&ask("other", 10), "fail", "has no schema yet");
    psql(
        "other",
        "CREATE TABLE _sqlx_migrations (version bigint, success bool, checksum bytea); INSERT INTO _sqlx_migrations VALUES (1, true, '')",
    );
    tells(&ask("other", 10), "fail", "ran in another form");
    psql("other", "UPDATE _sqlx_migrations SET version = 900000");
    tells(&ask("other", 10), "fail", "migrations have not run");
    psql(
        "postgres",
        "ALTER DATABASE other SET synchronous_commit = off",
    );
    tells(
        &ask("other", 10),
        "fail",
        "a crash loses writes already confirmed to clients",
    );
    psql(
        "postgres",
        "ALTER DATABASE other SET default_transaction_read_only = on",
    );
    tells(&ask("other", 10), "fail", "cannot be used");
    tells(&ask("nowhere", 10), "fail", "cannot be used");
}

#[test]
fn a_rotation_of_the_master_key_under_way_is_told() {
    let server = Server::start();
    let url = server.database("muster");
    let ask = |code| {
        let arguments = ["--as", "server", "--only", "keys", "--database-url", &url];
        doctor(server.dir.path(), &arguments, code)
    };
    tells(&ask(0), "ok", "no rotation of a key is under way");
    let psql = |statement: &str| psql(&url, statement);
    psql("INSERT INTO key_rotations VALUES ('master', 'former', 'next', now())");
    tells(&ask(0), "warn", "of server_keys under");
    psql("UPDATE server_keys SET key_id = 'next'");
    psql("DELETE FROM key_holders");
    psql("INSERT INTO key_holders VALUES (gen_random_uuid(), 'server-9', ARRAY['former'], now())");
    tells(&ask(0), "warn", "the server on server-9");
    psql("DELETE FROM key_rotations");
    psql("UPDATE server_keys SET key_id = 'former' WHERE name = 'agent_ca'");
    tells(&ask(10), "fail", "1 of server_keys under former");
}

#[test]
fn roles_that_lose_rights_with_the_next_version_are_told() {
    let server = Server::start();
    let url = server.database("muster");
    let ask = || {
        let arguments = [
            "--as",
            "server",
            "--only",
            "roles",
            "--database-url",
            &url,
            "--server",
            &server.url,
        ];
        doctor(server.dir.path(), &arguments, 0)
    };
    for (name, role) in [
        ("old", "automation"),
        ("screen", "viewer"),
        ("new", "release_owner"),
    ] {
        server
            .muster(&["token", "create", name, "--role", role])
            .expect(0);
    }
    tells(&ask(), "ok", "no token, person or role binding keeps");
    let mark = "UPDATE tokens SET keeps_release_verbs = true WHERE name IN ('old', 'screen')";
    let mut psql = Command::new("psql");
    run(
        psql.args(["-qX", "-v", "ON_ERROR_STOP=1", &url, "-c", mark]),
        "",
    )
    .expect(0);
    tells(&ask(), "warn", "the token old (automation)");
    tells(&ask(), "warn", "has not done so since the upgrade");
    let text = "the token screen (viewer) reads consoles, logs and evidence";
    tells(&ask(), "warn", text);
}

#[test]
fn rows_without_a_seal_and_documents_stored_wrongly_are_told() {
    let server = Server::start();
    let url = server.database("muster");
    let data = server.dir.path().join("data");
    let (key, token) = (data.join("master.key"), data.join("token"));
    let (key, token) = (key.display().to_string(), token.display().to_string());
    let ask = |key: &str, code: i32| {
        let arguments = [
            "--as",
            "server",
            "--only",
            "seals,documents",
            "--database-url",
            &url,
            "--key-file",
            key,
            "--server",
            &server.url,
            "--token-file",
            &token,
        ];
        doctor(server.dir.path(), &arguments, code)
    };
    let admin = |words: &[&str]| {
        let host = ["--database-url", &url, "--key-file", &key];
        server
            .muster(&[&["admin"], words, &host].concat())
            .expect(0)
    };
    let sound = ask(&key, 0);
    tells(
        &sound,
        "ok",
        "every token, person, role binding and session has a valid seal",
    );
    tells(&sound, "ok", "every stored document");
    tells(
        &ask("/nonexistent/key", 0),
        "unknown",
        "the seals cannot be checked",
    );

    psql(
        &url,
        "INSERT INTO tokens (id, name, token_hash, role, created_at, expires_at)
         VALUES (gen_random_uuid(), 'forged', '\\x01', 'admin', now(), now() + interval '1 day')",
    );
    let told = ask(&key, 10);
    tells(&told, "fail", "and refused: the token forged (admin)");
    tells(&told, "warn", "the token forged is stored as a plain hash");
    admin(&["seal-rows", "--yes"]).says("token forged (admin)");
    tells(
        &ask(&key, 0),
        "warn",
        "the token forged is stored as a plain hash",
    );
    admin(&["forget-plain-tokens"]).says("revoked: forged");
    tells(
        &ask(&key, 0),
        "ok",
        "every token, person, role binding and session has a valid seal",
    );

    psql(
        &url,
        "INSERT INTO objects (id, kind, name, spec, created_at, updated_at)
         VALUES (gen_random_uuid(), 'credential', 'bmc', '{\"purpose\": \"bmc\", \"user\": \"root\", \"secret\": \"not-to-be-seen\"}', now(), now()),
                (gen_random_uuid(), 'site', 'lab', '{\"colour\": 1}', now(), now())",
    );
    let told = ask(&key, 10);
    tells(&told, "fail", "the stored document of the credential bmc");
    tells(
        &told,
        "warn",
        "the site lab was stored by an earlier version",
    );
    assert!(!format!("{told:?}").contains("not-to-be-seen"));
}

#[test]
fn a_server_and_a_token_are_tried() {
    let server = Server::start();
    let home = server.dir.path();
    let ask = |token: &str, code: i32| {
        let arguments = [
            "doctor",
            "--json",
            "--as",
            "server",
            "--only",
            "server,token,agents",
            "--server",
            &server.url,
        ];
        let mut command = muster(home, &arguments);
        run(command.env("MUSTER_TOKEN", token), "").expect(code).out
    };
    let sound = ask(server.token().trim(), 0);
    assert!(
        sound.contains("the token is valid") && sound.contains("no site is declared yet"),
        "{sound}"
    );
    assert!(ask("mst_nonsense", 10).contains("does not know the token"));
    server.muster(&["site", "create", "lab"]).expect(0);
    assert!(ask(server.token().trim(), 10).contains("the site lab has no agent"));
    server.muster(&["agent", "enrol", "lab", "a1"]).expect(0);
    assert!(ask(server.token().trim(), 10).contains("agent a1 of lab has never called"));
    let refused = "UPDATE agents SET refused = 'cloned'";
    psql(&server.database("muster"), refused);
    assert!(ask(server.token().trim(), 10).contains("is refused by the server: cloned"));
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let findings = doctor(
        home,
        &[
            "--only",
            "server,token",
            "--server",
            &format!("http://{gone}"),
        ],
        0,
    );
    tells(&findings, "warn", "no server answers at");
    tells(
        &findings,
        "unknown",
        "the validity of the token is unknown without a server",
    );
}

#[test]
fn a_suite_from_before_the_rule_of_programs_is_named() {
    let server = Server::start();
    let home = server.dir.path();
    let ask = || {
        let arguments = [
            "doctor",
            "--json",
            "--as",
            "server",
            "--only",
            "suites",
            "--server",
            &server.url,
        ];
        let mut command = muster(home, &arguments);
        let token = server.token();
        run(command.env("MUSTER_TOKEN", token.trim()), "")
            .expect(0)
            .out
    };
    server
        .muster(&["suite", "set", "pairs", "--file", "shipped:pairs"])
        .expect(0);
    let sound = ask();
    assert!(
        sound.contains("every gate of 1 suites starts an allowed program"),
        "{sound}"
    );
    let change = "UPDATE objects SET spec = jsonb_set(spec, '{gates,0,argv,0}', '\"setsid\"') WHERE name = 'pairs'";
    let mut command = Command::new("psql");
    let database = server.database("muster");
    run(
        command.args(["-qX", "-v", "ON_ERROR_STOP=1", &database, "-c", change]),
        "",
    )
    .expect(0);
    let told = ask();
    assert!(
        told.contains("the suite pairs is from before the rule of programs")
            && told.contains("iperf3-pair")
            && !told.contains("ib-write-bw-pair"),
        "{told}"
    );
}

#[test]
fn a_node_and_a_subnet_that_no_agent_serves_are_named() {
    let server = Server::start();
    let url = server.database("muster");
    let ask = || {
        let arguments = [
            "doctor",
            "--json",
            "--as",
            "server",
            "--only",
            "machines",
            "--database-url",
            &url,
            "--server",
            &server.url,
        ];
        let mut command = muster(server.dir.path(), &arguments);
        let token = server.token();
        run(command.env("MUSTER_TOKEN", token.trim()), "")
            .expect(0)
            .out
    };
    server.muster(&["site", "create", "lab"]).expect(0);
    let add = |name: &str, spec: &str| {
        let statement = format!(
            "INSERT INTO objects (id, kind, name, spec, created_at, updated_at) VALUES (gen_random_uuid(), 'subnet', '{name}', '{spec}', now(), now())"
        );
        psql(&url, &statement);
    };
    let prov = r#"{"site": "lab", "network": "10.77.0.0/24", "agent_address": "10.77.0.1", "gateway": "10.77.0.254", "mode": "authoritative"}"#;
    add("prov", prov);
    for name in ["n1", "n2", "n3"] {
        let statement = format!(
            "INSERT INTO nodes (id, name, created_at, updated_at, spec, site_id, power, power_person, state, entered_at)
             SELECT gen_random_uuid(), '{name}', now(), now(), '{{}}', id, 'manual', 'ada', 'discovered', now()
             FROM objects WHERE kind = 'site'"
        );
        psql(&url, &statement);
    }
    let mac = |node: &str, mac: &str, address: &str| {
        let statement = format!(
            "INSERT INTO node_macs (mac, node_id, subnet_id, address)
             SELECT '{mac}', n.id, s.id, '{address}' FROM nodes n, objects s WHERE n.name = '{node}' AND s.name = 'prov'"
        );
        psql(&url, &statement);
    };
    mac("n1", "52:54:00:00:00:01", "10.77.0.11");
    let sound = ask();
    assert!(
        sound.contains("the agents can serve every declared address"),
        "{sound}"
    );
    mac("n2", "01:00:5e:00:00:01", "10.77.0.12");
    mac("n3", "52:54:00:00:00:03", "10.77.0.254");
    let loopback =
        r#"{"site": "lab", "network": "127.0.0.0/8", "agent_address": "127.0.0.1", "mode": "off"}"#;
    add("none", loopback);
    let told = ask();
    for found in [
        "node n2 has 01:00:5e:00:00:01",
        "node n3 has 52:54:00:00:00:03 with 10.77.0.254 on prov",
        "subnet none, /spec/network",
    ] {
        assert!(told.contains(found), "{told}");
    }
    assert!(!told.contains("node n1"), "{told}");
}

#[test]
fn nodes_that_accept_certificates_of_a_removed_agent_are_told() {
    let server = Server::start();
    let url = server.database("muster");
    let ask = || {
        let arguments = [
            "--as",
            "server",
            "--only",
            "certificates",
            "--database-url",
            &url,
            "--server",
            &server.url,
        ];
        doctor(server.dir.path(), &arguments, 0)
    };
    server.muster(&["site", "create", "lab"]).expect(0);
    for statement in [
        "INSERT INTO nodes (id, name, created_at, updated_at, spec, site_id, power, power_person, state, entered_at, os_host_key)
         SELECT gen_random_uuid(), 'n1', now(), now(), '{}', id, 'manual', 'ada', 'discovered', now(), 'ssh-ed25519 AAAA'
         FROM objects WHERE kind = 'site'",
        "INSERT INTO ssh_certificates (serial, job_id, attempt, node_id, issued_at)
         SELECT 7, gen_random_uuid(), 1, id, now() FROM nodes",
    ] {
        psql(&url, statement);
    }
    tells(&ask(), "ok", "no node accepts");
    let revoke = "UPDATE ssh_certificates SET revoked_at = now()";
    psql(&url, revoke);
    tells(&ask(), "warn", "n1 accepts 1 SSH certificates");
    let hold = "UPDATE ssh_certificates SET held_host_key = 'ssh-ed25519 AAAA'";
    psql(&url, hold);
    tells(&ask(), "ok", "no node accepts");
}

/// A script for a wire between two new network namespaces. `$1` prepares the far end, and `$2` runs
/// at the near end.
const WIRE: &str = r#"
set -eu
ip link set lo up
ip link add near type veth peer name far
rm -f there # of the wire before, in the same folder
unshare --net sh -c 'echo there; exec sleep 60' > there &
other=$!
trap 'kill $other; wait $other || true' EXIT
for try in $(seq 100); do [ -s there ] && break; sleep 0.1; done
ip link set far netns $other
nsenter --net=/proc/$other/ns/net sh -c 'ip link set lo up; ip link set far up; ip address add 10.9.0.1/24 dev far'
ip link set near up
ip address add 10.9.0.2/24 dev near
export other
eval "$1"
eval "$2"
"#;

fn on_a_wire(home: &Path, before: &str, arguments: &str, code: i32) -> Value {
    let ask = format!("{MUSTER} doctor --json --as agent --address 10.9.0.2 {arguments}");
    let mut command = Command::new("unshare");
    command
        .args([
            "--net",
            "--kill-child",
            "bash",
            "-c",
            WIRE,
            "wire",
            before,
            &ask,
        ])
        .current_dir(home)
        .env_clear();
    run(
        command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home),
        "",
    )
    .expect(code)
    .json()
}

#[test]
fn another_dhcp_server_is_found_by_asking_it() {
    let home = folder();
    let alone = on_a_wire(home.path(), "", "--only dhcp", 0);
    assert!(
        alone
            .to_string()
            .contains("no other DHCP server answers on near"),
        "{alone}"
    );
    let dnsmasq = "nsenter --net=/proc/$other/ns/net dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --no-ping --user=root \
        --leasefile-ro --pid-file --interface=far --dhcp-range=10.9.0.50,10.9.0.60 2> dnsmasq.log & dnsmasq=$!; \
        trap 'kill $dnsmasq $other; wait' EXIT; \
        for try in $(seq 100); do grep -q 'DHCP, ' dnsmasq.log && break; sleep 0.1; done";
    let found = on_a_wire(home.path(), dnsmasq, "--only dhcp", 10);
    assert!(
        found
            .to_string()
            .contains("another DHCP server answers on near: 10.9.0.1"),
        "{found}"
    );
}

#[test]
fn an_address_that_is_missing_down_or_unplugged_is_told() {
    let home = folder();
    let sound = on_a_wire(home.path(), "", "--only addresses", 0);
    assert!(
        sound
            .to_string()
            .contains("10.9.0.2 is on near, which is up"),
        "{sound}"
    );
    for (fault, told) in [
        (
            "ip address del 10.9.0.2/24 dev near",
            "no interface of this machine has 10.9.0.2",
        ),
        ("ip link set near down", "near, which has 10.9.0.2, is down"),
        (
            "nsenter --net=/proc/$other/ns/net ip link set far down",
            "near, which has 10.9.0.2, has no carrier",
        ),
    ] {
        let found = on_a_wire(home.path(), fault, "--only addresses", 10);
        assert!(found.to_string().contains(told), "{found}");
    }
}

#[test]
fn what_the_agent_needs_is_looked_for() {
    let home = folder();
    let ipxe = home.path().join("ipxe");
    let node = home.path().join("muster-node");
    let (ipxe_dir, node_file) = (ipxe.display().to_string(), node.display().to_string());
    let ask = [
        "--as",
        "agent",
        "--only",
        "loaders",
        "--ipxe-dir",
        &ipxe_dir,
        "--muster-node",
        &node_file,
    ];
    let missing = doctor(home.path(), &ask, 10);
    tells(&missing, "fail", "undionly.kpxe");
    tells(&missing, "fail", &node_file);
    std::fs::create_dir(&ipxe).unwrap();
    for name in ["undionly.kpxe", "snponly.efi", "muster.ipxe"] {
        std::fs::write(ipxe.join(name), "x").unwrap();
    }
    std::fs::write(&node, "x").unwrap();
    assert!(
        doctor(home.path(), &ask, 0)
            .iter()
            .all(|(verdict, _)| verdict == "ok")
    );

    // An empty folder in PATH has no tools for the agent.
    let mut command = muster(home.path(), &["doctor", "--as", "agent", "--only", "tools"]);
    let said = run(command.env("PATH", home.path()), "")
        .expect(0)
        .says("ipmitool is not on the path");
    std::fs::write(home.path().join("ipmitool"), "x").unwrap();
    let mut command = muster(home.path(), &["doctor", "--as", "agent", "--only", "tools"]);
    let now = run(command.env("PATH", home.path()), "").expect(0);
    assert!(
        said.out.contains("WARN") && !now.out.contains("ipmitool is not on the path"),
        "{}",
        now.out
    );
}

#[test]
fn a_missing_time_service_is_told() {
    let home = folder();
    // No program of a test serves the time at this address.
    let ask = ["--as", "agent", "--only", "time", "--address", "127.9.9.9"];
    let found = doctor(home.path(), &ask, 0);
    tells(&found, "warn", "no time service answers at 127.9.9.9");
    let data = home.path().join("agent").display().to_string();
    let ask = ["--as", "agent", "--only", "time", "--agent-data-dir", &data];
    let found = doctor(home.path(), &ask, 0);
    tells(&found, "unknown", "no provisioning network");
}

#[test]
fn a_check_that_there_is_not_is_told_and_the_guide_names_them_all() {
    let home = folder();
    let said = run(
        &mut muster(home.path(), &["doctor", "--only", "weather"]),
        "",
    )
    .expect(2)
    .says("unknown check");
    let names = said
        .err
        .split("known checks: ")
        .nth(1)
        .unwrap()
        .trim()
        .to_owned();
    assert!(names.split(", ").count() >= 10, "{names}");
    let guide = file("docs/doctor.md");
    for name in names.split(", ") {
        assert!(
            guide.contains(&format!("| `{name}` |")),
            "docs/doctor.md has no row of {name}"
        );
    }
}

#[test]
fn a_site_without_networks_of_its_bmcs_is_named() {
    let server = Server::start();
    let home = server.dir.path();
    let ask = || {
        let arguments = [
            "doctor",
            "--json",
            "--as",
            "server",
            "--only",
            "networks",
            "--server",
            &server.url,
        ];
        let mut command = muster(home, &arguments);
        let token = server.token();
        run(command.env("MUSTER_TOKEN", token.trim()), "")
            .expect(0)
            .out
    };
    let objects = "
kind: site
name: lab
spec: {bmc_networks: [10.78.0.0/24]}
---
kind: credential
name: bmc
spec: {purpose: bmc, user: root, secret: calvin}
---
kind: node
name: n1
spec: {site: lab, power: {redfish: {bmc: {address: 10.78.0.1, credential: bmc}}}, macs: [{mac: '52:54:00:00:00:01'}], accept: false}
";
    server.typed(&["apply", "-f", "-", "-q"], objects).expect(0);
    let sound = ask();
    assert!(
        sound.contains("every BMC and console is inside")
            && sound.contains("1 credentials of BMCs name no networks"),
        "{sound}"
    );
    let database = server.database("muster");
    for (networks, told) in [
        ("[]", "the site lab declares no bmc_networks"),
        (
            r#"["10.79.0.0/24"]"#,
            "nodes are outside of the bmc_networks of the site lab (10.79.0.0/24)",
        ),
    ] {
        let spec = format!(r#"{{"bmc_networks": {networks}}}"#);
        psql(
            &database,
            &format!("UPDATE objects SET spec = '{spec}' WHERE kind = 'site'"),
        );
        let found = ask();
        assert!(found.contains(told) && found.contains("n1"), "{found}");
    }
    let special =
        r#"UPDATE nodes SET spec = jsonb_set(spec, '{power,redfish,bmc,address}', '"127.0.0.1"')"#;
    psql(&database, special);
    let found = ask();
    assert!(
        found.contains("does not connect to loopback") && !found.contains("are outside of"),
        "{found}"
    );
}
