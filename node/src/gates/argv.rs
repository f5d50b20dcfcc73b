//! Words of a gate's arguments, such as `${gpus}`.

use std::collections::BTreeMap;

use muster_core::wire::node::GatePlan;

use super::scratch::Scratch;

/// Returns the values of `${word}` in arguments. `each`: the word of the gate's disk or mount.
pub(super) fn collect_words(
    plan: &GatePlan,
    each: Option<&str>,
    scratch: Option<&Scratch>,
) -> BTreeMap<String, String> {
    let mut words = plan.variables.clone();
    words.extend(scratch.map(|scratch| {
        let path = scratch.path().to_string_lossy().into_owned();
        ("scratch".to_owned(), path)
    }));
    words.extend(each.map(|word| ("each".to_owned(), word.to_owned())));
    let gpus = plan.profile.gpus.as_ref();
    words.extend(gpus.map(|gpus| ("gpus".to_owned(), gpus.count.to_string())));
    words
}

/// Replaces each `${word}` by its value. A value is not expanded again, and never splits into two arguments.
pub(super) fn expand_argument(
    argument: &str,
    words: &BTreeMap<String, String>,
) -> Result<String, String> {
    let mut pieces = argument.split("${");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (word, rest) = piece
            .split_once("}")
            .ok_or_else(|| format!("{argument:?} has an open ${{"))?;
        text.push_str(
            words
                .get(word)
                .ok_or_else(|| format!("no variable {word} was given"))?,
        );
        text.push_str(rest);
    }
    Ok(text)
}
