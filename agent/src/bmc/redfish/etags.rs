//! Values of `If-Match` for a BMC that requires a precondition.

use serde_json::Value;

/// Maximum length of a tag in bytes.
const TAG_BYTES: usize = 200;

/// Returns the values to try, best first: the tag of the `ETag` header, then the tag of the body,
/// each as written and in its strong form, and finally `*`. A weak tag never matches (RFC 9110
/// section 13.1.1). Some BMCs show weak tags and compare the strong form, some show the tag in the
/// body alone (ansible issue 56150), some write another tag into the header than into the body
/// (community.general pull request 3268), some append `-gzip` (gofish pull request 511).
pub(super) fn list_tags(header: Option<&str>, body: &Value) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    let shown = [header, body["@odata.etag"].as_str()];
    for tag in shown.into_iter().flatten().map(str::trim) {
        let is_text = !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_graphic());
        if !is_text || tag.len() > TAG_BYTES || tag == "*" {
            continue;
        }
        let inner = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
        let plain = inner.strip_suffix("-gzip").unwrap_or(inner);
        for form in [
            tag.to_owned(),
            format!("\"{inner}\""),
            format!("\"{plain}\""),
        ] {
            if !tags.contains(&form) {
                tags.push(form);
            }
        }
    }
    tags.push("*".into());
    tags
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tag_is_tried_as_written_then_strong_and_the_star_last() {
        let none = json!({});
        assert_eq!(list_tags(Some("\"7\""), &none), ["\"7\"", "*"]);
        assert_eq!(list_tags(Some("W/\"7\""), &none), ["W/\"7\"", "\"7\"", "*"]);
        assert_eq!(
            list_tags(Some("\"7-gzip\""), &none),
            ["\"7-gzip\"", "\"7\"", "*"]
        );
        let body = json!({ "@odata.etag": "\"8\"" });
        assert_eq!(list_tags(None, &body), ["\"8\"", "*"]);
        assert_eq!(
            list_tags(Some("\"\"8\"\""), &body),
            ["\"\"8\"\"", "\"8\"", "*"],
            "quoted twice in the header"
        );
        let unquoted = json!({ "@odata.etag": "8" });
        assert_eq!(list_tags(None, &unquoted), ["8", "\"8\"", "*"]);
        assert_eq!(list_tags(None, &none), ["*"]);
    }

    #[test]
    fn a_tag_that_no_header_can_carry_is_left_out() {
        for odd in [
            json!({ "@odata.etag": "a\r\nHost: x" }),
            json!({ "@odata.etag": 7 }),
            json!({ "@odata.etag": "x".repeat(TAG_BYTES + 1) }),
            json!([]),
        ] {
            assert_eq!(list_tags(None, &odd), ["*"], "{odd}");
        }
    }
}
