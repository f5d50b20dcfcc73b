//! Terraform itself, with the provider as it is built here, against the real server and a database of the test's own.

mod claims; // Claims that wait, are late, and outlive what asked for them
mod documented; // The guide and the example fleet
mod effects; // What a plan says of machines, and what stops it
mod kinds; // Every resource through its life

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::support::server::Server;

const PROVIDER: &str = env!("CARGO_BIN_EXE_muster-test-provider");
/// Longer than any call here on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);
const HEAD: &str = "terraform {\n  required_providers {\n    muster = {\n      source = \"muster/muster\"\n    }\n  }\n}\n";

/// A directory with a configuration and its state, and the server that it is applied to.
pub(crate) struct Terraform {
    dir: tempfile::TempDir,
    url: String,
    token: String,
}

/// What Terraform printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl Printed {
    /// Fails the test unless it ended so.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}", self.text);
        self
    }

    /// Fails the test unless it printed this.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        // Terraform breaks lines where it likes, and draws a frame around what it says.
        let flat = |text: &str| {
            text.replace(['│', '\n'], " ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(
            flat(&self.text).contains(&flat(words)),
            "not said: {words}\n{}",
            self.text
        );
        self
    }
}

impl Terraform {
    /// An empty configuration for a server on a socket.
    pub(crate) async fn start(server: &Server) -> Self {
        let token = server.admin().await.token.unwrap();
        Self::at(&server.listen().await, &token)
    }

    /// The same for a server at an address.
    pub(crate) fn at(url: &str, token: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plugins = dir.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        std::os::unix::fs::symlink(PROVIDER, plugins.join("terraform-provider-muster")).unwrap();
        let overrides = format!(
            "provider_installation {{\n  dev_overrides {{\n    \"muster/muster\" = {plugins:?}\n  }}\n  direct {{}}\n}}\n"
        );
        std::fs::write(dir.path().join("cli.tfrc"), overrides).unwrap();
        Self {
            dir,
            url: url.to_owned(),
            token: token.to_owned(),
        }
    }

    /// Another directory for the same server.
    pub(crate) fn beside(&self) -> Self {
        Self::at(&self.url, &self.token)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Whom Terraform acts as.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The configuration from here on, below the block that names the provider.
    pub(crate) fn write(&self, configuration: &str) {
        std::fs::write(self.path("main.tf"), format!("{HEAD}{configuration}")).unwrap();
    }

    /// The state file; empty when there is none.
    pub(crate) fn state(&self) -> String {
        std::fs::read_to_string(self.path("terraform.tfstate")).unwrap_or_default()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("terraform");
        command
            .args(args)
            .arg("-no-color")
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
            .env("TF_CLI_CONFIG_FILE", self.path("cli.tfrc"))
            .env("CHECKPOINT_DISABLE", "1");
        command
            .env("TF_IN_AUTOMATION", "1")
            .env("MUSTER_URL", &self.url)
            .env("MUSTER_TOKEN", &self.token);
        command.env("TMPDIR", self.dir.path()).kill_on_drop(true);
        command
    }

    /// Starts it, for tests that do not let it end.
    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        let missing = "terraform is not installed: .ci/install says how to get it";
        self.command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(missing)
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Printed {
        self.finish(self.command(args)).await
    }

    /// The same, with everything that Terraform logs of it in what it printed.
    pub(crate) async fn run_logged(&self, args: &[&str]) -> Printed {
        let mut command = self.command(args);
        command.env("TF_LOG", "TRACE");
        self.finish(command).await
    }

    async fn finish(&self, mut command: Command) -> Printed {
        let missing = "terraform is not installed: .ci/install says how to get it";
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{command:?} does not end"))
            .expect(missing);
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Printed {
            code: output.status.code(),
            text,
        }
    }

    pub(crate) async fn apply(&self) -> Printed {
        self.run(&["apply", "-auto-approve", "-input=false"]).await
    }

    /// 0 is an empty plan, 2 one that changes something.
    pub(crate) async fn plan(&self) -> Printed {
        self.run(&["plan", "-detailed-exitcode", "-input=false"])
            .await
    }

    pub(crate) async fn destroy(&self) -> Printed {
        self.run(&["destroy", "-auto-approve", "-input=false"])
            .await
    }
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// What the provider says that it has, against what the tests of this folder apply.
#[tokio::test]
async fn every_resource_and_data_source_is_applied_by_a_test() {
    let server = Server::start().await;
    let terraform = Terraform::start(&server).await;
    terraform.write("");
    let schema = terraform
        .run(&["providers", "schema", "-json"])
        .await
        .expect(0)
        .text;
    let schema: serde_json::Value =
        serde_json::from_str(&schema[schema.find('{').unwrap()..]).unwrap();
    let (_, provider) = schema["provider_schemas"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let applied = [
        kinds::fleet(),
        kinds::sources(),
        claims::claim("c1", "n1", ""),
        claims::OBSERVED.to_owned(),
    ]
    .concat();
    for (sort, block, least) in [
        ("resource_schemas", "resource", 16),
        ("data_source_schemas", "data", 35),
    ] {
        let known: BTreeSet<&str> = provider[sort]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let begin = format!("{block} \"");
        let used = applied
            .lines()
            .filter_map(|line| line.strip_prefix(&begin)?.split('"').next());
        assert_eq!(
            used.collect::<BTreeSet<_>>(),
            known,
            "a {block} that no test applies, or that there is not"
        );
        assert!(known.len() >= least, "{}", known.len());
    }
}
