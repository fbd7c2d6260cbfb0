//! `ferroflow ckpt` on checkpoints of stock: other programs read what it exports, and stock agrees.

use crate::{binary, stock};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn ckpt(arguments: &[&str]) -> Output {
    let mut whole = vec!["ckpt"];
    whole.extend(arguments);
    binary::command(&whole).output().expect("the binary starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

#[test]
fn checkpoints_of_stock_are_listed_compared_and_exported() {
    let Some(python) = stock::python() else { return };
    let directory = std::env::temp_dir().join(format!("ferroflow exports-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let ask = |what: &str| {
        let script = stock::root().join("oracle/exports.py");
        let status = Command::new(&python).arg(script).arg(what).arg(&directory).status();
        assert!(status.expect("the interpreter starts").success(), "exports.py {what}");
    };
    ask("write");
    let path = |name: &str| directory.join(name).to_str().expect("the path is text").to_owned();
    for name in ["graph", "objects", "first"] {
        let listed = text(&ckpt(&["ls", "--output", "json", &path(name)]));
        std::fs::write(directory.join(format!("{name}.json")), listed).unwrap();
        for ending in ["npz", "safetensors"] {
            let exported = ckpt(&["export", &path(name), "--out", &path(&format!("{name}.{ending}"))]);
            text(&exported);
            if name == "graph" {
                let told = String::from_utf8_lossy(&exported.stderr).into_owned();
                assert!(told.contains("left out words"), "{told}");
            }
        }
    }
    ask("check");
    shows_and_compares(&path);
    refuses(&directory, &path);
    std::fs::remove_dir_all(directory).unwrap();
}

fn shows_and_compares(path: &dyn Fn(&str) -> String) {
    let shown = text(&ckpt(&["show", &path("graph"), "odd", "scal*"]));
    assert!(shown.contains("odd  float32 [4]"), "{shown}");
    assert!(
        shown.contains("min 0, max 3, mean 1.5, standard deviation 1.5, 1 zero, 1 NaN, 1 infinite"),
        "{shown}"
    );
    assert!(shown.contains("scalar  int32 []"), "{shown}");
    let listed = text(&ckpt(&["ls", &path("graph"), "parts"]));
    assert!(listed.contains("in 3 parts") && listed.contains("1 tensor, 20 elements, 80 B"), "{listed}");

    let equal = ckpt(&["diff", &path("graph"), &path("graph")]);
    assert!(text(&equal).ends_with("equal, 0 different\n"));
    let differing = ckpt(&["diff", "--output", "json", &path("graph"), &path("changed")]);
    assert_eq!(differing.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&differing.stdout).expect("the output is JSON");
    let names: Vec<&str> =
        found["different"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["scalar", "types/float32"]);
    assert_eq!(found["different"][1]["elements"], 6);
    assert_eq!(found["different"][1]["largest"], 1.0);
    let within = ckpt(&["diff", "--tolerance", "1.5", &path("graph"), &path("changed")]);
    assert!(text(&within).ends_with("equal, 0 different\n"));
}

/// Names that are wrong get an answer that says what to do, and leave no file behind.
fn refuses(directory: &Path, path: &dyn Fn(&str) -> String) {
    for (arguments, expected) in [
        (vec!["ls".to_owned(), path("nothing")], "is neither the prefix of a checkpoint"),
        (vec!["show".to_owned(), path("graph"), "nothing".to_owned()], "has no tensor named nothing"),
        (vec!["export".to_owned(), path("graph"), "-o".to_owned(), path("a.csv")], ".npz or .safetensors"),
        (vec!["export".to_owned(), path("graph"), "-o".to_owned(), path("no/a.npz")], "cannot write"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let refused = ckpt(&arguments);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && told.contains(expected), "{arguments:?}: {told}");
    }
    // A data file of which the first bytes are left.
    let data = directory.join("objects/ckpt-1.data-00000-of-00001");
    let whole = std::fs::read(&data).unwrap();
    std::fs::write(&data, &whole[..2]).unwrap();
    let refused = ckpt(&["export", &path("objects"), "--out", &path("cut.npz")]);
    assert_eq!(refused.status.code(), Some(1));
    let left: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("cut.")), "{left:?}");
}
