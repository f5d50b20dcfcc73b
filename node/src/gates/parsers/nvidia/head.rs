//! Versions beside the GPUs in the long formats of nvidia-smi. Driver 610 writes its version under
//! two names, with a remark in brackets behind the older name (nvidia-smi(1), "Changes").

use super::fields::Place;
use super::leaf::{Leaves, is_unavailable};
use crate::gates::parsers::{Reading, scan};

/// Adds the versions of the driver and of the driver's CUDA.
///
/// # Errors
/// Returns a sentence for a missing version of the driver, and for two versions of the driver.
pub(super) fn add_versions(
    reading: &mut Reading,
    head: &Leaves,
    driver: &[Place],
    cuda: &[Place],
) -> Result<(), String> {
    let version = match &list_versions(head, driver)[..] {
        [] => return Err(format!("there is no {}", name_places(driver))),
        [version] => version.clone(),
        [one, other, ..] => return Err(format!("its driver is {one:?} and {other:?}")),
    };
    if !is_version(&version) {
        return Err(format!("{version:?} is no driver version"));
    }
    reading.version("driver", &version);
    reading.add_word("gpu.driver", "", &version);
    match &list_versions(head, cuda)[..] {
        [version] if is_version(version) => reading.add_word("gpu.cuda", "", version),
        // Without CUDA, the place holds another word.
        [] | [_] => {}
        [one, other, ..] => {
            reading.leave("gpu.cuda", format!("its CUDA is {one:?} and {other:?}"));
        }
    }
    Ok(())
}

/// Returns the different versions of all places, without remarks.
fn list_versions(head: &Leaves, places: &[Place]) -> Vec<String> {
    let paths = places.iter().flat_map(|place| place.paths);
    let texts = paths.filter_map(|path| head.get(*path));
    let mut versions: Vec<String> = texts
        .map(|text| scan::word(without_remark(text)))
        .filter(|text| !is_unavailable(text))
        .collect();
    versions.dedup();
    versions
}

/// Removes a remark in brackets behind a value.
fn without_remark(text: &str) -> &str {
    match text.split_once(" [") {
        Some((value, remark)) if remark.ends_with(']') => value,
        _ => text,
    }
}

fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn name_places(places: &[Place]) -> String {
    let paths = places.iter().flat_map(|place| place.paths);
    let names: Vec<String> = paths.map(|path| format!("{path:?}")).collect();
    names.join(" or ")
}
