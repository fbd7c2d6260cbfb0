//! Checkpoints of Rust programs: the nodes of savers are stock's, stock goes on from our checkpoints and we from its.

use crate::stock;
use ferroflow::train::{Saver, latest_checkpoint};
use ferroflow::variables::{Partitioner, Variable, global_variables_initializer};
use ferroflow::{Code, DType, Graph, Result, Session, Tensor, initializers};
use ferroflow_core::scope::Operation;
use ferroflow_proto::tensorflow::attr_value::Value;
use std::path::PathBuf;
use std::process::Command;

/// Stock's answer to a command of `oracle/savers.py`.
fn ask_stock(arguments: &[&str]) -> Option<String> {
    let output = Command::new(stock::python()?)
        .arg(stock::root().join("oracle/savers.py"))
        .args(arguments)
        .output()
        .expect("the interpreter starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A directory that is removed with this value.
pub(crate) struct Directory(pub(crate) PathBuf);

/// Keeps what is logged in this process out of the tests' report. Without it a test works as well.
pub(crate) fn quiet() {
    ferroflow::logging::set_default_level(ferroflow::logging::LevelFilter::OFF);
}

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        quiet();
        let path = std::env::temp_dir().join(format!("ferroflow-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the directory for temporary files can be written");
        Directory(path)
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().expect("temporary directories have plain names")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn savers_add_the_nodes_that_stock_adds() {
    let Some(expected) = ask_stock(&["nodes"]) else { return };
    let mut lines = String::new();
    for (sharded, resource) in [(false, false), (false, true), (true, false), (true, true)] {
        let graph = Graph::new();
        add_variables(&graph, resource).unwrap();
        Saver::builder().sharded(sharded).build(&graph).unwrap();
        let text = |flag: bool| if flag { "True" } else { "False" };
        let def = graph.to_graph_def();
        for node in def.node.iter().filter(|node| node.name.starts_with("save/")) {
            let value = node.attr.get("value").and_then(|value| match &value.value {
                Some(Value::Tensor(tensor)) => Some(shown(&Tensor::from_proto(tensor).unwrap())),
                _ => None,
            });
            lines.push_str(&format!(
                "{}|{}|{}|{}|{}|{}|{}\n",
                text(sharded),
                text(resource),
                node.name,
                node.op,
                node.input.join(","),
                node.device,
                value.unwrap_or_default()
            ));
        }
    }
    for (ours, theirs) in lines.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(lines.lines().count(), expected.lines().count());
}

fn add_variables(graph: &Graph, resource: bool) -> Result<()> {
    let s = graph.scope();
    let spec = |name: &str, dims: &[i64]| {
        let spec = Variable::spec(name, dims);
        if resource { spec } else { spec.reference() }
    };
    let (first, second) = (s.device("/job:ps/task:0"), s.device("/job:ps/task:1"));
    spec("w", &[2, 3]).build(&first)?;
    spec("step", &[]).dtype(DType::Int64).initializer(initializers::zeros()).build(&first)?;
    spec("b", &[3]).build(&second)?;
    if !resource {
        spec("table", &[4, 2]).partitioned(&second, Partitioner::fixed(2))?;
    }
    Ok(())
}

/// A constant as Python prints its elements.
fn shown(tensor: &Tensor) -> String {
    let texts: Vec<String> = match tensor.dtype() {
        DType::String => {
            let text = |value: &bytes::Bytes| format!("b'{}'", String::from_utf8_lossy(value));
            tensor.flat::<bytes::Bytes>().unwrap().iter().map(text).collect()
        }
        _ => tensor.to_i64s().unwrap().iter().map(i64::to_string).collect(),
    };
    texts.join(" ")
}

/// A model with a plain, a reference, and a partitioned variable.
fn model(graph: &Graph) -> Result<(Variable, Operation)> {
    let s = graph.scope();
    let w = Variable::with_value(&s, "w", [1.0f32, 2.0, 3.0])?;
    Variable::spec("old", [2]).reference().initializer(initializers::ones()).build(&s)?;
    let table = Variable::spec("table", [5, 2]).initializer(initializers::constant(0.5));
    table.partitioned(&s, Partitioner::fixed(2))?;
    let init = global_variables_initializer(&s)?;
    Ok((w, init))
}

#[test]
fn checkpoints_and_their_list_pass_between_us_and_stock() -> Result<()> {
    for sharded in [false, true] {
        let directory = Directory::new(&format!("savers-{sharded}"));
        let graph = Graph::new();
        let (w, init) = model(&graph)?;
        let bump = w.assign_add(&graph.scope(), [1.0f32, 1.0, 1.0])?;
        let saver = Saver::builder().sharded(sharded).max_to_keep(2).build(&graph)?;
        let session = Session::new(&graph)?;
        session.execute(&init)?;
        for step in 1..=3 {
            session.execute(&bump)?;
            let path = saver.save(&session, directory.0.join("model.ckpt"), Some(step))?;
            assert_eq!(latest_checkpoint(&directory.0)?.as_deref(), Some(path.as_str()));
        }
        assert!(!directory.0.join("model.ckpt-1.index").exists(), "two are kept");
        let Some(said) = ask_stock(&["read", directory.text()]) else { return Ok(()) };
        let lines: Vec<&str> = said.lines().collect();
        let half = ["0.5"; 10].join(" ");
        let expected = [
            "latest model.ckpt-3",
            "all model.ckpt-2 model.ckpt-3",
            "timestamps 2",
            "old 1.0 1.0",
            &format!("table {half}"),
            "w 4.0 5.0 6.0",
        ];
        assert_eq!(lines, expected);

        // Stock goes on, and we from what it wrote.
        ask_stock(&["write", directory.text()]);
        let latest = latest_checkpoint(&directory.0)?.unwrap();
        assert!(latest.ends_with("model.ckpt-101"), "{latest}");
        let session = Session::new(&graph)?;
        saver.restore(&session, &latest)?;
        assert_eq!(session.eval(w.value())?.flat::<f32>()?, [8.0, 10.0, 12.0]);
        saver.recover_last_checkpoints(&directory.0)?;
        assert_eq!(saver.last_checkpoints().len(), 2);
    }
    Ok(())
}

#[test]
fn a_checkpoint_that_is_not_there_or_does_not_fit_is_named() -> Result<()> {
    let directory = Directory::new("savers-missing");
    let graph = Graph::new();
    let (_, init) = model(&graph)?;
    let saver = Saver::new(&graph)?;
    let session = Session::new(&graph)?;
    session.execute(&init)?;
    let missing = saver.restore(&session, directory.0.join("none")).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    let path = saver.save(&session, directory.0.join("small"), None)?;
    let nowhere = saver.save(&session, directory.0.join("absent/model"), None).unwrap_err();
    assert_eq!(nowhere.code(), Code::InvalidArgument);

    let larger = Graph::new();
    model(&larger)?;
    Variable::spec("extra", [1]).build(&larger.scope())?;
    let unfit = Saver::new(&larger)?.restore(&Session::new(&larger)?, &path).unwrap_err();
    assert_eq!(unfit.code(), Code::NotFound);
    assert!(unfit.message().contains("extra") && unfit.message().contains("small"), "{unfit}");
    let empty = Saver::new(&Graph::new()).map(drop).unwrap_err();
    assert!(empty.message().contains("No variables to save"), "{empty}");
    Ok(())
}
