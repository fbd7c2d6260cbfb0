//! Finds the op families: every `src/families/<group>/<family>.rs` becomes a module, and its `OPS` joins the registry.
//! Adding a family therefore touches nothing but its own file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let families = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/families");
    println!("cargo::rerun-if-changed={}", families.display());
    let mut modules = String::new();
    let mut lists = String::new();
    for group in sorted(&families) {
        println!("cargo::rerun-if-changed={}", group.display());
        let group_name = stem(&group);
        writeln!(modules, "pub(crate) mod {group_name} {{").expect("strings take all");
        for family in
            sorted(&group).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        {
            let name = stem(&family);
            writeln!(modules, "    #[path = {:?}]\n    pub(crate) mod {name};", family.display().to_string())
                .expect("strings take all");
            writeln!(lists, "    (\"{group_name}/{name}\", {group_name}::{name}::OPS),")
                .expect("strings take all");
        }
        modules.push_str("}\n");
    }
    let text = format!(
        "{modules}\n/// Every family by name, as `group/family`.\n\
         pub(super) const FAMILIES: &[(&str, &[&ferroflow_core::op::Op])] = &[\n{lists}];\n"
    );
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("families.rs");
    fs::write(out, text).expect("the output directory is writable");
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the families directory exists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a file name").to_string_lossy().into_owned()
}
