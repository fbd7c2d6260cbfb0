//! Graphs built in Rust: names, attributes, shapes and devices while building; values and gradients when run.

use ferroflow::{DType, Graph, Output, Result, Tensor, gradients, ops};
use ferroflow_core::Code;
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::Runtime;

/// Runs a graph in this process.
pub(crate) fn run(graph: &Graph, feeds: &[(&Output, Tensor)], fetches: &[&Output]) -> Vec<Tensor> {
    run_after(graph, &[], feeds, fetches)
}

/// Runs operations one by one, then a step.
pub(crate) fn run_after(
    graph: &Graph,
    first: &[&str],
    feeds: &[(&Output, Tensor)],
    fetches: &[&Output],
) -> Vec<Tensor> {
    let runtime = Local::new(ferroflow::registry(), PlanOptions::default()).unwrap();
    let mut session = runtime.session(&graph.to_graph_def()).unwrap();
    for target in first {
        session.run(Vec::new(), &[], &[(*target).to_owned()]).unwrap();
    }
    let feeds = feeds.iter().map(|(output, value)| (output.name(), value.clone())).collect();
    let fetches: Vec<String> = fetches.iter().map(|output| output.name()).collect();
    session.run(feeds, &fetches, &[]).unwrap()
}

pub(crate) fn matrix(rows: usize, columns: usize, values: Vec<f32>) -> Tensor {
    Tensor::new([rows, columns], values).unwrap()
}

#[test]
fn a_model_and_its_gradients_run() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = ops::Placeholder::new(DType::Float).shape([None, Some(2)]).name("x").build(&s)?;
    let w = s.named_constant("w", matrix(2, 1, vec![1.0, -2.0]))?;
    let b = s.named_constant("b", 0.5f32)?;
    let error = ((ops::mat_mul(&s, &x, &w)? + &b)? - 1.0)?;
    let loss = ops::sum(&s, ops::square(&s, &error), [0, 1])?;
    let grads = gradients(&s, [&loss], [&w, &b])?;
    let (dw, db) = (grads[0].as_ref().unwrap().dense().unwrap(), grads[1].as_ref().unwrap().dense().unwrap());
    assert_eq!(dw.shape().to_string(), "[2,1]");
    assert!(dw.name().starts_with("gradients/MatMul_grad/"), "{}", dw.name());
    let out = run(&graph, &[(&x, matrix(2, 2, vec![1.0, 2.0, 3.0, 4.0]))], &[&loss, dw, db]);
    // Errors are (1 - 4 - 0.5, 3 - 8 - 0.5), gradients twice those times x.
    assert_eq!(out[0].flat::<f32>()?, [3.5 * 3.5 + 5.5 * 5.5]);
    assert_eq!(out[1].flat::<f32>()?, [-7.0 - 33.0, -14.0 - 44.0]);
    assert_eq!(out[2].flat::<f32>()?, [-18.0]);
    Ok(())
}

#[test]
fn contributions_add_up_and_stops_hold() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = s.constant(3.0f32)?;
    let square = ops::square(&s, &x)?;
    let y = ((&square * &x)? + &x)?;
    let whole = gradients(&s, [&y], [&x])?.remove(0).unwrap();
    let held = ferroflow::Gradients::new().stop([&square]).build(&s, [&y], [&x])?.remove(0).unwrap();
    let unrelated = gradients(&s, [&y], [&s.constant(1.0f32)?])?;
    assert!(unrelated[0].is_none());
    let out = run(&graph, &[], &[whole.values(), held.values()]);
    assert_eq!((out[0].to_scalar::<f32>()?, out[1].to_scalar::<f32>()?), (28.0, 10.0));
    Ok(())
}

#[test]
fn names_devices_and_dependencies_follow_the_scope() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let hidden = s.scope("hidden").device("/job:ps/task:1");
    let a = hidden.constant(1.0f32)?;
    let first = hidden.device("/cpu:0").control([&a]).op("NoOp").build()?;
    assert_eq!((a.name().as_str(), first.name().as_str()), ("hidden/Const:0", "hidden/NoOp"));
    assert_eq!(
        (a.op().device(), first.device()),
        ("/job:ps/task:1".into(), "/job:ps/task:1/device:CPU:0".into())
    );
    assert_eq!(first.control_inputs(), [a.op().clone()]);
    assert_eq!(s.scope("hidden").prefix(), "hidden_1/");
    assert_eq!(s.scope("hidden/").prefix(), "hidden/");
    let beside = s.colocate_with(&a).constant(2.0f32)?;
    assert_eq!(beside.op().attr::<Vec<String>>("_class")?, ["loc:@hidden/Const"]);
    assert_eq!(beside.op().device(), "/job:ps/task:1");
    Ok(())
}

#[test]
fn mistakes_name_the_thing_and_the_line() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let a = s.constant(matrix(2, 3, vec![0.0; 6]))?;
    let b = s.constant(matrix(4, 5, vec![0.0; 20]))?;
    let text = ops::mat_mul(&s, &a, &b).unwrap_err().to_string();
    assert!(text.contains("Dimensions must be equal, but are 3 and 4"), "{text}");
    assert!(text.contains("for '{{node MatMul}} = MatMul[T=DT_FLOAT, "), "{text}");
    assert!(text.contains("](Const, Const_1)' with input shapes: [2,3], [4,5]."), "{text}");
    assert!(text.contains("graphs.rs:"), "{text}");

    let text = (&a + &s.constant(1i32)?).unwrap_err().to_string();
    assert!(text.contains("input 'y' of AddV2 is int32, but T is float"), "{text}");

    let other = Graph::new();
    let foreign = other.scope().constant(1.0f32)?;
    let text = (&a + &foreign).unwrap_err().to_string();
    assert!(text.contains("'Const:0' belongs to another graph"), "{text}");

    let text = s.device("/job:ps/tusk:0").constant(1.0f32).unwrap_err().to_string();
    assert!(text.contains("/job:ps/tusk:0"), "{text}");

    let text = s.op("MatMul").input(&a).input(&b).attr("transpose_c", true).build().unwrap_err().to_string();
    assert!(text.contains("MatMul has no attribute 'transpose_c'"), "{text}");

    let rounded = ops::rint(&s, &a)?;
    let text = gradients(&s, [&ops::bitcast(&s, &rounded, DType::Int32)?], [&a]).unwrap_err().to_string();
    assert!(text.contains("int32"), "{text}");
    let unique = ops::unique(&s, s.constant([1.0f32, 1.0])?)?;
    let error = gradients(&s, [&unique.y], [&unique.y.op().inputs()[0]]).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(
        error.message().contains("No gradient defined for operation 'Unique' (op type: Unique)"),
        "{error}"
    );
    Ok(())
}
