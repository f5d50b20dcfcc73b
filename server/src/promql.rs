//! Queries to the HTTP API of Prometheus, and their answers. Pure functions.
//! Source: <https://prometheus.io/docs/prometheus/latest/querying/api/>

use reqwest::Url;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Longest answer in bytes. A query over many series is refused rather than read.
pub const LONGEST_ANSWER: usize = 1 << 20;
/// Time limit of a query within Prometheus, less than that of the call.
const TIMEOUT: &str = "8s";
/// The error types of Prometheus. Other words of the answer are never shown.
const ERROR_TYPES: [&str; 9] = [
    "bad_data",
    "bad_response",
    "canceled",
    "execution",
    "internal",
    "not_acceptable",
    "not_found",
    "timeout",
    "unavailable",
];

/// Returns the URL of a query, from the base URL of the server.
pub fn build_url(base: &Url) -> Url {
    let mut url = base.clone();
    url.set_path(&format!(
        "{}/api/v1/query",
        base.path().trim_end_matches('/')
    ));
    url
}

/// Returns the body of a query, as a form.
pub fn build_form(query: &str) -> Vec<u8> {
    // Any URL encodes its query as a form.
    let mut form = Url::parse("http://form/").expect("a valid URL");
    form.query_pairs_mut()
        .append_pair("query", query)
        .append_pair("timeout", TIMEOUT);
    form.query().unwrap_or_default().as_bytes().to_vec()
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default, rename = "errorType")]
    error_type: Option<String>,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// VictoriaMetrics: a part of the data is missing.
    #[serde(default, rename = "isPartial")]
    is_partial: Option<bool>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    result_type: String,
    result: Vec<IgnoredAny>,
}

/// Returns the number of series of an answer.
///
/// # Errors
/// A sentence with the reason why the answer does not count. Contains no text of the answer.
pub fn count_series(status: u16, body: &[u8]) -> Result<u64, String> {
    let answer: Option<Answer> = serde_json::from_slice(body).ok();
    let Some(answer) = answer else {
        return Err(match status {
            200..300 => "the answer is not of Prometheus".to_owned(),
            300..400 => format!("answered {status}: no redirect is followed"),
            _ => format!("answered {status}"),
        });
    };
    let is_success = answer.status == "success" && (200..300).contains(&status);
    let Some(data) = answer.data.filter(|_| is_success) else {
        let word = answer.error_type.unwrap_or_default();
        let known = ERROR_TYPES.into_iter().find(|known| *known == word);
        return Err(match known {
            Some("bad_data") => format!("answered {status}: the query is refused (bad_data)"),
            Some(word) => format!("answered {status} ({word})"),
            None => format!("answered {status}"),
        });
    };
    if data.result_type != "vector" {
        return Err(
            "the query gives no instant vector: compare, as in errors_total > 0".to_owned(),
        );
    }
    // Thanos answers with a warning if a part of the data is missing. Prometheus 2.48 to 2.53 put
    // remarks on the style of a query into the same list (prometheus/prometheus#12152).
    let warnings = answer.warnings.unwrap_or_default();
    let is_warned = warnings
        .iter()
        .any(|text| !text.starts_with("PromQL info:"));
    if data.result.is_empty() && (is_warned || answer.is_partial == Some(true)) {
        return Err("the answer has no series and warns: data may be missing".to_owned());
    }
    u64::try_from(data.result.len()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of Prometheus 2.42 (Debian 12), recorded with two targets, one of them down.
    const RECORDED: [(u16, &str, Result<u64, &str>); 9] = [
        (
            200,
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
            Ok(0),
        ),
        (
            200,
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","instance":"127.0.0.1:19091","job":"self"},"value":[1795878106.445,"0"]}]}}"#,
            Ok(1),
        ),
        (
            200,
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","instance":"127.0.0.1:19090","job":"self"},"value":[1795878106.556,"1"]},{"metric":{"__name__":"up","instance":"127.0.0.1:19091","job":"self"},"value":[1795878106.556,"0"]}]}}"#,
            Ok(2),
        ),
        (
            200,
            r#"{"status":"success","data":{"resultType":"scalar","result":[1795878106.472,"1"]}}"#,
            Err("the query gives no instant vector: compare, as in errors_total > 0"),
        ),
        (
            200,
            r#"{"status":"success","data":{"resultType":"string","result":[1795878106.497,"a"]}}"#,
            Err("the query gives no instant vector: compare, as in errors_total > 0"),
        ),
        (
            200,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up","instance":"127.0.0.1:19090","job":"self"},"values":[[1795878103.748,"1"],[1795878105.748,"1"]]}]}}"#,
            Err("the query gives no instant vector: compare, as in errors_total > 0"),
        ),
        (
            400,
            r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:6: parse error: unexpected end of input"}"#,
            Err("answered 400: the query is refused (bad_data)"),
        ),
        (
            503,
            r#"{"status":"error","errorType":"timeout","error":"query timed out in query execution"}"#,
            Err("answered 503 (timeout)"),
        ),
        (404, "404 page not found\n", Err("answered 404")),
    ];

    #[test]
    fn recorded_answers_are_counted_or_refused() {
        for (status, body, counted) in RECORDED {
            let found = count_series(status, body.as_bytes());
            assert_eq!(found, counted.map_err(str::to_owned), "{body}");
        }
    }

    #[test]
    fn an_answer_that_may_miss_data_is_no_quiet_answer() {
        let warned = |result: &str| {
            format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}},"warnings":["no store"]}}"#
            )
        };
        assert!(count_series(200, warned("[]").as_bytes()).is_err());
        let remark = warned("[]").replace("no store", "PromQL info: metric might not be a counter");
        assert_eq!(count_series(200, remark.as_bytes()), Ok(0));
        for (partial, counted) in [(true, None), (false, Some(0))] {
            let body = format!(
                r#"{{"status":"success","isPartial":{partial},"data":{{"resultType":"vector","result":[]}}}}"#
            );
            assert_eq!(count_series(200, body.as_bytes()).ok(), counted);
        }
        assert_eq!(count_series(200, warned("[{}]").as_bytes()), Ok(1));
        for (status, body) in [
            (200, "<html>sign in</html>"),
            (200, "{}"),
            (200, r#"{"status":"success"}"#),
            (
                200,
                r#"{"status":"success","data":{"resultType":"vector"}}"#,
            ),
            (302, ""),
            // The status decides, and no word of another server is repeated.
            (502, RECORDED[0].1),
            (400, r#"{"status":"error","errorType":"<b>secret</b>"}"#),
        ] {
            let refused = count_series(status, body.as_bytes()).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn a_query_goes_to_the_path_of_the_server_as_a_form() {
        for (base, url) in [
            ("https://prom.test", "https://prom.test/api/v1/query"),
            ("https://prom.test/", "https://prom.test/api/v1/query"),
            (
                "https://mimir.test/prometheus/",
                "https://mimir.test/prometheus/api/v1/query",
            ),
        ] {
            assert_eq!(build_url(&Url::parse(base).unwrap()).as_str(), url);
        }
        let form = build_form(r#"rate(e{a="b&c"}[5m]) > 0"#);
        assert_eq!(
            String::from_utf8(form).unwrap(),
            "query=rate%28e%7Ba%3D%22b%26c%22%7D%5B5m%5D%29+%3E+0&timeout=8s"
        );
    }
}
