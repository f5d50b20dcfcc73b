//! Check: required components, modules, files and texts are in the stack.

use super::super::book::{Needs, Text};
use super::super::packages::Packages;
use super::super::version::glob;
use super::{Outcome, Slots, readable_name, same_module};

pub(super) fn check_needs(packages: &Packages<'_>, needs: &Needs) -> Vec<Outcome> {
    let components = needs
        .components
        .iter()
        .filter(|component| packages.component(component).is_empty());
    let (absent, open): (Vec<&String>, Vec<&String>) =
        components.partition(|component| packages.is_absent(component));
    let absent = absent.into_iter().map(|component| readable_name(component));
    let missing: Vec<String> = absent.chain(missing_settings(packages, needs)).collect();
    let open: Vec<String> = open
        .into_iter()
        .map(|component| readable_name(component))
        .collect();
    if !missing.is_empty() {
        return vec![Outcome::Violated(Slots {
            missing: missing.join(", "),
            ..Slots::default()
        })];
    }
    if !open.is_empty() {
        return vec![Outcome::Unknown(format!(
            "the stack brings no {}, which the node may have",
            open.join(", ")
        ))];
    }
    Vec::new()
}

/// Returns the required modules, files and texts missing in the stack, in words.
fn missing_settings(packages: &Packages<'_>, needs: &Needs) -> Vec<String> {
    let stack = packages.subject.stack;
    let unloaded = |module: &&String| {
        !stack
            .modules_load
            .iter()
            .any(|loaded| same_module(loaded, module))
    };
    let modules = needs
        .modules
        .iter()
        .filter(unloaded)
        .map(|module| format!("{module} in modules_load"));
    let all_files = stack.all_files();
    let unwritten = |path: &&String| !all_files.iter().any(|file| glob(path, &file.path));
    let files = needs
        .files
        .iter()
        .filter(unwritten)
        .map(|path| format!("the file {path}"));
    let unset = |text: &&Text| !packages.file_says(&text.path, &text.text);
    let texts = needs
        .texts
        .iter()
        .filter(unset)
        .map(|text| format!("`{}` in {}", text.text, text.path));
    modules.chain(files).chain(texts).collect()
}
