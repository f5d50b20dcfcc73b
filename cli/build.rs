//! Passes the commit of the build to `muster version`: `MUSTER_COMMIT`, or the commit of the
//! working tree, or `unknown`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MUSTER_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // The log of HEAD changes with each commit and each checkout. HEAD changes with each checkout.
    for file in ["logs/HEAD", "HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = std::env::var("MUSTER_COMMIT").ok();
    let commit = commit.filter(|commit| !commit.is_empty());
    let commit = commit.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!(
        "cargo::rustc-env=MUSTER_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
