//! Directories and files of secrets: present, accessible for the program, closed for other users.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use muster_server::keys::{Create, MasterKey};
use nix::unistd::{AccessFlags, access};

use super::{Found, Host, Part};

pub(super) fn check(host: &Host) -> Vec<Found> {
    let args = &host.args;
    let mut found = Vec::new();
    if host.is(Part::Server) {
        found.push(directory(&args.data_dir, "muster server"));
        found.push(key(&args.key_file));
        found.extend(args.former_key_file.as_deref().map(key));
    }
    if host.is(Part::Agent) {
        found.push(directory(&args.agent_data_dir, "muster agent"));
        found.extend(args.agent_token_file.as_deref().map(token));
    }
    found
}

fn key(file: &Path) -> Found {
    match MasterKey::load(file, Create::Never) {
        Ok(_) => Found::ok(format!(
            "the key file {} has 32 bytes and is private",
            file.display()
        )),
        Err(error) => Found::fail(format!("{error:#}"), remedy(file)),
    }
}

fn remedy(key: &Path) -> String {
    let file = key.display();
    match key.exists() {
        true => format!(
            "chmod 600 {file}; chown it to the server's user; it must be the 32 bytes that the other replicas have"
        ),
        false => {
            format!(
                "copy it from another replica, or for a new fleet: (umask 077; head -c 32 /dev/urandom > {file})"
            )
        }
    }
}

fn directory(path: &Path, program: &str) -> Found {
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Found::warn(
            format!("{shown} is not there; `{program}` makes it if it may"),
            format!("mkdir -m 750 {shown}, and chown it to the user that `{program}` runs as"),
        ),
        Err(error) => Found::fail(
            format!("{shown}: {error}"),
            format!("let the user that `{program}` runs as into it"),
        ),
        Ok(data) if !data.is_dir() => Found::fail(
            format!("{shown} is no directory"),
            "move it away, or choose another --data-dir",
        ),
        Ok(_) if access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_err() => Found::fail(
            format!("{shown} cannot be written by this user"),
            format!("chown it to the user that `{program}` runs as"),
        ),
        Ok(data) if data.mode() & 0o002 != 0 => Found::fail(
            format!("everybody may write into {shown}"),
            format!("chmod o-w {shown}"),
        ),
        Ok(_) => Found::ok(format!("{shown} can be written")),
    }
}

fn token(path: &Path) -> Found {
    let shown = path.display();
    let enrol = "enrol the agent: muster agent enrol SITE NAME > FILE, mode 600";
    match (std::fs::metadata(path), std::fs::read_to_string(path)) {
        (Err(error), _) | (_, Err(error)) => {
            Found::fail(format!("the agent's token file {shown}: {error}"), enrol)
        }
        (Ok(_), Ok(text)) if text.trim().is_empty() => {
            Found::fail(format!("the agent's token file {shown} is empty"), enrol)
        }
        (Ok(data), Ok(_)) if data.mode() & 0o077 != 0 => Found::fail(
            format!("the agent's token file {shown} may be read by others"),
            format!(
                "chmod 600 {shown}, then remove the agent and enrol the agent again, because others may have read the token"
            ),
        ),
        (Ok(_), Ok(_)) => Found::ok(format!("the agent's token file {shown} is private")),
    }
}
