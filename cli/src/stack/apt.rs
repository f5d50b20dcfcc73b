//! Runs apt with a separate root: the mirror's index and the image's package state, and of the host
//! only the way to the mirror.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_core::images::ImageManifest;
use tokio::process::Command;

use super::Versions;

/// Time limit of a run of apt. Downloads of a GPU stack have gigabytes.
const DEADLINE: Duration = Duration::from_hours(1);
/// Most lines repeated from a failed program.
const REASONS: usize = 20;
/// Code names of the supported releases.
const SUITES: [(&str, &str, &str); 2] = [("debian", "12", "bookworm"), ("debian", "13", "trixie")];

/// Directory of Debian's own keys on a Debian host.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A prepared root.
#[derive(Debug)]
pub(super) struct PrivateApt {
    root: PathBuf,
    arch: String,
}

/// Returns the code name of the image's release. `None` for an unknown release.
pub(super) fn find_suite(image: &ImageManifest) -> Option<&'static str> {
    let version = image.os_version.split('.').next();
    let is_release = |os: &str, release: &str| os == image.os && version == Some(release);
    let known = SUITES
        .iter()
        .find(|(os, release, _)| is_release(os, release));
    known.map(|(_, _, suite)| *suite)
}

/// Returns source lines for the image's release: the given mirrors, or the sources of the host's
/// apt, with the image's suite; then the additional sources.
pub(super) async fn sources(
    image: &ImageManifest,
    mirrors: &[String],
    also: &[String],
    keyring: Option<&Path>,
) -> anyhow::Result<String> {
    let suite = find_suite(image).with_context(|| {
        format!(
            "the mirror layout of {} {} is unknown",
            image.os, image.os_version
        )
    })?;
    let signed = match keyring {
        Some(keyring) if !keyring.exists() => {
            bail!(
                "the keyring {} does not exist; install the keyring, or name the mirror's keyring by --keyring",
                keyring.display()
            )
        }
        Some(keyring) => format!("[signed-by={}] ", keyring.display()),
        None if Path::new(KEYRING).exists() => format!("[signed-by={KEYRING}] "),
        // The host's own keys, used by apt for all checks.
        None => String::new(),
    };
    if let Some(in_place) = mirrors
        .iter()
        .chain(also)
        .find(|line| line.contains(" file:"))
    {
        bail!(
            "{in_place}: apt uses a file: repository in place, but the bundle needs copies of the packages; write copy: instead of file:"
        );
    }
    // A mirror may be given as a complete source line, for private repositories.
    let line = |mirror: &String| match mirror.starts_with("deb ") {
        true => format!("{mirror}\n"),
        false => format!(
            "deb {signed}{mirror} {suite} main\ndeb {signed}{mirror} {suite}-updates main\n"
        ),
    };
    let own = match mirrors.is_empty() {
        true => of_host(suite, &signed).await?,
        false => mirrors.iter().map(line).collect(),
    };
    let beside: String = also.iter().map(line).collect();
    Ok(own + &beside)
}

/// Returns the sources of the host's apt with the image's suite.
async fn of_host(suite: &str, signed: &str) -> anyhow::Result<String> {
    let mut command = Command::new("apt-get");
    command.args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]);
    let targets = output(command, "apt-get indextargets").await?;
    let host = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .unwrap_or(suite);
    let mut lines: Vec<String> = targets
        .lines()
        .filter_map(|line| {
            let (uri, rest) = line.split_once(' ')?;
            let pocket = rest.strip_prefix(host)?;
            let ours = [" ", "-updates ", "-security "]
                .iter()
                .any(|known| pocket.starts_with(known));
            ours.then(|| format!("deb {signed}{uri} {suite}{pocket}"))
        })
        .collect();
    lines.sort();
    lines.dedup();
    match lines.is_empty() {
        true => {
            bail!("the host's apt has no Debian source; name a mirror with --mirror")
        }
        false => Ok(lines.join("\n") + "\n"),
    }
}

impl PrivateApt {
    /// Creates the root and fetches the index. apt checks the signatures. Without a network, an
    /// existing index is used.
    pub(super) async fn prepare(root: &Path, arch: &str, sources: &str) -> anyhow::Result<Self> {
        for sub in ["lists/partial", "archives/partial", "cache"] {
            let path = root.join(sub);
            std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        }
        let root = root
            .canonicalize()
            .with_context(|| root.display().to_string())?;
        let apt = Self {
            root,
            arch: arch.into(),
        };
        let same = std::fs::read_to_string(apt.root.join("sources.list"))
            .is_ok_and(|present| present == sources);
        std::fs::write(apt.root.join("sources.list"), sources)?;
        apt.set_status("")?;
        apt.set_preferences("")?;
        let fetched = apt
            .get(&["-o", "APT::Update::Error-Mode=any", "update"])
            .await;
        match fetched {
            Ok(_) => Ok(apt),
            Err(error) if same && super::index::read_lists(&apt.lists()).is_ok() => {
                eprintln!(
                    "muster: the package index cannot be refreshed; the existing index is used: {error:#}"
                );
                Ok(apt)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn lists(&self) -> PathBuf {
        self.root.join("lists")
    }

    /// Returns the path of a downloaded package.
    pub(super) fn archive(&self, name: &str, version: &str, arch: &str) -> PathBuf {
        self.root
            .join("archives")
            .join(format!("{name}_{}_{arch}.deb", version.replace(':', "%3a")))
    }

    /// The installed packages of this root.
    pub(super) fn set_status(&self, status: &str) -> anyhow::Result<()> {
        let path = self.root.join("status");
        std::fs::write(&path, status).with_context(|| path.display().to_string())
    }

    /// The preferences of this root (apt_preferences(5)).
    pub(super) fn set_preferences(&self, preferences: &str) -> anyhow::Result<()> {
        let path = self.root.join("preferences");
        std::fs::write(&path, preferences).with_context(|| path.display().to_string())
    }

    /// Returns the preferred version of each package: the newest in the sources without a pin.
    pub(super) async fn newest(&self, names: &[&str]) -> anyhow::Result<Versions> {
        let mut command = self.command("apt-cache");
        command.arg("policy").args(names);
        let text = output(command, "apt-cache policy").await?;
        let mut versions = Versions::new();
        let mut name = "";
        for line in text.lines() {
            if let Some(line) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
                name = line;
            } else if let Some(candidate) = line
                .trim()
                .strip_prefix("Candidate: ")
                .filter(|version| *version != "(none)")
            {
                versions.insert(name.to_owned(), candidate.to_owned());
            }
        }
        Ok(versions)
    }

    /// Simulates an installation, and returns apt's output.
    pub(super) async fn simulate(
        &self,
        packages: &Versions,
        absent: &[String],
    ) -> anyhow::Result<String> {
        self.install("--simulate", packages, absent).await
    }

    /// Downloads the packages of an installation. apt compares each with the signed index.
    pub(super) async fn download(
        &self,
        packages: &Versions,
        absent: &[String],
    ) -> anyhow::Result<()> {
        self.install("--download-only", packages, absent)
            .await
            .map(drop)
    }

    /// Lists apt's package indexes, one line each, in this format.
    pub(super) async fn indexes(&self, format: &str) -> anyhow::Result<String> {
        let mut command = self.command("apt-get");
        command.args(["indextargets", "--format", format, "Created-By: Packages"]);
        output(command, "apt-get indextargets").await
    }

    async fn install(
        &self,
        how: &str,
        packages: &Versions,
        absent: &[String],
    ) -> anyhow::Result<String> {
        let targets = targets(packages, absent);
        // Reinstall: packages of the image also belong to the bundle.
        let mut arguments = vec![
            "-y",
            "--no-install-recommends",
            "--allow-downgrades",
            "--reinstall",
            how,
            "install",
        ];
        arguments.extend(targets.iter().map(String::as_str));
        self.get(&arguments).await
    }

    async fn get(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command("apt-get");
        // Not more quiet: apt would leave out the dependencies that are not met.
        command.args(["-q=1"]).args(arguments);
        output(command, &format!("apt-get {}", arguments.join(" "))).await
    }

    fn command(&self, program: &str) -> Command {
        let root = self.root.display();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::SourceList={root}/sources.list"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::Etc::Preferences={root}/preferences"),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            format!("Dir::State={root}"),
            format!("Dir::State::lists={root}/lists"),
            format!("Dir::State::status={root}/status"),
            format!("Dir::State::extended_states={root}/extended_states"),
            format!("Dir::Cache={root}/cache"),
            format!("Dir::Cache::archives={root}/archives"),
            format!("APT::Architecture={}", self.arch),
            format!("APT::Architectures::={}", self.arch),
            "APT::Sandbox::User=root".to_owned(),
            "APT::Keep-Downloaded-Packages=true".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::GzipIndexes=false".to_owned(),
            "Acquire::Retries=3".to_owned(),
            "Acquire::http::Timeout=60".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}

fn targets(packages: &Versions, absent: &[String]) -> Vec<String> {
    let wanted = packages
        .iter()
        .map(|(name, version)| format!("{name}={version}"));
    wanted
        .chain(absent.iter().map(|name| format!("{name}-")))
        .collect()
}

/// Returns the first lines of a failed program, with the number of further lines.
fn list_reasons(said: &[impl AsRef<str>]) -> String {
    let lines = said.iter().flat_map(|said| said.as_ref().lines());
    let mut lines = lines.filter(|line| !line.ends_with("..."));
    let mut why = String::new();
    for line in lines.by_ref().take(REASONS) {
        write!(why, "\n  {line}").expect("writing to a string cannot fail");
    }
    match lines.count() {
        0 => {}
        more => write!(why, "\n  and {more} more lines").expect("writing to a string cannot fail"),
    }
    why
}

/// Returns the standard output of a successful program.
async fn output(mut command: Command, what: &str) -> anyhow::Result<String> {
    command
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = output
        .with_context(|| format!("{what} did not end within {DEADLINE:?}"))?
        .with_context(|| what.to_owned())?;
    match output.status.success() {
        true => {
            String::from_utf8(output.stdout).with_context(|| format!("{what} printed no UTF-8"))
        }
        false => {
            let said = [&output.stderr, &output.stdout].map(|said| String::from_utf8_lossy(said));
            bail!("{what} failed ({}):{}", output.status, list_reasons(&said))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::list_reasons;

    #[test]
    fn lines_of_a_failed_program_are_cut_with_their_number() {
        let lines = |count: usize| "E: broken\n".repeat(count);
        let short = list_reasons(&[lines(18), "Reading...\nand so on\nE: end\n".to_owned()]);
        assert!(short.ends_with("\n  and so on\n  E: end"), "{short}");
        assert_eq!(short.lines().count(), 21, "20 lines after an empty one");
        let long = list_reasons(&[lines(23)]);
        assert!(long.ends_with("E: broken\n  and 3 more lines"), "{long}");
        assert_eq!(long.lines().count(), 22);
    }
}
