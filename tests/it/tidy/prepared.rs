//! The files of `.sqlx`, which let the macros check SQL without a database. Each file holds Postgres's description of a query.
//!
//! The compiler reports a query without a file. These tests report a file that differs from the migrated schema, and a file without a query.
//! `cargo sqlx prepare --check` does the same with a tool and another build.

use std::collections::BTreeSet;

use muster_core::values::Digest;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, SqlSafeStr as _};

use super::source::{lex, root, sources};
use crate::support::postgres;

/// A file of `.sqlx`.
struct Prepared {
    name: String,
    query: String,
    describe: Value,
}

fn prepared() -> Vec<Prepared> {
    let entries = std::fs::read_dir(root().join(".sqlx")).expect(".sqlx is committed");
    let mut found: Vec<Prepared> = entries
        .flatten()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let mut content: Value = serde_json::from_str(&text).unwrap();
            Prepared {
                name: entry.file_name().to_string_lossy().into_owned(),
                query: content["query"].as_str().unwrap().to_owned(),
                describe: content["describe"].take(),
            }
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Postgres's description of a query, or the reason why Postgres rejects the query.
async fn describe(conn: &mut PgConnection, query: &str) -> Result<Value, String> {
    let described = conn
        .describe(AssertSqlSafe(query.to_owned()).into_sql_str())
        .await
        .map_err(|error| error.to_string())?;
    serde_json::to_value(described).map_err(|error| error.to_string())
}

/// A description without the nullability of columns whose names end with `!` or `?`. The macros ignore that value, and the value depends on
/// the plan that Postgres chooses for an outer join.
fn comparable(describe: &Value) -> Value {
    let mut describe = describe.clone();
    let is_decided = |column: &Value| {
        let name = column["name"].as_str().unwrap_or_default();
        let name = name.split(':').next().unwrap_or_default();
        name.trim_end().ends_with(['!', '?'])
    };
    let decided: Vec<bool> = describe["columns"]
        .as_array()
        .map(|columns| columns.iter().map(is_decided).collect())
        .unwrap_or_default();
    for (at, _) in decided.iter().enumerate().filter(|(_, decided)| **decided) {
        describe["nullable"][at] = Value::Null;
    }
    describe
}

/// The reason why a file is stale, or `None` for a current file.
async fn staleness(conn: &mut PgConnection, file: &Prepared) -> Option<String> {
    let digest = Digest::of(file.query.as_bytes());
    if file.name != format!("query-{}.json", digest.hex()) {
        return Some("the name is not the digest of the query".to_owned());
    }
    match describe(conn, &file.query).await {
        Ok(today) if comparable(&today) == comparable(&file.describe) => None,
        Ok(today) => Some(format!("committed {}, today {today}", file.describe)),
        Err(why) => Some(why),
    }
}

/// The names of files whose query no literal of the sources has.
fn orphans<'a>(files: &'a [Prepared], literals: &BTreeSet<String>) -> Vec<&'a str> {
    let is_orphan = |file: &&Prepared| !literals.contains(&file.query);
    files
        .iter()
        .filter(is_orphan)
        .map(|file| file.name.as_str())
        .collect()
}

#[tokio::test]
async fn prepared_queries_are_those_of_the_migrated_schema() {
    let files = prepared();
    assert!(files.len() > 100, ".sqlx has {} files", files.len());
    let pool = postgres::database().await;
    let mut conn = pool.acquire().await.unwrap();
    let mut stale = Vec::new();
    for file in &files {
        if let Some(why) = staleness(&mut conn, file).await {
            stale.push(format!("{}: {why}", file.name));
        }
    }
    assert!(
        stale.is_empty(),
        "prepare again, see CONTRIBUTING.md: {stale:#?}"
    );
}

#[tokio::test]
async fn a_prepared_query_that_differs_from_the_schema_is_found() {
    let pool = postgres::database().await;
    let mut conn = pool.acquire().await.unwrap();
    let query = "SELECT id, reason FROM nodes WHERE name = $1".to_owned();
    let name = format!("query-{}.json", Digest::of(query.as_bytes()).hex());
    let describe = describe(&mut conn, &query).await.unwrap();
    assert_eq!(describe["nullable"], serde_json::json!([false, true]));
    let mut file = Prepared {
        name,
        query,
        describe,
    };
    assert_eq!(staleness(&mut conn, &file).await, None);
    for (pointer, value) in [
        ("/nullable/1", Value::from(false)),
        ("/parameters/Left/0", Value::from("Int8")),
        ("/columns/0/type_info", Value::from("Text")),
    ] {
        let place = file.describe.pointer_mut(pointer).unwrap();
        let right = std::mem::replace(place, value);
        assert!(staleness(&mut conn, &file).await.is_some(), "{pointer}");
        *file.describe.pointer_mut(pointer).unwrap() = right;
    }
    file.name = "query-0.json".to_owned();
    assert!(staleness(&mut conn, &file).await.is_some());
}

#[test]
fn nullability_is_compared_where_the_name_does_not_decide_it() {
    let describe = |name: &str, nullable: bool| {
        let describe = serde_json::json!({"columns": [{"name": name}], "nullable": [nullable]});
        comparable(&describe)
    };
    for name in ["site?", "id!", "spec?: Json<Suite>", "id!: NodeId"] {
        assert_eq!(describe(name, true), describe(name, false), "{name}");
    }
    for name in ["site", "spec: Json<Option<Suite>>"] {
        assert_ne!(describe(name, true), describe(name, false), "{name}");
    }
}

#[test]
fn every_prepared_query_is_in_the_sources() {
    let literals: BTreeSet<String> = ["server", "cli", "lab", "bench", "tests"]
        .iter()
        .flat_map(|room| sources(room))
        .flat_map(|source| lex(&source.text).literals)
        .map(|literal| literal.value)
        .collect();
    let files = prepared();
    assert_eq!(orphans(&files, &literals), Vec::<&str>::new());
    let planted = BTreeSet::from([files[0].query.clone()]);
    assert_eq!(orphans(&files[..2], &planted), [files[1].name.as_str()]);
}
