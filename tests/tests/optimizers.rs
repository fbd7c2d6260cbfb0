//! Optimizers, moving averages, schedules, clipping and synchronous replicas against what stock did to the same small
//! models (`oracle/optimizers.py`): values of every variable after every step, and the nodes that were added.

use ferroflow::optimizers::*;
use ferroflow::variables::{global_variables, global_variables_initializer, trainable_variables};
use ferroflow::{
    Code, DType, Grad, Graph, IndexedSlices, Operation, Output, Result, RunOptions, Scope, Session, Shape,
    Tensor, Variable, clip, initializers, ops, schedules,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

const STEPS: usize = 5;

/// Stock's record of one model.
#[derive(Default)]
struct Model {
    kind: String,
    nodes: BTreeSet<String>,
    lines: Vec<Vec<String>>,
    values: BTreeMap<(usize, String), Vec<f64>>,
}

fn read(case: &str) -> Vec<Model> {
    let path = format!("{}/../testdata/optimizers/{case}.tsv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut models: Vec<Model> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "model" {
            models.push(Model { kind: fields[1..].join(" "), ..Model::default() });
            continue;
        }
        if models.is_empty() {
            models.push(Model::default());
        }
        let model = models.last_mut().unwrap();
        match fields[0] {
            "node" => drop(model.nodes.insert(fields[1..].join("\t"))),
            "value" => {
                let numbers = fields[3].split(' ').map(|number| number.parse().unwrap()).collect();
                model.values.insert((fields[1].parse().unwrap(), fields[2].to_owned()), numbers);
            }
            _ => model.lines.push(fields.iter().map(|field| (*field).to_owned()).collect()),
        }
    }
    models
}

/// The numbers that both sides use.
fn iota(dims: &[i64], dtype: DType) -> Tensor {
    let shape = Shape::new(dims.iter().copied()).unwrap();
    let numbers = (0..shape.elements()).map(|i| ((i * 7 % 11) as f64 - 5.0) / 8.0);
    match dtype {
        DType::Double => Tensor::new(shape, numbers.collect::<Vec<f64>>()).unwrap(),
        _ => Tensor::new(shape, numbers.map(|x| x as f32).collect::<Vec<f32>>()).unwrap(),
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::Float => tensor.flat::<f32>().unwrap().iter().map(|x| f64::from(*x)).collect(),
        DType::Double => tensor.flat::<f64>().unwrap().to_vec(),
        _ => tensor.to_i64s().unwrap().iter().map(|x| *x as f64).collect(),
    }
}

#[track_caller]
fn assert_close(what: &str, ours: &[f64], stock: &[f64], dtype: DType) {
    let tolerance = if dtype == DType::Double { 1e-12 } else { 2e-5 };
    let close = |(a, b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (1.0 + b.abs())
    };
    assert!(
        ours.len() == stock.len() && ours.iter().zip(stock).all(close),
        "{what}: {ours:?}, but stock has {stock:?}"
    );
}

fn variable(s: &Scope, name: &str, value: Tensor, resource: bool) -> Result<Variable> {
    let dims: Vec<i64> = value.shape().dims().to_vec();
    let spec =
        Variable::spec(name, dims).dtype(value.dtype()).initializer(initializers::Initializer::value(value));
    if resource { spec.build(s) } else { spec.reference().build(s) }
}

fn counter(s: &Scope, resource: bool) -> Result<Variable> {
    let spec = Variable::spec("global_step", [])
        .dtype(DType::Int64)
        .initializer(initializers::zeros())
        .trainable(false)
        .collections(["variables", "global_step"]);
    if resource { spec.build(s) } else { spec.reference().build(s) }
}

/// The name without the number that depends on how many constants the model has.
fn unnumbered(name: &str) -> String {
    match name.strip_prefix("Const_") {
        Some(rest) => format!("Const{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => name.to_owned(),
    }
}

/// The nodes that were added since, as the oracle describes them.
fn nodes(graph: &Graph, before: &HashSet<String>, variables: &[String], skip: &str) -> BTreeSet<String> {
    let name_of = |operation: &Operation, output: Option<&Output>| {
        if operation.op_type() == "ReadVariableOp" {
            return format!("read({})", operation.inputs()[0].op().name());
        }
        let name = operation.name();
        let known = !before.contains(&name)
            || variables.iter().any(|variable| name == *variable || name == format!("{variable}/read"));
        match (known, output) {
            (false, _) => "outside".to_owned(),
            (true, Some(output)) => unnumbered(&output.name()),
            (true, None) => unnumbered(&name),
        }
    };
    let mut lines = BTreeSet::new();
    for operation in graph.operations() {
        let (name, op) = (operation.name(), operation.op_type());
        if before.contains(&name) || op == "ReadVariableOp" || (!skip.is_empty() && name.starts_with(skip)) {
            continue;
        }
        let inputs: Vec<String> =
            operation.inputs().iter().map(|input| name_of(input.op(), Some(input))).collect();
        let mut controls: Vec<String> =
            operation.control_inputs().iter().map(|control| name_of(control, None)).collect();
        controls.sort();
        let class: Vec<String> = operation.attr("_class").unwrap_or_default();
        let locking = match operation.attr::<bool>("use_locking") {
            Ok(true) => "True",
            Ok(false) => "False",
            Err(_) => "",
        };
        lines.insert(
            [
                unnumbered(&name),
                op,
                inputs.join(" "),
                controls.join(" "),
                class.join(" "),
                locking.to_owned(),
            ]
            .join("\t"),
        );
    }
    lines
}

#[track_caller]
fn assert_same_nodes(case: &str, ours: &BTreeSet<String>, stock: &BTreeSet<String>) {
    let show = |lines: Vec<&String>| lines.iter().map(|line| format!("  {line}\n")).collect::<String>();
    let (extra, missing): (Vec<_>, Vec<_>) =
        (ours.difference(stock).collect(), stock.difference(ours).collect());
    assert!(
        extra.is_empty() && missing.is_empty(),
        "{case}: ours alone:\n{}stock's alone:\n{}",
        show(extra),
        show(missing)
    );
}

fn names(graph: &Graph) -> HashSet<String> {
    graph.operations().iter().map(Operation::name).collect()
}

/// Builds the models that stock built with an optimizer, and compares nodes and training.
fn check<O: Optimizer>(case: &str, make: impl Fn(&Scope, &Variable) -> Result<O>) -> Result<()> {
    for model in read(case) {
        let what = format!("{case} {}", model.kind);
        let (sparse, resource) = (model.kind.starts_with("sparse"), model.kind.ends_with("resource"));
        let dtype = if case.ends_with("double") { DType::Double } else { DType::Float };
        let graph = Graph::new();
        let s = graph.scope();
        let step = counter(&s, resource)?;
        let (optimizer, loss, grads) = if sparse {
            let table = variable(&s, "table", iota(&[5, 2], dtype), resource)?;
            let indices = s.constant([0i32, 3, 0, 1])?;
            let rows = (table.gather(&s, &indices)? - iota(&[4, 2], dtype))?;
            let loss = ops::sum(&s, ops::square(&s, &rows), [0, 1])?;
            let dense_shape = Some(s.constant([5i32, 2])?);
            let grad = IndexedSlices { values: (&rows * 2.0)?, indices, dense_shape };
            (make(&s, &step)?, loss, vec![(Some(Grad::Sparse(grad)), table)])
        } else {
            let w = variable(&s, "w", iota(&[3, 2], dtype), resource)?;
            let b = variable(&s, "b", iota(&[2], dtype), resource)?;
            let x = s.constant(iota(&[4, 3], dtype))?;
            let error = ((ops::mat_mul(&s, &x, &w)? + b.value())? - iota(&[4, 2], dtype))?;
            let loss = ops::sum(&s, ops::square(&s, &error), [0, 1])?;
            let optimizer = make(&s, &step)?;
            let grads = optimizer.compute_gradients(&s, &loss, &trainable_variables(&graph)?)?;
            (optimizer, loss, grads)
        };
        let before = names(&graph);
        let train = optimizer.apply_gradients(&s, &grads, Some(&step))?;
        let watched = global_variables(&graph)?;
        if !model.nodes.is_empty() {
            let variables: Vec<String> = watched.iter().map(Variable::name).collect();
            assert_same_nodes(&what, &nodes(&graph, &before, &variables, ""), &model.nodes);
        }
        let stock: BTreeSet<&str> =
            model.values.keys().map(|(_, name)| name.as_str()).filter(|name| *name != "loss").collect();
        let ours: Vec<String> = watched.iter().map(Variable::name).collect();
        assert_eq!(ours.iter().map(String::as_str).collect::<BTreeSet<_>>(), stock, "{what}");

        let init = global_variables_initializer(&s)?;
        let session = Session::new(&graph)?;
        session.execute(&init)?;
        for i in 0..=STEPS {
            let mut fetches = vec![&loss];
            fetches.extend(watched.iter().map(Variable::value));
            let fetched = session.run(&[], &fetches)?;
            for (name, value) in ["loss".to_owned()].iter().chain(&ours).zip(&fetched) {
                let expected = &model.values[&(i, name.clone())];
                assert_close(&format!("{what}: {name} after {i} steps"), &numbers(value), expected, dtype);
            }
            session.execute(&train)?;
        }
    }
    Ok(())
}

#[test]
fn gradient_descent_and_momentum_are_stocks() -> Result<()> {
    check("gradient_descent", |_, _| Ok(GradientDescent::new(0.05)))?;
    check("momentum", |_, _| Ok(Momentum::new(0.02, 0.9)))?;
    check("nesterov", |_, _| Ok(Momentum::new(0.02, 0.9).nesterov(true)))?;
    check("proximal_gradient_descent", |_, _| Ok(ProximalGradientDescent::new(0.05).l1(0.01).l2(0.02)))
}

#[test]
fn adagrad_and_its_kin_are_stocks() -> Result<()> {
    check("adagrad", |_, _| Ok(Adagrad::new(0.1)))?;
    check("adagrad_da", |_, step| Ok(AdagradDa::new(0.1, step).l1(0.01).l2(0.02)))?;
    check("adadelta", |_, _| Ok(Adadelta::new(1.0)))?;
    check("proximal_adagrad", |_, _| Ok(ProximalAdagrad::new(0.1).l1(0.01).l2(0.02)))
}

#[test]
fn adam_is_stocks() -> Result<()> {
    check("adam", |_, _| Ok(Adam::new(0.01)))?;
    let steps = Adam::new(0.02).beta1(0.8).beta2(0.95).epsilon(1e-4).use_locking(true).name("Steps");
    check("adam_locking", |_, _| Ok(steps.clone()))?;
    check("adam_double", |_, _| Ok(Adam::new(0.01)))
}

#[test]
fn rms_prop_and_ftrl_are_stocks() -> Result<()> {
    check("rms_prop", |_, _| Ok(RmsProp::new(0.05).momentum(0.5)))?;
    check("rms_prop_centered", |_, _| Ok(RmsProp::new(0.05).decay(0.8).centered(true)))?;
    check("ftrl", |_, _| Ok(Ftrl::new(0.1).l1(0.01).l2(0.02)))?;
    check("ftrl_v2", |_, _| Ok(Ftrl::new(0.1).l2_shrinkage(0.03).beta(0.2)))
}

#[test]
fn optimizers_that_stock_has_as_ops_only_do_what_the_ops_do() -> Result<()> {
    check("adam_amsgrad", |_, _| Ok(Adam::new(0.01).amsgrad(true)))?;
    check("ada_max", |_, _| Ok(AdaMax::new(0.01)))?;
    check("keras_momentum", |_, _| Ok(KerasMomentum::new(0.02, 0.9)))?;
    check("keras_nesterov", |_, _| Ok(KerasMomentum::new(0.02, 0.9).nesterov(true)))?;
    check("add_sign", |_, _| Ok(AddSign::new(0.02).sign_decay(0.5)))?;
    check("power_sign", |_, _| Ok(PowerSign::new(0.02).base(2.0).sign_decay(0.5)))
}

#[test]
fn a_schedule_is_a_learning_rate() -> Result<()> {
    check("scheduled", |s, step| {
        Ok(Momentum::new(schedules::exponential_decay(s, 0.05, step, 2, 0.5, false)?, 0.9))
    })
}

#[test]
fn schedules_are_stocks() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let step = ops::Placeholder::new(DType::Int64).shape([0i64; 0]).build(&s)?;
    let rates = [
        ("exponential", schedules::exponential_decay(&s, 0.1, &step, 3, 0.9, false)?),
        ("exponential_staircase", schedules::exponential_decay(&s, 0.1, &step, 3, 0.9, true)?),
        ("natural_exp", schedules::natural_exp_decay(&s, 0.1, &step, 3, 0.5, false)?),
        ("natural_exp_staircase", schedules::natural_exp_decay(&s, 0.1, &step, 3, 0.5, true)?),
        ("inverse_time", schedules::inverse_time_decay(&s, 0.1, &step, 3, 0.5, false)?),
        ("inverse_time_staircase", schedules::inverse_time_decay(&s, 0.1, &step, 3, 0.5, true)?),
        ("piecewise", schedules::piecewise_constant(&s, &step, &[2, 5], &[1.0, 0.5, 0.1])?),
        ("polynomial", schedules::polynomial_decay(&s, 0.1, &step, 6, 0.01, 2.0, false)?),
        ("polynomial_cycle", schedules::polynomial_decay(&s, 0.1, &step, 3, 0.01, 0.5, true)?),
        ("cosine", schedules::cosine_decay(&s, 0.1, &step, 6, 0.1)?),
        ("cosine_restarts", schedules::cosine_decay_restarts(&s, 0.1, &step, 2, 2.0, 0.9, 0.1)?),
        ("cosine_restarts_equal", schedules::cosine_decay_restarts(&s, 0.1, &step, 3, 1.0, 0.9, 0.1)?),
        ("linear_cosine", schedules::linear_cosine_decay(&s, 0.1, &step, 6, 0.5, 0.1, 0.01)?),
    ];
    let stock = read("schedules").remove(0);
    assert_eq!(stock.values.len(), 12 * rates.len());
    let session = Session::new(&graph)?;
    let fetches: Vec<&Output> = rates.iter().map(|(_, rate)| rate).collect();
    for i in 0..12 {
        let values = session.run(&[(&step, Tensor::scalar(i as i64))], &fetches)?;
        for ((name, _), value) in rates.iter().zip(&values) {
            let expected = &stock.values[&(i, (*name).to_owned())];
            assert_close(&format!("{name} in step {i}"), &numbers(value), expected, DType::Float);
        }
    }
    Ok(())
}

#[test]
fn moving_averages_are_stocks() -> Result<()> {
    for model in read("moving_average") {
        let graph = Graph::new();
        let s = graph.scope();
        if model.kind.starts_with("debiased") {
            let x = ops::Placeholder::new(DType::Float).shape([3]).name("x").build(&s)?;
            let mut averages = ExponentialMovingAverage::new(0.9).zero_debias(true);
            let update = averages.apply_to_outputs(&s, std::slice::from_ref(&x))?;
            let init = global_variables_initializer(&s)?;
            let session = Session::new(&graph)?;
            session.execute(&init)?;
            for i in 0..STEPS {
                let scaled =
                    numbers(&iota(&[3], DType::Float)).iter().map(|v| *v as f32 * i as f32).collect();
                session.step().feed(&x, Tensor::vector(scaled)).target(&update).run()?;
                compare_variables(&session, &graph, &model, i)?;
            }
            continue;
        }
        let resource = model.kind.ends_with("resource");
        let step = counter(&s, resource)?;
        let w = variable(&s, "w", iota(&[3], DType::Float), resource)?;
        let grad = s.constant(Tensor::vector(
            numbers(&iota(&[3], DType::Float)).iter().map(|v| *v as f32 - 1.0).collect::<Vec<f32>>(),
        ))?;
        let grow = GradientDescent::new(1.0);
        let grow = grow.apply_gradients(&s, &[(Some(Grad::Dense(grad)), w.clone())], Some(&step))?;
        let mut averages = ExponentialMovingAverage::new(0.9);
        if model.kind.starts_with("counted") {
            averages = averages.num_updates(&step);
        }
        let before = names(&graph);
        let update = averages.apply(&s, &[w])?;
        if resource {
            let variables: Vec<String> = global_variables(&graph)?.iter().map(Variable::name).collect();
            assert_same_nodes(&model.kind, &nodes(&graph, &before, &variables, ""), &model.nodes);
        }
        let restored: Vec<Vec<String>> = averages
            .variables_to_restore(&graph)?
            .into_iter()
            .map(|(name, variable)| vec!["restore".to_owned(), name, variable.name()])
            .collect();
        assert_eq!(restored, model.lines);
        let init = global_variables_initializer(&s)?;
        let session = Session::new(&graph)?;
        session.execute(&init)?;
        for i in 0..=STEPS {
            compare_variables(&session, &graph, &model, i)?;
            session.execute(&grow)?;
            session.execute(&update)?;
        }
    }
    Ok(())
}

fn compare_variables(session: &Session, graph: &Graph, model: &Model, step: usize) -> Result<()> {
    for variable in global_variables(graph)? {
        let value = session.eval(variable.value())?;
        let expected = &model.values[&(step, variable.name())];
        let what = format!("{}: {} after {step} steps", model.kind, variable.name());
        assert_close(&what, &numbers(&value), expected, variable.dtype());
    }
    Ok(())
}

#[test]
fn clipping_is_stocks() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = s.constant(iota(&[3, 2], DType::Float))?;
    let y = Grad::Dense(s.constant(iota(&[4], DType::Float))?);
    let rows = Grad::Sparse(IndexedSlices {
        values: x.clone(),
        indices: s.constant([0i32, 2, 0])?,
        dense_shape: Some(s.constant([3i32, 2])?),
    });
    let x = Grad::Dense(x);
    let all = [Some(x.clone()), None, Some(y.clone()), Some(rows.clone())];
    let zeros = Grad::Dense(s.constant([0.0f32, 0.0])?);
    let mut made: Vec<(String, Output)> = Vec::new();
    let mut add = |name: &str, output: &Output| made.push((name.to_owned(), output.clone()));
    add("value", clip::clip_by_value(&s, &x, -0.3, 0.2)?.values());
    add("value_rows", clip::clip_by_value(&s, &rows, -0.3, 0.2)?.values());
    add("norm_zeros", clip::clip_by_norm(&s, &zeros, 1.0)?.values());
    add("norm_axes", clip::clip_by_norm_along(&s, &x, 0.5, &[1])?.values());
    add("norm_rows", clip::clip_by_norm(&s, &rows, 0.5)?.values());
    add("norm_negative", clip::clip_by_norm(&s, &x, -1.0)?.values());
    add("average_norm_near", clip::clip_by_average_norm(&s, &x, 0.05)?.values());
    add("average_norm_far", clip::clip_by_average_norm(&s, &x, 10.0)?.values());
    add("global_norm", &clip::global_norm(&s, &all)?);
    for (name, norm) in [("far", 10.0), ("near", 0.5)] {
        add(&format!("norm_{name}"), clip::clip_by_norm(&s, &x, norm)?.values());
        let (clipped, length) = clip::clip_by_global_norm(&s, &all, norm)?;
        assert!(clipped[1].is_none());
        add(&format!("global_{name}_x"), clipped[0].as_ref().unwrap().values());
        add(&format!("global_{name}_y"), clipped[2].as_ref().unwrap().values());
        add(
            &format!("global_{name}_rows"),
            clipped[3].as_ref().unwrap().sparse().map(|rows| &rows.values).unwrap(),
        );
        add(&format!("global_{name}_norm"), &length);
    }
    let infinite = Grad::Dense(s.constant([1.0f32, f32::INFINITY])?);
    let (clipped, _) = clip::clip_by_global_norm(&s, &[Some(infinite), Some(y)], 1.0)?;
    add("infinite_x", clipped[0].as_ref().unwrap().values());
    add("infinite_y", clipped[1].as_ref().unwrap().values());
    let stock = read("clipping").remove(0);
    assert_eq!(stock.values.len(), made.len());
    let fetches: Vec<&Output> = made.iter().map(|(_, output)| output).collect();
    let values = Session::new(&graph)?.run(&[], &fetches)?;
    for ((name, _), value) in made.iter().zip(&values) {
        assert_close(name, &numbers(value), &stock.values[&(0, name.clone())], DType::Float);
    }
    Ok(())
}

#[test]
fn synchronous_replicas_have_stocks_accumulators_and_queue() -> Result<()> {
    for model in read("sync_replicas") {
        let graph = Graph::new();
        let s = graph.scope();
        let step = counter(&s, true)?;
        let w = variable(&s, "w", iota(&[3, 2], DType::Float), true)?;
        let values = s.constant(iota(&[3, 2], DType::Float))?;
        let grad = if model.kind.starts_with("sparse") {
            let (indices, shape) = (s.constant([0i32, 2, 0])?, s.constant([3i32, 2])?);
            Grad::Sparse(IndexedSlices { values, indices, dense_shape: Some(shape) })
        } else {
            Grad::Dense(values)
        };
        let before = names(&graph);
        let sync = SyncReplicas::new(GradientDescent::new(0.1), 2).total_replicas(3);
        sync.apply_gradients(&s, &[(Some(grad), w)], &step)?;
        let variables = ["w", "global_step", "sync_rep_local_step"].map(str::to_owned);
        let ours = nodes(&graph, &before, &variables, "report_uninitialized");
        assert_same_nodes(&model.kind, &ours, &model.nodes);
        for line in &model.lines {
            let operation = graph.operation(&line[1])?;
            if line[2] == "shared_name" {
                assert_eq!(format!("s: {:?}", operation.attr::<String>("shared_name")?), line[3]);
            }
        }
    }
    Ok(())
}

/// Two workers of one server, each in a session of its own, with one gradient each per step.
#[test]
fn synchronous_replicas_average_fresh_gradients() -> Result<()> {
    let server = ferroflow::Server::local()?;
    let build = |slope: f32| -> Result<(Graph, SyncTrainOp, Variable, Operation)> {
        let graph = Graph::new();
        let s = graph.scope();
        let step = counter(&s, true)?;
        let w = Variable::new(&s, "w", [2], initializers::zeros())?;
        let grad = Grad::Dense(s.constant([slope, -slope])?);
        let sync = SyncReplicas::new(GradientDescent::new(1.0), 2);
        let train = sync.apply_gradients(&s, &[(Some(grad), w.clone())], &step)?;
        let init = global_variables_initializer(&s)?;
        Ok((graph, train, w, init))
    };
    let run = |session: &Session, operation: &Operation| {
        let options = RunOptions::new().timeout(Duration::from_secs(30));
        session.step().target(operation).options(options).run().map(drop)
    };
    let (graph, chief, w, init) = build(1.0)?;
    let session = Session::connect(server.target(), &graph)?;
    assert_eq!(session.eval(&chief.ready_for_local_init)?.shape().elements(), 2);
    run(&session, &init)?;
    assert_eq!(session.eval(&chief.ready_for_local_init)?.shape().elements(), 0);
    run(&session, &chief.chief_init)?;
    run(&session, &chief.init_tokens)?;
    run(&session, &chief.train)?;
    run(&session, &chief.train)?;
    run(&session, &chief.chief_queue)?;
    assert_eq!(session.eval(w.value())?.flat::<f32>()?, [-1.0, 1.0]);

    // The chief's worker does not know of the new step yet: its gradient is dropped, its token tells it.
    run(&session, &chief.train)?;
    let (graph, worker, _, _) = build(3.0)?;
    let worker_session = Session::connect(server.target(), &graph)?;
    run(&worker_session, &worker.local_step_init)?;
    run(&worker_session, &worker.train)?;
    // There is no token left, so this waits for the chief's step.
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| run(&session, &chief.train));
        run(&session, &chief.chief_queue)?;
        waiting.join().unwrap()
    })?;
    assert_eq!(session.eval(w.value())?.flat::<f32>()?, [-3.0, 3.0]);
    run(&session, &chief.cancel)
}

#[test]
fn slots_are_found_again_and_lie_with_their_variables() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let ps = s.device("/job:ps/task:1");
    let w = variable(&ps, "w", iota(&[3], DType::Float), true)?;
    let grads = [(Some(Grad::Dense(ops::ones_like(&s, &w)?)), w.clone())];
    let optimizer = Adam::new(0.1);
    assert!(optimizer.slot(&w, "m").is_none());
    optimizer.apply_gradients(&s, &grads, None)?;
    let m = optimizer.slot(&w, "m").unwrap();
    assert_eq!((m.name().as_str(), m.op().device().as_str()), ("w/Adam", "/job:ps/task:1"));
    assert_eq!(optimizer.slot(&w, "v").unwrap().name(), "w/Adam_1");
    assert_eq!(optimizer.rule()?.slot_names(), ["m", "v"]);
    let count = global_variables(&graph)?.len();
    let again = optimizer.apply_gradients(&s, &grads, None)?;
    assert_eq!(again.name(), "Adam_1");
    assert_eq!(global_variables(&graph)?.len(), count, "the second update uses the slots of the first");
    let own: Vec<String> = optimizer.rule()?.variables(&graph).iter().map(Variable::name).collect();
    assert_eq!(own, ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]);
    Ok(())
}

#[test]
fn mistakes_name_the_thing_and_the_fix() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let loss = s.constant(1.0f32)?;
    let text = GradientDescent::new(0.1).minimize(&s, &loss, None).unwrap_err().to_string();
    assert!(text.contains("No variables to optimize") && text.contains("Variable::new"), "{text}");

    let w = variable(&s, "w", iota(&[3], DType::Float), true)?;
    let error = GradientDescent::new(0.1).minimize(&s, &loss, None).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("No gradients provided for any variable: w."), "{error}");

    let apply = |grad: Grad, variable: &Variable| {
        GradientDescent::new(0.1).apply_gradients(&s, &[(Some(grad), variable.clone())], None).unwrap_err()
    };
    let text = apply(Grad::Dense(s.constant([1.0f64; 3])?), &w).to_string();
    assert!(
        text.contains("the gradient of 'w' is double, but the variable is float; convert it with ops::cast"),
        "{text}"
    );
    let text = apply(Grad::Dense(s.constant([1.0f32; 4])?), &w).to_string();
    assert!(text.contains("'w' has shape [4], but the variable has shape [3]"), "{text}");
    let whole = variable(&s, "n", Tensor::vector(vec![1i32]), true)?;
    let text = apply(Grad::Dense(s.constant([1i32])?), &whole).to_string();
    assert!(text.contains("Invalid type int32 for n, expected: half"), "{text}");
    let other = Graph::new();
    let foreign = variable(&other.scope(), "w", iota(&[3], DType::Float), true)?;
    let text = apply(Grad::Dense(s.constant([1.0f32; 3])?), &foreign).to_string();
    assert!(text.contains("'w' belongs to another graph"), "{text}");

    let text = Adagrad::new(0.1).initial_accumulator(0.0).minimize(&s, &loss, None).unwrap_err().to_string();
    assert!(text.contains("initial_accumulator must be positive, but is 0"), "{text}");
    let reference = variable(&s, "r", iota(&[3], DType::Float), false)?;
    let grads = [(Some(Grad::Dense(s.constant([1.0f32; 3])?)), reference)];
    let error = Adam::new(0.1).amsgrad(true).apply_gradients(&s, &grads, None).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("make it a resource variable"), "{error}");

    let sync = SyncReplicas::new(GradientDescent::new(0.1), 4).total_replicas(2).init_tokens(1);
    let grads = [(Some(Grad::Dense(s.constant([1.0f32; 3])?)), w)];
    let text = sync.apply_gradients(&s, &grads, &counter(&s, true)?).unwrap_err().to_string();
    assert!(text.contains("Too few tokens to finish the first step: 1 (given) vs 2 (needed)"), "{text}");
    let text = clip::clip_by_global_norm(&s, &[None], 1.0).unwrap_err().to_string();
    assert!(text.contains("no gradients to measure"), "{text}");
    Ok(())
}
