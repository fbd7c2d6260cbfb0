//! Browsers, probes and scrapers on the port of a server.

use crate::served::Served;
use crate::{binary, stock};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

#[test]
fn steps_of_a_stock_client_are_counted_and_scraped() {
    let Some(python) = stock::python() else { return };
    let server = Served::start(binary::command(&[]), &[]);
    let mut asked = Command::new(python);
    asked.arg(stock::root().join("oracle/scrape.py")).arg(server.address());
    let asked = asked.output().expect("the interpreter starts");
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    let expected = "refused\n\
                    steps 5 5\n\
                    failures 1\n\
                    sessions 1\n\
                    times True\n\
                    memory True True\n\
                    (('job', 'localhost'), ('task', '0'))\n\
                    sessions 0\n\
                    /healthz (200, 'text/plain', 'ok\\n')\n\
                    /readyz (200, 'text/plain', 'ready\\n')\n\
                    /nowhere (404, 'text/plain', 'there is no /nowhere here; see /\\n')\n\
                    / lists ['/metrics', '/healthz', '/readyz']\n\
                    HEAD (200, 'text/plain', '')\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&asked.stderr));
}

/// The first line of the answer to a request, with the whole of it behind.
fn answer(address: &str, request: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("the server listens");
    connection.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    // A connection that is closed without an answer says nothing.
    let _ = connection.read_to_string(&mut answer);
    answer
}

#[test]
fn requests_that_change_nothing_are_the_only_ones() {
    let server = Served::start(binary::command(&[]), &[]);
    let head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let well = answer(server.address(), &format!("GET /healthz {head}"));
    assert!(well.starts_with("HTTP/1.1 200") && well.ends_with("ok\n"), "{well}");
    for request in [format!("GETS /metrics {head}"), format!("HACK / {head}")] {
        let refused = answer(server.address(), &request);
        assert!(refused.starts_with("HTTP/1.1 405"), "{refused}");
    }
    let endless = format!("GET /{} {head}", "x".repeat(64 << 10));
    assert!(!answer(server.address(), &endless).starts_with("HTTP/1.1 200"));
    let closed = Served::start(binary::command(&[]), &["--no-http"]);
    assert_eq!(answer(closed.address(), &format!("GET /healthz {head}")), "");
}

#[test]
fn the_page_of_metrics_lists_all_of_them() {
    let server = Served::start(binary::command(&[]), &["--memory", "1G"]);
    let head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let metrics = answer(server.address(), &format!("GET /metrics {head}"));
    let page = std::fs::read_to_string(stock::root().join("docs/metrics.md")).expect("the page is there");
    let counted: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let listed: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter(|(name, _)| !name.starts_with('/'))
        .filter_map(|(name, rest)| Some(format!("{name} {}", rest.split_once(" |")?.0)))
        .collect();
    assert_eq!(listed, counted);
}
