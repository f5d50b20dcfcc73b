//! SQL in sources: queries that the compiler does not check, and statements that write a node's state.

use super::source::{Literal, Source, function_at, is_word, lex};

/// Macros that the compiler compares with the schema.
const CHECKED: [&str; 6] = [
    "query!",
    "query_as!",
    "query_scalar!",
    "query_file!",
    "query_file_as!",
    "query_file_scalar!",
];

/// Methods that send a text to the database without a macro.
const SENDERS: [&str; 7] = [
    ".execute(",
    ".execute_many(",
    ".fetch(",
    ".fetch_all(",
    ".fetch_many(",
    ".fetch_one(",
    ".fetch_optional(",
];

/// Whether a production file calls a query macro or function of sqlx.
pub(super) fn has_queries(source: &Source) -> bool {
    lex(&source.production()).code.contains("sqlx::query")
}

/// Every query of a production file that the compiler does not check.
pub(super) fn unchecked_queries(source: &Source) -> Vec<String> {
    let lexed = lex(&source.production());
    let mut found = Vec::new();
    for (at, _) in lexed.code.match_indices("sqlx::") {
        let rest = &lexed.code[at + "sqlx::".len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(','),
            None => rest.split(';').next().unwrap_or_default().split(','),
        };
        // Outside of an import the list has one name, the call's.
        let is_import = lexed.code[..at].trim_end().ends_with("use");
        let names: Vec<&str> = names.take(if is_import { usize::MAX } else { 1 }).collect();
        found.extend(names.into_iter().map(name_of).filter(|name| {
            let is_query = name.starts_with("query") && (is_import || !CHECKED.contains(name));
            is_query || ["raw_sql", "QueryBuilder", "AssertSqlSafe"].contains(name)
        }));
    }
    let mut found: Vec<String> = found.into_iter().map(str::to_owned).collect();
    let sent = lexed.literals.iter().filter(|literal| {
        let before = lexed.code[..literal.at].trim_end();
        // A file without sqlx sends its texts to something else, such as QEMU.
        lexed.code.contains("sqlx::") && SENDERS.iter().any(|sender| before.ends_with(sender))
    });
    found.extend(sent.map(|literal| literal.value.clone()));
    found
}

/// The word at the start of a path's tail, with the `!` of a macro.
fn name_of(rest: &str) -> &str {
    let rest = rest.trim_start();
    let end = rest.bytes().position(|byte| !is_word(byte));
    let end = end.unwrap_or(rest.len());
    match rest[end..].starts_with('!') {
        true => &rest[..=end],
        false => &rest[..end],
    }
}

/// Every function of a production file with a statement that assigns `nodes.state`.
pub(super) fn writers_of_state(source: &Source) -> Vec<String> {
    let lexed = lex(&source.production());
    let writes = |literal: &&Literal| {
        assigned_columns(&literal.value, "nodes")
            .iter()
            .any(|column| column == "state")
    };
    lexed
        .literals
        .iter()
        .filter(writes)
        .map(|literal| function_at(&lexed.code, literal.at).to_owned())
        .collect()
}

/// Whether a production file has a statement that inserts into, updates or deletes from a table.
pub(super) fn writes_table(source: &Source, table: &str) -> bool {
    let writes = |sql: &str| {
        let tokens = tokens(sql);
        (0..tokens.len()).any(|at| {
            let word = |at: usize| tokens.get(at).map_or("", String::as_str);
            let named = |at: usize| table_at(&tokens, at).0 == table;
            match (word(at), word(at + 1)) {
                ("insert", "into") | ("delete", "from") => named(at + 2),
                ("update", _) => named(at + 1),
                _ => false,
            }
        })
    };
    let lexed = lex(&source.production());
    lexed.literals.iter().any(|literal| writes(&literal.value))
}

/// The columns of a table that a text's UPDATE and upsert statements assign.
fn assigned_columns(sql: &str, table: &str) -> Vec<String> {
    let tokens = tokens(sql);
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    let mut columns = Vec::new();
    // The table of the latest INSERT, which a later DO UPDATE writes.
    let mut inserted = String::new();
    for at in 0..tokens.len() {
        match (word(at), word(at + 1)) {
            ("insert", "into") => inserted = table_at(&tokens, at + 2).0,
            ("do", "update") if inserted == table => {
                columns.extend(assignments(&tokens, at + 3));
            }
            ("update", _) if at == 0 || word(at - 1) != "do" => {
                let (name, mut behind) = table_at(&tokens, at + 1);
                while !["set", ""].contains(&word(behind)) {
                    behind += 1;
                }
                if name == table {
                    columns.extend(assignments(&tokens, behind + 1));
                }
            }
            _ => {}
        }
    }
    columns
}

/// The table that a statement names at a token, and the token behind it.
fn table_at(tokens: &[String], at: usize) -> (String, usize) {
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    let at = if word(at) == "only" { at + 1 } else { at };
    match word(at + 1) {
        "." => (word(at + 2).to_owned(), at + 3),
        _ => (word(at).to_owned(), at + 1),
    }
}

/// The columns on the left of `=`, from the token behind SET to the end of the clause.
fn assignments(tokens: &[String], start: usize) -> Vec<String> {
    let mut columns = Vec::new();
    let mut depth = 0_i32;
    let mut is_target = true;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            "," if depth == 0 => is_target = true,
            "=" if depth == 0 => is_target = false,
            ";" | "where" | "returning" if depth == 0 => break,
            "from" if depth == 0 && tokens[at - 1] != "distinct" => break,
            column if is_target && column != "," => columns.push(column.to_owned()),
            _ => {}
        }
        if depth < 0 {
            break;
        }
    }
    columns
}

/// The words and signs of a statement in small letters; its own literals and comments are dropped.
fn tokens(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' => 1 + rest[1..].find('\'').map_or(rest.len() - 1, |at| at + 1),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            _ if first.is_alphanumeric() || first == '_' => rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let is_word = first.is_alphanumeric() || first == '_';
        if is_word || "(),=.;".contains(first) {
            found.push(rest[..length].to_ascii_lowercase());
        }
        rest = &rest[length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "server/src/tasks/leases.rs".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn unchecked_queries_are_found_in_every_form() {
        for planted in [
            "fn f() { sqlx::query(\"SELECT 1\") }",
            "fn f() { sqlx::query_as::<_, Row>(\"SELECT 1\") }",
            "fn f() { sqlx::query_scalar_with(\"SELECT 1\", arguments) }",
            "fn f() { sqlx::query_unchecked!(\"SELECT 1\") }",
            "fn f() { sqlx::raw_sql(\"SELECT 1\") }",
            "use sqlx::{Postgres, QueryBuilder};",
            "use sqlx::query_scalar;",
            "fn f() { sqlx::QueryBuilder::<Postgres>::new(\"SELECT 1\") }",
            "use sqlx::Executor as _;\nfn f() { conn.execute(\n        \"SELECT 1\").await }",
        ] {
            let found = unchecked_queries(&source(planted));
            assert_eq!(found.len(), 1, "{planted}: {found:?}");
        }
    }

    #[test]
    fn checked_queries_and_words_about_queries_are_no_offence() {
        let text = "use sqlx::{PgConnection, Row};\n// sqlx::query( is unchecked\nfn f() { sqlx::query_as!(Row, \"SELECT 1\") }";
        assert_eq!(unchecked_queries(&source(text)), Vec::<String>::new());
        assert!(has_queries(&source(text)));
    }

    #[test]
    fn a_statement_that_writes_state_is_found_in_every_form() {
        for planted in [
            "UPDATE nodes SET state = 'ready' WHERE id = $1",
            "UPDATE nodes SET due_at = $2, state = 'ready'",
            "update only public.nodes AS n\n SET due_at = coalesce(a, b),\n     state=$1",
            "UPDATE nodes SET (due_at, state) = ($1, $2)",
            "UPDATE nodes SET reason = 'a \"quoted\" word, and more', \"state\" = $1",
            "WITH x AS (UPDATE nodes SET held = a IS DISTINCT FROM b, state = $1 RETURNING id) SELECT 1",
            "INSERT INTO nodes (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET state = 'ready'",
        ] {
            let text = format!(
                "fn other() {{}}\nfn put_back() {{\n    sqlx::query!(r#\"{planted}\"#)\n}}"
            );
            assert_eq!(writers_of_state(&source(&text)), ["put_back"], "{planted}");
        }
    }

    #[test]
    fn a_statement_that_writes_a_table_is_found_in_every_form() {
        let writes = |sql: &str| {
            let text = format!("fn f() {{ sqlx::query!(r#\"{sql}\"#) }}");
            writes_table(&source(&text), "jobs")
        };
        for planted in [
            "INSERT INTO jobs (id) VALUES ($1)",
            "update only public.jobs j\n SET cancel = true",
            "WITH x AS (DELETE FROM jobs RETURNING id) SELECT 1",
            "UPDATE jobs SET waiting_for = $3 FROM nodes n",
        ] {
            assert!(writes(planted), "{planted}");
        }
        for harmless in [
            "SELECT id FROM jobs FOR UPDATE OF jobs",
            "UPDATE nodes SET due_at = $1 FROM jobs j WHERE j.node_id = nodes.id",
            "INSERT INTO job_logs (job_id) SELECT id FROM jobs",
        ] {
            assert!(!writes(harmless), "{harmless}");
        }
    }

    #[test]
    fn statements_that_read_state_are_no_offence() {
        for harmless in [
            "UPDATE nodes SET due_at = $1 WHERE state = 'ready'",
            "UPDATE nodes SET due_at = x.at FROM x WHERE nodes.state = 'ready'",
            "UPDATE nodes SET live = CASE WHEN state = 'ready' THEN 1 ELSE 2 END",
            "UPDATE jobs SET state = 'done'",
            "INSERT INTO nodes (id, state) VALUES ($1, 'discovered')",
            "INSERT INTO jobs (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET state = 'done'",
        ] {
            let text = format!("fn f() {{ sqlx::query!(\"{harmless}\") }}");
            let found = writers_of_state(&source(&text));
            assert_eq!(found, Vec::<String>::new(), "{harmless}");
        }
    }
}
