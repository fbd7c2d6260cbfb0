//! The base of all scripts that ask stock: one environment on every machine, and crashes of stock that are findings.

use crate::stock;
use std::process::{Command, Output};

fn run(script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Option<Output> {
    let mut command = Command::new(stock::python()?);
    command.arg(stock::root().join(script)).args(arguments).envs(variables.iter().copied());
    Some(command.output().expect("the interpreter starts"))
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}\n{err}", output.status)
}

#[test]
fn scripts_have_one_environment_and_survive_a_crash_of_stock() {
    let Some(output) = run("oracle/selftest.py", &[], &[]) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

/// With oneDNN, which stock turns on where the processor has AVX-512 VNNI, some of these cases end stock's process.
#[test]
fn goldens_are_current_where_stock_would_choose_other_kernels() {
    let machine = [
        ("TF_ENABLE_ONEDNN_OPTS", "1"),
        ("TF_NUM_INTRAOP_THREADS", "1"),
        ("LC_ALL", "de_DE.ISO-8859-1"),
        ("LANGUAGE", "de"),
        ("TZ", "Asia/Tokyo"),
        ("http_proxy", "http://127.0.0.1:9"),
    ];
    let arguments = ["--check", "--family", "conv", "--family", "regex"];
    let Some(output) = run("oracle/goldens.py", &arguments, &machine) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

/// A script's own failure is one line with its place, not a traceback of processes and pools.
#[test]
fn a_family_that_does_not_exist_is_named() {
    let Some(output) = run("oracle/goldens.py", &["--check", "--family", "none"], &[]) else { return };
    let said = said(&output);
    assert!(!output.status.success() && said.contains("no such family: none"), "{said}");
    assert!(!said.contains("Traceback"), "{said}");
}
