//! Allowed content of a converge plan. Words of a plan are written to configuration files and argv,
//! so each word must match the grammar of the target file.

use std::collections::{BTreeMap, BTreeSet};

use super::{ConvergePlan, LimitItem, LockedPackage, ServiceItem};

/// Files written by Muster itself. A stack must not own them.
pub const MANAGED: [&str; 14] = [
    "/var/lib/muster/apt/sources.list",
    "/etc/apt/sources.list.d/muster.list",
    "/etc/apt/preferences.d/muster",
    "/etc/sysctl.d/90-muster.conf",
    "/etc/modules-load.d/muster.conf",
    "/etc/modprobe.d/muster.conf",
    "/etc/security/limits.d/90-muster.conf",
    "/etc/default/grub.d/50-muster.cfg",
    "/etc/ssh/muster_user_ca.pub",
    "/etc/ssh/muster_principals",
    "/etc/ssh/muster_revoked_keys",
    "/etc/ssh/sshd_config.d/00-muster-revoked.conf",
    "/etc/muster/marker.json",
    "/usr/sbin/policy-rc.d",
];

/// The words of a plan, or of a stack without a plan, written to configuration files and argv.
pub(super) struct Words<'a> {
    pub packages: &'a [LockedPackage],
    pub absent: &'a [String],
    pub sysctl: &'a BTreeMap<String, String>,
    pub modules_load: &'a [String],
    pub modules_blacklist: &'a [String],
    pub kernel_args: &'a [String],
    pub limits: &'a [LimitItem],
    pub services: &'a [ServiceItem],
    /// Path, mode, owner and group of each file.
    pub files: Vec<[&'a str; 4]>,
}

impl ConvergePlan {
    /// Returns every word of the plan forbidden in a node's configuration, as sentences. Empty for
    /// a valid plan.
    pub fn problems(&self) -> Vec<String> {
        let files = self
            .files
            .iter()
            .map(|file| [file.path.as_str(), &file.mode, &file.owner, &file.group])
            .collect();
        let words = Words {
            packages: &self.packages,
            absent: &self.absent,
            sysctl: &self.sysctl,
            modules_load: &self.modules_load,
            modules_blacklist: &self.modules_blacklist,
            kernel_args: &self.kernel_args,
            limits: &self.limits,
            services: &self.services,
            files,
        };
        let mut problems: Vec<String> = words
            .problems()
            .into_iter()
            .map(|(_, problem)| problem)
            .collect();
        let mut need = |holds: bool, what: &str, value: &str| {
            if !holds {
                problems.push(format!("{what} {value:?} is not allowed"));
            }
        };
        let repository = self
            .repository
            .strip_prefix("http://")
            .is_some_and(|rest| has_only(rest, "-._~:/[]"));
        need(repository, "repository", &self.repository);
        need(
            has_only(&self.principal, "-:"),
            "principal",
            &self.principal,
        );
        // During a rotation, the former CA and the new CA.
        let lines: Vec<&str> = self.user_ca.trim().lines().collect();
        let keys = (1..=2).contains(&lines.len()) && lines.iter().all(|line| is_public_key(line));
        need(keys, "user CA", &self.user_ca);
        problems
    }
}

/// Adds a problem, unless the value is allowed.
fn note<'a>(problems: &mut Vec<(&'a str, String)>, holds: bool, what: &str, value: &'a str) {
    if !holds {
        problems.push((value, format!("{what} {value:?} is not allowed")));
    }
}

impl<'a> Words<'a> {
    /// Returns each forbidden word with a description of the problem.
    pub(super) fn problems(&self) -> Vec<(&'a str, String)> {
        let mut problems = Vec::new();
        self.check_packages(&mut problems);
        let mut need =
            |holds: bool, what: &str, value: &'a str| note(&mut problems, holds, what, value);
        for (key, value) in self.sysctl {
            need(
                has_only(key, "-._/:") && !key.contains("..") && !key.starts_with(['/', '.']),
                "sysctl",
                key,
            );
            need(is_line(value), "sysctl value", value);
        }
        for module in self.modules_load.iter().chain(self.modules_blacklist) {
            need(has_only(module, "-_"), "module", module);
        }
        for argument in self.kernel_args {
            // The argument is written between the quotes of a shell fragment, so shell
            // metacharacters are rejected.
            need(
                has_only(argument, "-._:,=/@%+"),
                "kernel argument",
                argument,
            );
        }
        for limit in self.limits {
            need(
                has_only(&limit.domain, "-._*@%:"),
                "limit domain",
                &limit.domain,
            );
            need(
                ["soft", "hard", "-"].contains(&limit.kind.as_str()),
                "limit type",
                &limit.kind,
            );
            need(has_only(&limit.item, "_"), "limit item", &limit.item);
            need(has_only(&limit.value, "-"), "limit value", &limit.value);
        }
        for service in self.services {
            need(
                has_only(&service.name, "-._:@\\") && !service.name.starts_with('-'),
                "service",
                &service.name,
            );
        }
        self.check_files(&mut problems);
        problems
    }

    fn check_packages(&self, problems: &mut Vec<(&'a str, String)>) {
        let mut need = |holds: bool, what: &str, value: &'a str| note(problems, holds, what, value);
        for package in self.packages {
            need(is_package(&package.name), "package", &package.name);
            need(
                is_version(&package.version),
                "package version",
                &package.version,
            );
            need(
                has_only(&package.filename, "-._~+%:") && package.filename.ends_with(".deb"),
                "file name",
                &package.filename,
            );
        }
        for name in self.absent {
            need(is_package(name), "package", name);
            need(
                self.packages.iter().all(|package| package.name != *name),
                "wanted and unwanted package",
                name,
            );
        }
    }

    fn check_files(&self, problems: &mut Vec<(&'a str, String)>) {
        let mut seen = BTreeSet::new();
        for &[path, mode, owner, group] in &self.files {
            if !is_path(path) || MANAGED.contains(&path) {
                problems.push((path, format!("file {path:?} is not allowed")));
            }
            if !seen.insert(path) {
                problems.push((path, format!("file {path:?} is there twice")));
            }
            if parse_mode(mode).is_none() {
                problems.push((
                    path,
                    format!("file {path:?}: mode {mode:?} is not octal, such as 0644"),
                ));
            }
            for name in [owner, group] {
                if !has_only(name, "-_.") || name.starts_with('-') {
                    problems.push((
                        path,
                        format!("file {path:?}: owner or group {name:?} is not allowed"),
                    ));
                }
            }
        }
    }
}

/// Parses permission bits, including set-id and sticky bits.
fn parse_mode(mode: &str) -> Option<u32> {
    let octal = (3..=4).contains(&mode.len()) && mode.bytes().all(|b| matches!(b, b'0'..=b'7'));
    octal.then(|| u32::from_str_radix(mode, 8).ok()).flatten()
}

impl super::PlannedFile {
    /// Returns the permission bits, including set-id and sticky bits.
    pub fn mode(&self) -> Option<u32> {
        parse_mode(&self.mode)
    }
}

/// Returns whether the text has 1 to 500 characters, all ASCII letters, digits, or listed in
/// `others`.
fn has_only(text: &str, others: &str) -> bool {
    (1..=500).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Debian policy 5.6.1.
pub(super) fn is_package(name: &str) -> bool {
    has_only(name, "+-.")
        && name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// Debian policy 5.6.12.
pub(super) fn is_version(version: &str) -> bool {
    has_only(version, ".+-~:") && version.starts_with(|c: char| c.is_ascii_digit())
}

fn is_line(text: &str) -> bool {
    (1..=4096).contains(&text.len()) && text.chars().all(|c| !c.is_control() || c == '\t')
}

/// Returns whether the line is an OpenSSH public key. A comment or an empty line would leave a node
/// without possible logins.
fn is_public_key(line: &str) -> bool {
    let mut words = line.split(' ');
    let (kind, key) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    is_line(line)
        && has_only(kind, "-.@")
        && (1..=4096).contains(&key.len())
        && key.bytes().all(is_base64)
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// Returns whether the path is absolute, without `.` and `..`, and outside the kernel's file
/// systems.
fn is_path(path: &str) -> bool {
    let clean = path
        .split('/')
        .skip(1)
        .all(|part| !part.is_empty() && part != "." && part != "..");
    let kernels = ["/proc/", "/sys/", "/dev/"]
        .iter()
        .any(|prefix| path.starts_with(prefix));
    path.starts_with('/')
        && path.len() <= 1024
        && clean
        && !kernels
        && !path.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use crate::stacks::PlannedFile;
    use crate::values::Digest;

    use super::*;

    fn plan() -> ConvergePlan {
        let nothing = Digest::of(b"");
        serde_json::from_value(serde_json::json!({
            "lock": nothing, "repository": "http://10.77.0.1:8090/boot/v1/bundle/00", "packages": [], "absent": [],
            "files": [], "sysctl": {}, "modules_load": [], "modules_blacklist": [], "kernel_args": [], "limits": [],
            "services": [], "principal": "muster:0197b0f2-9a3c-7000-8000-000000000000:1", "user_ca": "ssh-ed25519 AAAA",
            "marker": {"protocol": 1, "node": "0197b0f2-9a3c-7000-8000-000000000000",
                       "claim": "0197b0f2-9a3c-7000-8000-000000000001", "epoch": 1, "image": nothing},
        }))
        .expect("a plan")
    }

    fn file(path: &str) -> PlannedFile {
        let root = || "root".to_owned();
        PlannedFile {
            path: path.into(),
            mode: "0644".into(),
            owner: root(),
            group: root(),
            content: String::new(),
            secret: false,
        }
    }

    #[test]
    fn a_sound_plan_has_no_problems() {
        let mut plan = plan();
        let package = |name: &str| LockedPackage {
            name: name.into(),
            version: "1:2.3~rc1+dfsg-4".into(),
            arch: "amd64".into(),
            size: 1,
            sha256: Digest::of(b""),
            filename: format!("{name}_1%3a2.3~rc1+dfsg-4_amd64.deb"),
        };
        plan.packages = vec![package("libstdc++6"), package("slurmd")];
        plan.absent = vec!["unattended-upgrades".into()];
        plan.sysctl
            .insert("net.ipv4.conf.eth0/1.forwarding".into(), "1 2\t3".into());
        plan.kernel_args = vec!["isolcpus=managed_irq,domain,2-5".into(), "quiet".into()];
        let [domain, kind, item, value] = ["*", "-", "memlock", "unlimited"].map(String::from);
        plan.limits = vec![LimitItem {
            domain,
            kind,
            item,
            value,
        }];
        plan.services = vec![ServiceItem {
            name: "getty@tty1.service".into(),
            enabled: true,
            running: true,
            restart_on: vec![],
        }];
        plan.files = vec![file("/etc/slurm/slurm.conf")];
        assert_eq!(plan.problems(), Vec::<String>::new());
        plan.user_ca = "ssh-ed25519 AAAA muster-user-ca\nssh-ed25519 BBBB muster-user-ca".into();
        assert_eq!(plan.problems(), Vec::<String>::new());
    }

    #[test]
    fn whatever_could_break_out_of_its_file_is_refused() {
        type Break = (&'static str, fn(&mut ConvergePlan));
        let broken: [Break; 16] = [
            ("shell", |plan| plan.kernel_args = vec!["a$(id)".into()]),
            ("quote", |plan| plan.kernel_args = vec!["a\"b".into()]),
            ("newline", |plan| {
                _ = plan
                    .sysctl
                    .insert("vm.swappiness".into(), "1\nkernel.x=1".into())
            }),
            ("comment", |plan| plan.user_ca = "# ssh-ed25519 AAAA".into()),
            ("nobody", |plan| plan.user_ca = "  ".into()),
            ("command", |plan| {
                plan.user_ca = "ssh-ed25519 AAAA\ncommand=\"id\" ssh-ed25519 BBBB".into();
            }),
            ("many", |plan| {
                plan.user_ca = ["ssh-ed25519 AAAA"; 3].join("\n")
            }),
            ("climb", |plan| {
                _ = plan.sysctl.insert("../../etc/passwd".into(), "1".into())
            }),
            ("option", |plan| plan.absent = vec!["-o".into()]),
            ("unit", |plan| {
                plan.services = vec![ServiceItem {
                    name: "--now".into(),
                    enabled: true,
                    running: true,
                    restart_on: vec![],
                }]
            }),
            ("relative", |plan| plan.files = vec![file("etc/passwd")]),
            ("detour", |plan| plan.files = vec![file("/etc/../root/x")]),
            ("kernel's", |plan| {
                plan.files = vec![file("/proc/sysrq-trigger")]
            }),
            ("ours", |plan| {
                plan.files = vec![file("/etc/muster/marker.json")]
            }),
            ("twice", |plan| {
                plan.files = vec![file("/etc/a"), file("/etc/a")]
            }),
            ("repository", |plan| {
                plan.repository = "http://a/ ./\ndeb http://b".into()
            }),
        ];
        for (name, breaks) in broken {
            let mut plan = plan();
            breaks(&mut plan);
            assert_eq!(plan.problems().len(), 1, "{name}: {:?}", plan.problems());
        }
    }
}
