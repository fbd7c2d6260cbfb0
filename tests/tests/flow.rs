//! Conditionals, loops and functions from closures, their gradients, and graphs that go to stock and come from it.

use crate::graphs::{matrix, run};
use crate::stock;
use ferroflow::{
    Code, CollectionItem, DType, Function, Graph, MetaGraph, Output, Result, Scope, Session, Tensor,
    TensorSpec, WhileLoop, cond, gradients, ops, while_loop,
};
use ferroflow_proto::tensorflow::{GraphDef, MetaGraphDef, VariableDef};
use prost::Message;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};

type Model = fn(&Scope, &Output, &Output) -> Result<Output>;

const MODELS: [(&str, Model); 8] = [
    ("loop", repeated),
    ("branch", |s, x, w| {
        one(cond(s, ops::greater(s, x, 1.0), |_| Ok(vec![((x * x)? * w)?]), |_| Ok(vec![(x + w)?])))
    }),
    ("other_branch", |s, x, w| {
        one(cond(s, ops::greater(s, x, 2.0), |_| Ok(vec![((x * x)? * w)?]), |_| Ok(vec![((x + w)? * w)?])))
    }),
    ("nested_loops", nested_loops),
    ("branch_in_loop", branch_in_loop),
    ("loop_in_branch", loop_in_branch),
    ("list_in_loop", list_in_loop),
    ("calls", calls),
];

fn one(outputs: Result<Vec<Output>>) -> Result<Output> {
    Ok(outputs?.remove(0))
}

fn last(outputs: Result<Vec<Output>>) -> Result<Output> {
    Ok(outputs?.pop().expect("a loop has variables"))
}

/// A loop over a counter and one value.
fn counted(
    s: &Scope,
    count: i32,
    start: &Output,
    body: impl Fn(&Scope, &Output, &Output) -> Result<Output>,
) -> Result<Output> {
    last(while_loop(
        s,
        [&s.constant(0i32)?, start],
        |s, v| ops::less(s, &v[0], count),
        |s, v| Ok(vec![(&v[0] + 1)?, body(s, &v[0], &v[1])?]),
    ))
}

fn repeated(s: &Scope, x: &Output, w: &Output) -> Result<Output> {
    counted(s, 5, w, |_, _, y| (y * x)? + w)
}

fn nested_loops(s: &Scope, x: &Output, w: &Output) -> Result<Output> {
    counted(s, 3, x, |s, _, a| counted(s, 2, a, |_, _, b| (b * w)? + x))
}

fn branch_in_loop(s: &Scope, x: &Output, w: &Output) -> Result<Output> {
    counted(s, 4, w, |s, i, y| {
        one(cond(s, ops::less(s, i, 2), |_| Ok(vec![(y * x)?]), |_| Ok(vec![((y * y)? + w)?])))
    })
}

fn loop_in_branch(s: &Scope, x: &Output, w: &Output) -> Result<Output> {
    one(cond(
        s,
        ops::greater(s, x, 1.0),
        |s| Ok(vec![counted(s, 3, x, |_, _, y| (y * y)? * w)?]),
        |_| Ok(vec![x.clone()]),
    ))
}

fn list_in_loop(s: &Scope, x: &Output, w: &Output) -> Result<Output> {
    let values = ops::tensor_list_from_tensor(s, ops::pack(s, [x, w, &(x * w)?]), [] as [i32; 0])?;
    counted(s, 3, w, |s, i, y| {
        let item = ops::tensor_list_get_item(s, &values, i, [] as [i32; 0], DType::Float)?;
        (y * &item)? + x
    })
}

fn calls(s: &Scope, x: &Output, w: &Output) -> Result<Output> {
    let double_product = Function::new(s, "double_product", [TensorSpec::from(x), w.into()], |_, args| {
        Ok(vec![((&args[0] * &args[1])? + &(x * &args[1])?)?])
    })?;
    let inner = one(double_product.call(s, [x, w]))?;
    one(double_product.call(s, [&inner, w]))
}

/// A model with its gradients, and those of the first of them: five values.
fn built(model: Model) -> (Graph, Vec<Output>, Vec<Output>) {
    let graph = Graph::new();
    let s = graph.scope();
    let input =
        |name: &str| ops::Placeholder::new(DType::Float).shape([] as [i64; 0]).name(name).build(&s).unwrap();
    let (x, w) = (input("x"), input("w"));
    let y = model(&s, &x, &w).unwrap();
    let grads = gradients(&s, [&y], [&x, &w]).unwrap();
    let grads: Vec<Output> = grads.into_iter().map(|grad| grad.unwrap().dense().unwrap().clone()).collect();
    let curves = gradients(&s, [&grads[0]], [&x, &w]).unwrap();
    let zero = s.constant(0.0f32).unwrap();
    let mut fetches = vec![y];
    fetches.extend(grads);
    fetches.extend(curves.into_iter().map(|grad| grad.map_or(zero.clone(), |grad| grad.values().clone())));
    (graph, vec![x, w], fetches)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs().max(1.0)
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("ferroflow-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// The output of `oracle/graphs.py`.
fn ask_stock(arguments: &[&str]) -> Option<Value> {
    let output = Command::new(stock::python()?)
        .arg(stock::root().join("oracle/graphs.py"))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("the interpreter starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap_or_else(|| panic!("stock says nothing to {arguments:?}"));
    Some(serde_json::from_str(last).unwrap())
}

#[test]
fn models_have_the_values_and_gradients_that_stock_gives_them() {
    let Some(expected) = ask_stock(&["models"]) else { return };
    for (name, model) in MODELS {
        let (graph, inputs, fetches) = built(model);
        let feeds = [(&inputs[0], Tensor::scalar(1.5f32)), (&inputs[1], Tensor::scalar(0.5f32))];
        let found = run(&graph, &feeds, &fetches.iter().collect::<Vec<_>>());
        for (i, found) in found.iter().enumerate() {
            let (found, wanted) =
                (found.to_scalar::<f32>().unwrap() as f64, expected[name][i].as_f64().unwrap());
            assert!(close(found, wanted), "{name}, value {i}: {found}, but stock has {wanted}\n{graph:?}");
        }
    }
}

#[test]
fn stock_runs_the_models_and_gradients_that_we_build() {
    let directory = directory("flow");
    let (mut arguments, mut ours) = (vec!["run".to_owned()], Vec::new());
    for (name, model) in MODELS {
        let (graph, inputs, fetches) = built(model);
        let path = directory.join(format!("{name}.pb"));
        std::fs::write(&path, graph.to_graph_def().encode_to_vec()).unwrap();
        let feeds = [(&inputs[0], Tensor::scalar(1.5f32)), (&inputs[1], Tensor::scalar(0.5f32))];
        ours.push(run(&graph, &feeds, &fetches.iter().collect::<Vec<_>>()));
        let names: Vec<String> = fetches.iter().map(|output| output.name()).collect();
        let request = json!({"feeds": {"x:0": 1.5, "w:0": 0.5}, "fetches": names});
        arguments.extend([path.to_str().unwrap().to_owned(), request.to_string()]);
    }
    let Some(theirs) = ask_stock(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) else { return };
    for (at, (name, _)) in MODELS.iter().enumerate() {
        for (i, ours) in ours[at].iter().enumerate() {
            let (ours, theirs) = (ours.to_scalar::<f32>().unwrap() as f64, theirs[at][i].as_f64().unwrap());
            assert!(close(ours, theirs), "{name}, value {i}: {ours}, but stock computes {theirs}");
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_second_gradient_through_a_loop_reuses_what_the_first_kept() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let (x, w) = (s.constant(1.5f32)?, s.constant(0.5f32)?);
    let y = repeated(&s, &x, &w)?;
    let first = gradients(&s, [&y], [&x])?.remove(0).unwrap();
    let variables = y.op().output_count();
    let second = gradients(&s, [&y], [&x])?.remove(0).unwrap();
    assert_eq!(y.op().output_count(), variables);
    let out = run(&graph, &[], &[first.values(), second.values()]);
    assert_eq!(out[0].to_scalar::<f32>()?, out[1].to_scalar::<f32>()?);
    Ok(())
}

#[test]
fn a_gradient_that_changes_a_loop_comes_before_the_session() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let (x, w) = (s.constant(1.5f32)?, s.constant(0.5f32)?);
    let y = repeated(&s, &x, &w)?;
    let session = Session::new(&graph)?;
    assert!(session.eval(&y).is_ok());
    gradients(&s, [&y], [&x])?;
    let error = session.eval(&y).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("'while' (StatelessWhile) was changed by a gradient"), "{error}");
    Ok(())
}

#[test]
fn only_the_branch_taken_has_effects() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let counter = ops::VarHandleOp::new(DType::Float, [] as [i64; 0]).shared_name("counter").build(&s)?;
    let start = ops::assign_variable_op(&s, &counter, 0.0)?;
    let on = ops::placeholder(&s, DType::Bool)?;
    let added = |amount: f32| {
        let counter = &counter;
        move |s: &Scope| {
            let add = ops::assign_add_variable_op(s, counter, amount)?;
            Ok(vec![ops::read_variable_op(&s.control([&add]), counter, DType::Float)?])
        }
    };
    let now = one(cond(&s, &on, added(1.0), added(10.0)))?;
    let looped = last(WhileLoop::new().maximum_iterations(3).build(
        &s,
        [&now],
        |s, _| s.constant(true),
        |s, _| added(100.0)(s),
    ))?;
    let session = Session::new(&graph)?;
    session.execute(&start)?;
    for (value, expected) in [(true, 1.0), (false, 11.0), (true, 12.0)] {
        let found = session.run(&[(&on, Tensor::scalar(value))], &[&now])?;
        assert_eq!(found[0].to_scalar::<f32>()?, expected);
    }
    assert_eq!(session.run(&[(&on, true.into())], &[&looped])?[0].to_scalar::<f32>()?, 313.0);
    Ok(())
}

#[test]
fn a_body_may_change_shapes() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let start = s.constant([1.0f32, 2.0])?;
    let grown = counted(&s, 2, &start, |s, _, v| ops::concat_v2(s, [v, v], 0))?;
    assert_eq!(grown.shape().to_string(), "[?]");
    assert_eq!(run(&graph, &[], &[&grown])[0].elements(), 8);
    Ok(())
}

#[test]
fn mistakes_in_closures_are_named() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = s.constant(1.0f32)?;
    let yes = s.constant(true)?;
    let text =
        cond(&s, &yes, |_| Ok(vec![x.clone()]), |s| Ok(vec![s.constant(1i32)?])).unwrap_err().to_string();
    assert!(
        text.contains("result 0 of a conditional is float in one branch and int32 in the other"),
        "{text}"
    );
    let text = while_loop(&s, [&x], |_, _| Ok(x.clone()), |_, v| Ok(v.to_vec())).unwrap_err().to_string();
    assert!(text.contains("the condition of a loop is a bool, but"), "{text}");
    let text =
        while_loop(&s, [&x], |s, v| ops::less(s, &v[0], 2.0), |_, _| Ok(vec![])).unwrap_err().to_string();
    assert!(text.contains("next values of its 1 variables, but it returns 0"), "{text}");
    let mut leaked = None;
    cond(
        &s,
        &yes,
        |_| {
            let inner = (&x * 2.0)?;
            leaked = Some(ops::neg(&s, &x)?);
            Ok(vec![inner])
        },
        |_| Ok(vec![x.clone()]),
    )?;
    assert!((leaked.unwrap() + 1.0).is_ok(), "what was built around the branch stays usable");
    let mut inside = None;
    Function::new(&s, "f", [TensorSpec::from(&x)], |_, args| {
        inside = Some(args[0].clone());
        Ok(args.to_vec())
    })?;
    let text = ops::neg(&s, inside.as_ref().unwrap()).unwrap_err().to_string();
    assert!(text.contains("made in the body of a function; return it from the closure"), "{text}");
    Ok(())
}

#[test]
fn inputs_that_do_not_fit_are_refused_in_words_of_stock() {
    let Some(cases) = ask_stock(&["errors"]) else { return };
    for case in cases.as_array().unwrap() {
        let graph = Graph::new();
        let s = graph.scope();
        let op = case[0].as_str().unwrap();
        let shapes: Vec<Vec<i64>> = serde_json::from_value(case[1].clone()).unwrap();
        let mut node = s.op(op);
        for (i, shape) in shapes.into_iter().enumerate() {
            let dtype = if op == "Select" && i == 0 { DType::Bool } else { DType::Float };
            node = node.input(ops::Placeholder::new(dtype).shape(shape).build(&s));
        }
        let error = node.build().unwrap_err();
        let text = error.message().split("\n\tat ").next().unwrap();
        assert_eq!(text, case[2].as_str().unwrap());
    }
}

/// `w`, an initializer, a placeholder and a loss, with the collections that stock looks at.
fn small_model() -> Result<(Graph, Output)> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = ops::Placeholder::new(DType::Float).shape([None, Some(2)]).name("x").build(&s)?;
    let w = ops::VarHandleOp::new(DType::Float, [2, 1]).shared_name("w").name("w").build(&s)?;
    let start = s.named_constant("start", matrix(2, 1, vec![1.0, 2.0]))?;
    let assign = ops::AssignVariableOp::new().name("w/Assign").build(&s, &w, &start)?;
    let read = ops::ReadVariableOp::new(DType::Float).name("w/Read").build(&s, &w)?;
    let product = ops::mat_mul(&s, &x, &read)?;
    let loss = ops::Sum::new().name("loss").build(&s, ops::square(&s, &product), [0, 1])?;
    let variable = VariableDef {
        variable_name: "w:0".to_owned(),
        initializer_name: assign.name(),
        snapshot_name: read.name(),
        initial_value_name: start.name(),
        is_resource: true,
        trainable: true,
        ..Default::default()
    };
    for collection in ["variables", "trainable_variables"] {
        graph.add_to_collection(collection, CollectionItem::Bytes(variable.encode_to_vec().into()));
    }
    graph.add_to_collection("losses", CollectionItem::Node(loss.name()));
    Ok((graph, loss))
}

#[test]
fn stock_imports_a_meta_graph_of_ours() -> Result<()> {
    let (graph, loss) = small_model()?;
    let directory = directory("meta");
    let path = directory.join("graph.meta");
    std::fs::write(&path, graph.to_meta_graph_def(&MetaGraph::default()).encode_to_vec()).unwrap();
    let request = json!({
        "feeds": {"x:0": [[1.0, -1.0], [2.0, 0.5]]}, "fetches": [loss.name()], "targets": ["w/Assign"]
    });
    if let Some(values) = ask_stock(&["meta", path.to_str().unwrap(), &request.to_string()]) {
        assert_eq!(values[0].as_f64(), Some(1.0 + 9.0));
    }
    std::fs::remove_dir_all(directory).unwrap();
    Ok(())
}

#[test]
fn graphs_that_stock_wrote_are_imported_and_differentiated() -> Result<()> {
    let directory = directory("stock");
    let Some(expected) = ask_stock(&["write", directory.to_str().unwrap()]) else { return Ok(()) };
    let def = GraphDef::decode(&*std::fs::read(directory.join("graph.pb")).unwrap()).unwrap();
    Graph::new().import(&def)?;
    let graph = Graph::new();
    let meta = MetaGraphDef::decode(&*std::fs::read(directory.join("graph.meta")).unwrap()).unwrap();
    let rest = graph.import_meta_graph(&meta)?;
    assert!(rest.saver.is_some());
    assert_eq!(graph.collection("losses"), [CollectionItem::Node("loss:0".to_owned())]);
    let (x, loss, w) = (graph.output("x:0")?, graph.output("loss")?, graph.output("w")?);
    let grad = gradients(&graph.scope(), [&loss], [&w])?.remove(0).unwrap();
    let feed = (&x, matrix(2, 2, vec![1.0, -1.0, 2.0, 0.5]));
    let out = crate::graphs::run_after(&graph, &["w/Assign"], &[feed], &[&loss, grad.values()]);
    assert!(close(out[0].to_scalar::<f32>()? as f64, expected[0].as_f64().unwrap()), "{expected}");
    for (i, found) in out[1].flat::<f32>()?.iter().enumerate() {
        assert!(
            close(*found as f64, expected[1][i][0].as_f64().unwrap()),
            "{out:?}, but stock has {expected}"
        );
    }

    let def = meta.graph_def.unwrap();
    let twice = ferroflow::Import::new().prefix("copy").map("x:0", &x).outputs(["loss:0"]);
    let copy = twice.build(&graph.scope(), &def)?.remove(0);
    assert_eq!(copy.name(), "copy/loss:0");
    let text = graph.import(&def).unwrap_err().to_string();
    assert!(text.contains("already has a node named") && text.contains("import under a prefix"), "{text}");
    std::fs::remove_dir_all(directory).unwrap();
    Ok(())
}
