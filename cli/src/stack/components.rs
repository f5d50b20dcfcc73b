//! Components of Debian's archive missing in the sources of a lock. NVIDIA's packages of Debian are
//! in `non-free` and `contrib`, and the firmware of GPUs is in `non-free-firmware`.

use super::origins::remove_credentials;

/// The components of the archive besides `main`.
const COMPONENTS: [&str; 3] = ["contrib", "non-free", "non-free-firmware"];

/// The source lines of one suite at one URI: the options of the first line, and the components of
/// all.
struct Suite<'a> {
    name: &'a str,
    options: &'a str,
    uri: &'a str,
    components: Vec<&'a str>,
}

/// Returns the options of `muster stack lock` for missing components of the release's suites. A
/// suite without `main` is not of Debian's archive. Empty when no component is missing, or no source
/// is of the release.
pub(super) fn describe_lacking(sources: &str, release: Option<&str>) -> String {
    let Some(release) = release else {
        return String::new();
    };
    let of_release = |suite: &Suite<'_>| {
        let rest = suite.name.strip_prefix(release);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let mut suites: Vec<Suite<'_>> = Vec::new();
    for suite in sources.lines().filter_map(parse_source).filter(of_release) {
        let is_same = |known: &&mut Suite<'_>| (known.name, known.uri) == (suite.name, suite.uri);
        match suites.iter_mut().find(is_same) {
            Some(known) => known.components.extend(suite.components),
            None => suites.push(suite),
        }
    }
    suites.retain(|suite| suite.components.contains(&"main"));
    let options: Vec<String> = suites.iter().filter_map(render_lacking).collect();
    options.join(" ")
}

/// Parses `deb [signed-by=KEYRING] URI SUITE main contrib` (sources.list(5)).
fn parse_source(line: &str) -> Option<Suite<'_>> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, name) = (words.next()?, words.next()?);
    Some(Suite {
        name,
        options: options.trim(),
        uri: uri.trim_end_matches('/'),
        components: words.collect(),
    })
}

/// Returns the option that adds the missing components of a suite.
fn render_lacking(suite: &Suite<'_>) -> Option<String> {
    let missing: Vec<&str> = COMPONENTS
        .into_iter()
        .filter(|component| !suite.components.contains(component))
        .collect();
    let options = match suite.options.is_empty() {
        true => String::new(),
        false => format!("[{}] ", suite.options),
    };
    let uri = remove_credentials(suite.uri);
    let credentials = match uri == suite.uri {
        true => "",
        false => " (with the mirror's credentials)",
    };
    let line = format!("deb {options}{uri} {} {}", suite.name, missing.join(" "));
    (!missing.is_empty()).then(|| format!("--also \"{line}\"{credentials}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &str = "deb [signed-by=/k.gpg] http://u:p@mirror.lab/debian trixie main\n\
                        deb [signed-by=/k.gpg] http://u:p@mirror.lab/debian trixie-updates main\n";

    #[test]
    fn each_suite_of_the_release_gets_a_line_with_the_missing_components() {
        assert_eq!(
            describe_lacking(MAIN, Some("trixie")),
            "--also \"deb [signed-by=/k.gpg] http://mirror.lab/debian trixie contrib non-free non-free-firmware\" \
             (with the mirror's credentials) \
             --also \"deb [signed-by=/k.gpg] http://mirror.lab/debian trixie-updates contrib non-free non-free-firmware\" \
             (with the mirror's credentials)"
        );
        let split =
            "deb copy:/m/ trixie contrib\ndeb copy:/m trixie main\ndeb copy:/m trixie non-free\n";
        assert_eq!(
            describe_lacking(split, Some("trixie")),
            "--also \"deb copy:/m trixie non-free-firmware\""
        );
    }

    #[test]
    fn a_vendors_line_of_the_same_suite_is_not_the_archive() {
        let vendor = "deb [signed-by=/v.gpg] https://vendor.lab/linux trixie stable contrib\n";
        let archive = "deb copy:/m trixie main non-free\n";
        let added = "--also \"deb copy:/m trixie contrib non-free-firmware\"";
        for sources in [format!("{vendor}{archive}"), format!("{archive}{vendor}")] {
            assert_eq!(describe_lacking(&sources, Some("trixie")), added);
        }
        assert_eq!(describe_lacking(vendor, Some("trixie")), "");
    }

    #[test]
    fn complete_sources_and_sources_without_the_release_get_no_line() {
        let whole = "deb copy:/m trixie main contrib non-free non-free-firmware\n";
        let own = "deb [trusted=yes] copy:/srv/own /\ndeb copy:/m trixies main\ndeb copy:/m\n";
        for (sources, release) in [
            (whole, Some("trixie")),
            (own, Some("trixie")),
            (MAIN, Some("bookworm")),
            (MAIN, None),
        ] {
            assert_eq!(describe_lacking(sources, release), "", "{sources}");
        }
    }
}
