//! Paths inside of a Redfish service: links, pages of lists, `Location` headers and redirects. A
//! link is used as published, with or without a slash at the end (DSP0266).

use reqwest::Url;
use serde_json::{Value, json};

use crate::bmc::error::{BmcError, shortened};

/// Names of the link to the next page of a list: the name of DSP0266, and the name of early iDRACs
/// (dell/iDRAC-Redfish-Scripting issue 12).
const NEXT: [&str; 2] = ["Members@odata.nextLink", "@odata.nextLink"];

/// Returns the path of a link.
pub(super) fn link(value: &Value) -> Result<String, BmcError> {
    let path = value["@odata.id"].as_str().unwrap_or_default();
    let plain = path
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"/._-~:%#?=$&@+(),;!*'".contains(&b));
    // A URL parser reads `%2e` as a dot.
    let climbs = path.contains("..") || path.to_ascii_lowercase().contains("%2e");
    match path.starts_with("/redfish/v1/") && plain && path.len() <= 300 && !climbs {
        true => Ok(path.to_owned()),
        false => Err(BmcError::Garbage {
            what: format!("it links to {:?}", shortened(path)),
        }),
    }
}

/// Returns a path without slashes at its end.
pub(super) fn bare(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// Returns the members of a page of a list.
pub(super) fn listed(page: &Value) -> Result<&[Value], BmcError> {
    let none = || BmcError::Garbage {
        what: "it shows a list without `Members`".into(),
    };
    page["Members"]
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(none)
}

/// Returns the path of the next page of a list.
pub(super) fn next_page(page: &Value) -> Result<Option<String>, BmcError> {
    let mut links = NEXT.iter().map(|name| &page[*name]);
    let Some(more) = links.find(|more| !more.is_null()) else {
        return Ok(None);
    };
    let more = more.as_str().unwrap_or("no text");
    match (more, path_of(more)) {
        ("", _) => Ok(None),
        (_, Some(path)) => Ok(Some(path)),
        (_, None) => Err(BmcError::Garbage {
            what: format!("the next page of its list is {:?}", shortened(more)),
        }),
    }
}

/// Returns the path of a `Location` header. Some BMCs write a host name they believe is theirs. The
/// host part is ignored and never followed.
pub(super) fn path_of(location: &str) -> Option<String> {
    let path = match location.split_once("://") {
        Some((_, rest)) => rest.find('/').map(|at| &rest[at..])?,
        None => location,
    };
    link(&json!({ "@odata.id": path })).ok()
}

/// Returns the path that a redirect names, if scheme, host and port stay, and the path differs by a
/// slash at its end alone.
pub(super) fn other_slash(base: &str, path: &str, location: &str) -> Option<String> {
    let asked = Url::parse(&format!("{base}{path}")).ok()?;
    let to = asked.join(location).ok()?;
    let slash_apart = to.path().strip_suffix('/') == Some(asked.path())
        || asked.path().strip_suffix('/') == Some(to.path());
    let stays = to.origin() == asked.origin() && to.path().starts_with("/redfish/");
    let query = path.split_once('?').map(|(_, query)| format!("?{query}"));
    (slash_apart && stays).then(|| format!("{}{}", to.path(), query.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_its_slash_and_leaves_no_service() {
        let read = |path: &str| link(&json!({ "@odata.id": path })).ok();
        for published in [
            "/redfish/v1/Systems/1",
            "/redfish/v1/Systems/1/",
            "/redfish/v1/Managers/1/LogServices/Sel/Entries?$skip=50&$top=50",
        ] {
            assert_eq!(read(published).as_deref(), Some(published));
        }
        for odd in [
            "/redfish/v1/../x",
            "/redfish/v1/%2e%2E/x",
            "/rest/v1/Systems",
            "//192.0.2.1/redfish/v1/Systems",
            "/redfish/v1/a b",
            "",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_location_is_a_path_on_the_same_bmc_or_nothing() {
        let path = |location: &str| path_of(location).unwrap_or_default();
        assert_eq!(
            path("/redfish/v1/TaskService/Tasks/7/"),
            "/redfish/v1/TaskService/Tasks/7/"
        );
        assert_eq!(
            path("https://192.0.2.9:8443/redfish/v1/TaskService/TaskMonitors/7"),
            "/redfish/v1/TaskService/TaskMonitors/7"
        );
        for elsewhere in [
            "https://192.0.2.9",
            "https://192.0.2.9/other",
            "ftp://x/../redfish/v1/..",
            "",
        ] {
            assert_eq!(path_of(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_redirect_is_followed_over_a_slash_and_no_further() {
        let base = "https://10.78.0.1:443";
        let to = |path: &str, location: &str| other_slash(base, path, location);
        let systems = Some("/redfish/v1/Systems/".to_owned());
        for location in [
            "/redfish/v1/Systems/",
            "https://10.78.0.1/redfish/v1/Systems/",
            "https://10.78.0.1:443/redfish/v1/Systems/",
            "Systems/",
        ] {
            assert_eq!(to("/redfish/v1/Systems", location), systems, "{location}");
        }
        let back = to("/redfish/v1/Systems/", "/redfish/v1/Systems");
        assert_eq!(back.as_deref(), Some("/redfish/v1/Systems"));
        let query = to("/redfish/v1/Systems?$top=1", "/redfish/v1/Systems/");
        assert_eq!(query.as_deref(), Some("/redfish/v1/Systems/?$top=1"));
        for elsewhere in [
            "https://10.78.0.2/redfish/v1/Systems/",
            "https://10.78.0.1:8080/redfish/v1/Systems/",
            "http://10.78.0.1/redfish/v1/Systems/",
            "//192.0.2.1/redfish/v1/Systems/",
            "/redfish/v1/Systems",
            "/redfish/v1/Systems//",
            "/login/",
            "",
        ] {
            assert_eq!(to("/redfish/v1/Systems", elsewhere), None, "{elsewhere}");
        }
        assert_eq!(to("/other", "/other/"), None);
    }

    #[test]
    fn the_next_page_has_two_names_and_an_odd_page_is_an_error() {
        let next = |page: Value| next_page(&page);
        let path = "/redfish/v1/Managers/1/Logs/Lclog?$skip=50";
        for name in NEXT {
            let page = json!({ name: path });
            assert_eq!(next(page).unwrap().as_deref(), Some(path), "{name}");
        }
        let absolute = json!({ NEXT[0]: format!("https://bmc{path}") });
        assert_eq!(next(absolute).unwrap().as_deref(), Some(path));
        for last in [json!({}), json!({ NEXT[0]: null }), json!({ NEXT[0]: "" })] {
            assert_eq!(next(last).unwrap(), None);
        }
        for odd in [json!({ NEXT[0]: 7 }), json!({ NEXT[0]: "/other" })] {
            assert!(next(odd).is_err());
        }
        assert!(listed(&json!({ "Members": [] })).unwrap().is_empty());
        assert!(listed(&json!({})).is_err());
    }
}
