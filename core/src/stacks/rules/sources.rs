//! Addresses of the sources of facts.

/// Returns the address of a source. Two forms have an address: `HOST/PATH`, also with words after a
/// comma, and GitHub's `OWNER/REPOSITORY#NUMBER`. `None` for other forms.
pub fn find_link(source: &str) -> Option<String> {
    let place = source.split(',').next().unwrap_or_default();
    let Some((repository, number)) = place.split_once('#') else {
        let (host, _) = place.split_once('/')?;
        let is_link = host.contains('.') && place.chars().all(is_plain);
        return is_link.then(|| format!("https://{place}"));
    };
    let (owner, name) = repository.split_once('/')?;
    let is_name = |text: &str| {
        let mut letters = text.chars();
        !text.is_empty() && letters.all(|letter| letter != '/' && is_plain(letter))
    };
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    (is_name(owner) && is_name(name) && is_number)
        .then(|| format!("https://github.com/{owner}/{name}/issues/{number}"))
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_./".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::super::branches::branch_table;
    use super::*;

    #[test]
    fn every_source_of_the_branches_has_an_address() {
        for branch in &branch_table().branches {
            let of_fix = branch.fix.iter().map(|fix| &fix.source);
            for source in of_fix.chain([&branch.source]) {
                assert!(find_link(source).is_some(), "{source}");
            }
        }
    }

    #[test]
    fn only_plain_hosts_and_numbers_of_github_become_addresses() {
        for (source, link) in [
            (
                "example.org/drivers/580, table 3",
                Some("https://example.org/drivers/580"),
            ),
            (
                "owner/repo#12",
                Some("https://github.com/owner/repo/issues/12"),
            ),
            ("owner/repo#12a", None),
            ("owner#12", None),
            ("the maker's release notes", None),
            ("javascript:alert(1)/a.b", None),
            ("example.org/\" onclick=\"x", None),
            ("", None),
        ] {
            assert_eq!(find_link(source).as_deref(), link, "{source}");
        }
    }
}
