//! Conventions of the package graph, read from `cargo metadata`.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The crates that each crate may depend on; a crate states what it does not know by leaving it out.
const LAYERS: &[(&str, &[&str])] = &[
    ("ferroflow-proto", &[]),
    ("ferroflow-core", &["ferroflow-proto"]),
    ("ferroflow-remote", &["ferroflow-core"]),
    ("ferroflow-io", &["ferroflow-proto", "ferroflow-core", "ferroflow-remote"]),
    ("ferroflow-ops", &["ferroflow-proto", "ferroflow-core", "ferroflow-io"]),
    ("ferroflow-runtime", &["ferroflow-proto", "ferroflow-core"]),
    ("ferroflow-cluster", &["ferroflow-proto", "ferroflow-core", "ferroflow-runtime"]),
    ("ferroflow-discovery", &["ferroflow-core", "ferroflow-cluster"]),
    (
        "ferroflow",
        &[
            "ferroflow-proto",
            "ferroflow-core",
            "ferroflow-io",
            "ferroflow-ops",
            "ferroflow-runtime",
            "ferroflow-cluster",
            "ferroflow-discovery",
        ],
    ),
    ("ferroflow-cli", &["ferroflow"]),
    (
        "ferroflow-python",
        &["ferroflow-proto", "ferroflow-core", "ferroflow-io", "ferroflow", "ferroflow-cli"],
    ),
    ("ferroflow-testing", &["ferroflow-proto", "ferroflow-core", "ferroflow-runtime", "ferroflow-cluster"]),
    ("xtask", &[]),
];

/// Licenses that go with Apache-2.0. A choice (`A OR B`) needs one of them, a sum (`A AND B`) all.
const LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages whose two major versions are both needed, until their users agree.
const DUPLICATES: &[&str] = &[
    "crypto-common",
    "digest",
    "getrandom",
    "hashbrown",
    "itertools",
    "miniz_oxide",
    "syn",
    "thiserror",
    "thiserror-impl",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--locked"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output().context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let mut wrong = layers(&metadata);
    wrong.extend(licenses(&metadata));
    wrong.extend(duplicates(&metadata));
    Ok(wrong)
}

fn layers(metadata: &Metadata) -> Vec<String> {
    let members: BTreeSet<&String> = metadata.workspace_members.iter().collect();
    let own: Vec<&Package> =
        metadata.packages.iter().filter(|package| members.contains(&package.id)).collect();
    let names: BTreeSet<&str> = own.iter().map(|package| package.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in &own {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == package.name) else { continue };
        // Tests may look upward; only what is built into the crate counts.
        let built =
            package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        for dependency in built.filter(|dependency| names.contains(dependency.name.as_str())) {
            if !allowed.contains(&dependency.name.as_str()) {
                wrong.push(format!("{} must not know {}", package.name, dependency.name));
            }
        }
    }
    wrong
}

fn licenses(metadata: &Metadata) -> Vec<String> {
    let unlisted = metadata
        .packages
        .iter()
        .filter(|package| !acceptable(package.license.as_deref().unwrap_or_default()));
    unlisted
        .map(|package| {
            let license = package.license.as_deref().unwrap_or("none");
            format!("{} {}: its license ({license}) is not on the list", package.name, package.version)
        })
        .collect()
}

fn acceptable(license: &str) -> bool {
    let spaced = license.replace('/', " OR ").replace(['(', ')'], "");
    spaced.split(" AND ").all(|part| part.split(" OR ").any(|choice| LICENSES.contains(&choice.trim())))
}

fn duplicates(metadata: &Metadata) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in &metadata.packages {
        versions.entry(&package.name).or_default().insert(major(&package.version));
    }
    versions
        .into_iter()
        .filter(|(name, majors)| {
            majors.len() > 1 && !DUPLICATES.contains(name) && !name.starts_with("windows")
        })
        .map(|(name, majors)| {
            let majors = majors.into_iter().collect::<Vec<_>>().join(" and ");
            format!("{name}: versions {majors} are both linked")
        })
        .collect()
}

/// The part of a version that must agree: `1`, or `0.8` below one.
fn major(version: &str) -> String {
    let mut parts = version.split('.');
    match (parts.next(), parts.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (Some(major), _) => major.to_owned(),
        _ => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{acceptable, major};

    #[test]
    fn a_license_may_offer_a_choice() {
        assert!(
            acceptable("MIT OR Apache-2.0")
                && acceptable("MIT/Apache-2.0")
                && acceptable("(MIT OR GPL-3.0) AND Zlib")
        );
        assert!(!acceptable("GPL-3.0") && !acceptable("MIT AND GPL-3.0") && !acceptable(""));
    }

    #[test]
    fn below_one_the_minor_version_is_the_major() {
        assert_eq!([major("1.2.3"), major("0.8.1")], ["1", "0.8"]);
    }
}
