//! Measures the pages of a list, requested in sequence over a single connection. `list-pages http
//! ADDRESS TOKEN_FILE < PATHS` asks a server, and `list-pages raw DATABASE_URL < PAGES` asks only
//! its database. In `PAGES`, each line is a page: a list of statements with their parameters as
//! literals. Each statement is prepared once. Prints the microseconds of each page, a line per
//! page.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sqlx::{Connection as _, PgConnection};

const USAGE: &str = "usage: list-pages http ADDRESS TOKEN_FILE | raw DATABASE_URL";
const PATIENCE: Duration = Duration::from_secs(60);

/// A statement, its parameters, and whether the server keeps the statement prepared. PostgreSQL
/// plans the other statements again for each set of parameters.
type Statement = (String, Vec<String>, bool);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let lines = std::io::stdin().lines().collect::<Result<Vec<_>, _>>()?;
    let took = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["http", address, token] => http(address, std::fs::read_to_string(token)?.trim(), &lines)?,
        ["raw", url] => {
            let pages = lines
                .iter()
                .map(|line| serde_json::from_str(line))
                .collect::<Result<Vec<_>, _>>()?;
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(raw(url, &pages))?
        }
        _ => bail!(USAGE),
    };
    let mut out = std::io::stdout().lock();
    for one in took {
        writeln!(out, "{}", one.as_micros())?;
    }
    Ok(())
}

/// Returns the time of each page, from the first byte of the request to the last byte of the
/// response. The body is read but not parsed.
fn http(address: &str, token: &str, paths: &[String]) -> anyhow::Result<Vec<Duration>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut reader, mut writer) = (
        BufReader::with_capacity(1 << 20, stream.try_clone()?),
        stream,
    );
    let mut took = Vec::with_capacity(paths.len());
    let (mut line, mut body) = (String::new(), Vec::new());
    for path in paths {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        let began = Instant::now();
        writer.write_all(request.as_bytes())?;
        let (mut length, mut status) = (None, String::new());
        loop {
            line.clear();
            ensure!(reader.read_line(&mut line)? > 0, "the server hung up");
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if status.is_empty() {
                text.clone_into(&mut status);
            }
            let header = text
                .split_once(':')
                .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            length = header
                .map(|(_, value)| value.trim().parse())
                .transpose()?
                .or(length);
        }
        body.resize(length.context("an answer without its length")?, 0);
        reader.read_exact(&mut body)?;
        took.push(began.elapsed());
        ensure!(
            status.contains(" 200 "),
            "{path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
    }
    Ok(took)
}

/// Returns the time of each page, from its first statement to the last row of its last statement.
async fn raw(url: &str, pages: &[Vec<Statement>]) -> anyhow::Result<Vec<Duration>> {
    let mut kept = PgConnection::connect(url).await?;
    let mut planned = PgConnection::connect(url).await?;
    sqlx::raw_sql("SET plan_cache_mode = force_custom_plan")
        .execute(&mut planned)
        .await?;
    let mut prepared: HashMap<&str, usize> = HashMap::new();
    let mut took = Vec::with_capacity(pages.len());
    for page in pages {
        let mut calls = Vec::with_capacity(page.len());
        for (sql, literals, keeps) in page {
            let next = prepared.len();
            let number = *prepared.entry(sql).or_insert(next);
            let conn = if *keeps { &mut kept } else { &mut planned };
            if number == next {
                sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
                    "PREPARE page{number} AS {sql}"
                )))
                .execute(conn)
                .await?;
            }
            let call = match literals.as_slice() {
                [] => format!("EXECUTE page{number}"),
                literals => format!("EXECUTE page{number} ({})", literals.join(", ")),
            };
            calls.push((call, *keeps));
        }
        let began = Instant::now();
        for (call, keeps) in calls {
            let conn = if keeps { &mut kept } else { &mut planned };
            sqlx::raw_sql(sqlx::AssertSqlSafe(call))
                .fetch_all(conn)
                .await?;
        }
        took.push(began.elapsed());
    }
    Ok(took)
}
