//! Goldens on every runtime: one test per runtime and family, such as `planned::cwise_unary`.
//!
//! `GOLDEN=segment cargo test --workspace --test golden` runs one family, `GOLDEN=segment/SegmentSum` its cases
//! whose name starts so, and commas separate several. Test names filter as usual: `-- planned::segment`.

use ferroflow_core::op::Registry;
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::golden::{self, GoldenFile};
use ferroflow_testing::local::Local;
use ferroflow_testing::remote::Remote;
use ferroflow_testing::suite::{self, Outcome, Runtime};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// The runtimes by name; every golden runs on each.
fn runtimes(registry: &Registry) -> Vec<(&'static str, Arc<dyn Runtime + Send + Sync>)> {
    let local = |optimize, threads| {
        let local = Local::with_threads(registry.clone(), PlanOptions { optimize }, threads);
        Arc::new(local.expect("threads start")) as Arc<dyn Runtime + Send + Sync>
    };
    let scattered = Local::scattered(registry.clone(), PlanOptions::default(), 3, 8).expect("threads start");
    let served = Arc::new(Remote::start(registry.clone()).expect("a server starts"));
    vec![
        ("planned", local(true, 2)),
        ("unoptimized", local(false, 1)),
        ("scattered", Arc::new(scattered)),
        ("served", served),
    ]
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let registry = ferroflow_ops::registry();
    let only = std::env::var("GOLDEN").unwrap_or_default();
    let only: Vec<(&str, &str)> = only
        .split(',')
        .filter(|words| !words.is_empty())
        .map(|words| words.split_once('/').unwrap_or((words, "")))
        .collect();
    let (runtimes, mut trials) = (runtimes(&registry), Vec::new());
    for family in golden::families().expect("testdata is part of the repository") {
        let wanted = only.iter().find(|(name, _)| *name == family);
        if !only.is_empty() && wanted.is_none() {
            continue;
        }
        let prefix = wanted.map_or("", |(_, prefix)| prefix);
        // Read by the first of the runtimes, and kept until the last one is through.
        let file = Arc::new(OnceLock::new());
        for (name, runtime) in &runtimes {
            let (file, family, prefix) = (file.clone(), family.clone(), prefix.to_owned());
            let (registry, runtime) = (registry.clone(), runtime.clone());
            trials.push(Trial::test(format!("{name}::{family}"), move || {
                let file =
                    file.get_or_init(|| golden::load(&family)).as_ref().map_err(ToString::to_string)?;
                check(file, &family, &prefix, &registry, runtime.as_ref())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn check(
    file: &GoldenFile,
    family: &str,
    prefix: &str,
    registry: &Registry,
    runtime: &dyn Runtime,
) -> Result<(), Failed> {
    let (mut failures, mut missing, mut passed, mut skipped) = (Vec::new(), BTreeSet::new(), 0, 0);
    for case in file.case.iter().filter(|case| case.name.starts_with(prefix)) {
        let graph = case.graph.clone().unwrap_or_default();
        let unknown = suite::missing_ops(&graph, registry);
        // Graphs that stock refuses may name ops that nobody has.
        if case.status == 0 && !unknown.is_empty() {
            missing.extend(unknown);
            skipped += 1;
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| suite::run(runtime, case))) {
            Ok(Outcome::Passed) => passed += 1,
            Ok(Outcome::Skipped) => skipped += 1,
            Ok(Outcome::Failed(reason)) => failures.push(format!("{}: {reason}", case.name)),
            Err(_) => failures.push(format!("{}: panicked", case.name)),
        }
    }
    let mut counts = format!("{family}: {} failed, {passed} passed, {skipped} unsupported", failures.len());
    if !missing.is_empty() {
        counts.push_str(&format!(" for want of {}", missing.into_iter().collect::<Vec<_>>().join(", ")));
    }
    if failures.is_empty() {
        println!("{counts}");
        return Ok(());
    }
    let shown = failures.iter().map(|failure| format!("  {failure}\n")).collect::<String>();
    Err(format!("{shown}{counts}").into())
}
