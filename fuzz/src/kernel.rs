//! Files of a stack read by the kernel, GRUB and other readers of lines; and the command line read by
//! the live image. A plan without problems writes exactly its words: no word splits, no line ends
//! early, no word has a meaning for a shell.

use muster_core::ids::{ClaimId, NodeId};
use muster_core::stacks::{ConvergePlan, LimitItem};
use muster_core::values::Digest;
use muster_core::wire::node::Marker;
use muster_node::converge::managed;
use muster_node::live::boot::Boot;

/// The first byte chooses between a command line and a plan. A line of a plan begins with the letter
/// of its kind.
pub(crate) fn run(mut data: &[u8]) {
    let is_plan = crate::steer(&mut data) % 2 == 1;
    let text = String::from_utf8_lossy(data);
    match is_plan {
        true => plan(&text),
        false => command_line(&text),
    }
}

fn command_line(text: &str) {
    let Ok(boot) = Boot::parse(text) else { return };
    assert!(
        boot.url.starts_with("http://") && !boot.url.contains(char::is_whitespace),
        "{boot:?}"
    );
    assert!(
        boot.nonce.len() == 32 && boot.nonce.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{boot:?}"
    );
}

/// Pieces end with a NUL, so a piece may have the end of a line inside.
fn plan(text: &str) {
    let mut plan = empty();
    for piece in text.split('\0') {
        let mut characters = piece.chars();
        let (kind, value) = (characters.next(), characters.as_str().to_owned());
        let (key, rest) = value.split_once('=').unwrap_or((&value, ""));
        match kind {
            Some('k') => plan.kernel_args.push(value),
            Some('s') => _ = plan.sysctl.insert(key.to_owned(), rest.to_owned()),
            Some('m') => plan.modules_load.push(value),
            Some('b') => plan.modules_blacklist.push(value),
            Some('l') => plan.limits.push(LimitItem {
                domain: key.to_owned(),
                kind: "hard".to_owned(),
                item: "memlock".to_owned(),
                value: rest.to_owned(),
            }),
            Some('p') => plan.principal = value,
            Some('u') => plan.user_ca = value,
            Some('r') => plan.repository = value,
            Some('a') => plan.absent.push(value),
            _ => {}
        }
    }
    if !plan.problems().is_empty() {
        return;
    }
    let files = managed::files(&plan).expect("a plan without problems can be written");
    let lines = |path: &str| -> Vec<String> {
        let file = files
            .iter()
            .find(|file| file.path == path)
            .expect("the file is always among them");
        let text = String::from_utf8(file.content.clone().unwrap_or_default()).expect("it is text");
        // As the readers of the files do: by line, without comments and surrounding space.
        text.split('\n')
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    grub(&plan, &lines("/etc/default/grub.d/50-muster.cfg"));
    let sysctl: Vec<String> = plan
        .sysctl
        .iter()
        .map(|(key, value)| format!("{key} = {value}").trim().to_owned())
        .collect();
    assert_eq!(lines("/etc/sysctl.d/90-muster.conf"), sysctl);
    assert_eq!(lines("/etc/modules-load.d/muster.conf"), plan.modules_load);
    assert_eq!(
        lines("/etc/modprobe.d/muster.conf").len(),
        2 * plan.modules_blacklist.len()
    );
    let limits: Vec<String> = plan
        .limits
        .iter()
        .map(|limit| format!("{} hard memlock {}", limit.domain, limit.value))
        .collect();
    assert_eq!(lines("/etc/security/limits.d/90-muster.conf"), limits);
    assert_eq!(
        lines("/etc/ssh/muster_principals"),
        [plan.principal.as_str()]
    );
    let cas: Vec<&str> = plan.user_ca.trim().lines().map(str::trim).collect();
    assert_eq!(lines("/etc/ssh/muster_user_ca.pub"), cas);
}

fn grub(plan: &ConvergePlan, lines: &[String]) {
    if plan.kernel_args.is_empty() {
        return assert!(lines.is_empty());
    }
    let [line] = lines else { panic!("{lines:?}") };
    let inner = line
        .strip_prefix("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX ")
        .and_then(|line| line.strip_suffix('"'));
    let inner = inner.unwrap_or_else(|| panic!("{line:?}"));
    assert!(
        !inner.contains(['"', '$', '`', '\\']),
        "a shell would read more than words: {line:?}"
    );
    assert_eq!(
        inner.split_whitespace().collect::<Vec<_>>(),
        plan.kernel_args
    );
}

fn empty() -> ConvergePlan {
    let nothing = Digest([0; 32]);
    let id = uuid::Uuid::from_bytes([1; 16]);
    ConvergePlan {
        lock: nothing,
        repository: "http://10.77.0.1:8090/boot/v1/bundle/00".to_owned(),
        packages: Vec::new(),
        absent: Vec::new(),
        files: Vec::new(),
        sysctl: Default::default(),
        modules_load: Vec::new(),
        modules_blacklist: Vec::new(),
        kernel_args: Vec::new(),
        limits: Vec::new(),
        services: Vec::new(),
        cdi: false,
        principal: "muster:n:1".to_owned(),
        user_ca: "ssh-ed25519 AAAA".to_owned(),
        marker: Marker {
            protocol: 1,
            node: NodeId(id),
            claim: ClaimId(id),
            epoch: 1,
            image: nothing,
        },
        dry_run: false,
    }
}
