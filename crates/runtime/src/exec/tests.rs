//! Steps of toy ops: order, branches, loops, function calls, waits, failures, cancellation.

use crate::testing::{block_on, env, graph, graph_def, run, signature, step};
use crate::{Executable, PartialHub, PlanOptions};
use ferroflow_core::{Code, DType, Tensor, status};
use ferroflow_proto::tensorflow::{FunctionDef, FunctionDefLibrary, OpDef, op_def};
use futures_util::FutureExt;

/// Adds 1 to `i` until it reaches `limit`.
fn counting_loop(limit: i32, parallel: i32) -> String {
    format!(
        "zero = Value() value=0
         limit = Value() value={limit}
         one = Value() value=1
         i = Enter(zero) frame_name=loop parallel_iterations={parallel}
         bound = Enter(limit) frame_name=loop is_constant=true parallel_iterations={parallel}
         step = Enter(one) frame_name=loop is_constant=true parallel_iterations={parallel}
         merged = Merge(i, next)
         goes_on = Less(merged, bound)
         switch = Switch(merged, goes_on)
         sum = Add(switch:1, step)
         next = NextIteration(sum)
         out = Exit(switch)"
    )
}

#[test]
fn values_flow_along_edges() {
    let text = "a = Value() value=2\nb = Value() value=3\nc = Add(a, b)\nd = Add(c, c)";
    assert_eq!(run(text, "d c").unwrap(), [10, 5]);
}

#[test]
fn ops_that_only_stock_has_are_refused_by_steps_that_need_them() {
    let text = "a = Value() value=1
         odd = Elsewhere(a, a) N=2
         b = Add(a, odd:2)
         c = Add(a, a)";
    assert_eq!(run(text, "c").unwrap(), [2]);
    let refused = run(text, "b").unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("'Elsewhere' of node 'odd'"), "{refused}");
    let graph = graph(text);
    let env = env(&graph);
    let fed = signature("odd:2", "b", "");
    let executable = Executable::build(&graph, &fed, &PlanOptions::default(), &env).unwrap();
    let outputs = block_on(executable.start(vec![Tensor::scalar(5i32)], step(&env), None).unwrap()).unwrap();
    assert_eq!(outputs[0].to_scalar::<i32>().unwrap(), 6);
    assert_eq!(run("a = Nowhere()", "a").unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn ops_that_only_stock_has_may_be_in_a_branch_not_taken() {
    let branch = |left: i32, right: i32| {
        format!(
            "a = Value() value={left}
             b = Value() value={right}
             less = Less(a, b)
             x = Effect(a)
             switch = Switch(x, less)
             odd = Elsewhere(switch, switch) N=2
             yes = Add(switch:1, b)
             merge = Merge(odd:2, yes)"
        )
    };
    assert_eq!(run(&branch(1, 5), "merge").unwrap(), [6]);
    let refused = run(&branch(5, 1), "merge").unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("'Elsewhere' of node 'odd'"), "{refused}");
    assert!(refused.message().contains("docs/compatibility.md"), "{refused}");
}

#[test]
fn a_large_output_is_computed_on_a_compute_thread() {
    for (elements, computes) in [(10, 0), (10_000_000, 1)] {
        let graph =
            graph(&format!("x = Effect(one)\none = Value() value=1\nbulk = Bulk(x) value={elements}"));
        let env = env(&graph);
        let executable =
            Executable::build(&graph, &signature("", "bulk", ""), &PlanOptions::default(), &env).unwrap();
        let done = block_on(executable.start(Vec::new(), step(&env), None).unwrap().near_caller()).unwrap();
        assert_eq!(done[0].to_scalar::<i32>().unwrap(), computes, "{elements} elements");
    }
}

#[test]
fn one_branch_runs_and_the_other_is_dead() {
    let branch = |left: i32, right: i32| {
        format!(
            "a = Value() value={left}
             b = Value() value={right}
             less = Less(a, b)
             x = Effect(a)
             switch = Switch(x, less)
             no = Fail(switch)
             yes = Add(switch:1, b)
             merge = Merge(no, yes)"
        )
    };
    assert_eq!(run(&branch(1, 5), "merge merge:1").unwrap(), [6, 1]);
    assert_eq!(run(&branch(5, 1), "merge").unwrap_err().code(), Code::OutOfRange);
    assert_eq!(run(&branch(1, 5), "switch").unwrap_err().code(), Code::Internal);
}

#[test]
fn a_loop_counts_with_any_number_of_parallel_iterations() {
    for parallel in [1, 2, 10] {
        assert_eq!(run(&counting_loop(100, parallel), "out").unwrap(), [100]);
        assert_eq!(run(&counting_loop(0, parallel), "out").unwrap(), [0]);
    }
}

#[test]
fn a_nested_loop_multiplies() {
    // For i in 0..7, an inner loop adds 1 to the sum six times.
    let text = "
        zero = Value() value=0
        one = Value() value=1
        six = Value() value=6
        seven = Value() value=7
        i = Enter(zero) frame_name=outer
        total = Enter(zero) frame_name=outer
        i_end = Enter(seven) frame_name=outer is_constant=true
        j_start = Enter(zero) frame_name=outer is_constant=true
        j_end = Enter(six) frame_name=outer is_constant=true
        i_step = Enter(one) frame_name=outer is_constant=true
        i_merge = Merge(i, i_next)
        total_merge = Merge(total, total_next)
        i_less = Less(i_merge, i_end)
        i_switch = Switch(i_merge, i_less)
        total_switch = Switch(total_merge, i_less)
        j_switch = Switch(j_start, i_less)
        j = Enter(j_switch:1) frame_name=inner
        sum = Enter(total_switch:1) frame_name=inner
        inner_end = Enter(j_end) frame_name=inner is_constant=true
        inner_step = Enter(i_step) frame_name=inner is_constant=true
        j_merge = Merge(j, j_next)
        sum_merge = Merge(sum, sum_next)
        j_less = Less(j_merge, inner_end)
        j_go = Switch(j_merge, j_less)
        sum_go = Switch(sum_merge, j_less)
        j_sum = Add(j_go:1, inner_step)
        sum_sum = Add(sum_go:1, inner_step)
        j_next = NextIteration(j_sum)
        sum_next = NextIteration(sum_sum)
        inner_out = Exit(sum_go)
        i_sum = Add(i_switch:1, i_step)
        i_next = NextIteration(i_sum)
        total_next = NextIteration(inner_out)
        out = Exit(total_switch)";
    assert_eq!(run(text, "out").unwrap(), [42]);
}

#[test]
fn a_step_that_waits_goes_on_when_woken() {
    let text = "a = Value() value=2\nb = Later(a)\nc = Later(b)\nd = Add(c, a)";
    assert_eq!(run(text, "d").unwrap(), [4]);
}

#[test]
fn a_failure_names_its_node_and_a_panic_is_one() {
    let failed = run("a = Value() value=2\nbad = Fail(a)", "bad").unwrap_err();
    assert_eq!(failed.message(), "no more\n\t [[{{node bad}}]]");
    let panicked = run("a = Value() value=2\nbad = Panic(a)", "bad").unwrap_err();
    assert_eq!(panicked.code(), Code::Internal);
    assert!(panicked.message().contains("broken"), "{panicked}");
}

#[test]
fn a_cancelled_step_ends_although_a_kernel_never_does() {
    let graph = graph("a = Value() value=2\nb = Never(a)");
    let env = env(&graph);
    let executable =
        Executable::build(&graph, &signature("", "b", ""), &PlanOptions::default(), &env).unwrap();
    let step = step(&env);
    let mut running = executable.start(Vec::new(), step.clone(), None).unwrap();
    assert!((&mut running).now_or_never().is_none());
    let task = env.pool.spawn(running);
    step.cancellation.cancel(status!(Cancelled, "enough"));
    assert_eq!(block_on(task).unwrap_err().message(), "enough");
}

#[test]
fn a_loop_without_end_can_be_cancelled() {
    let graph = graph(&counting_loop(i32::MAX, 1));
    let env = env(&graph);
    let executable =
        Executable::build(&graph, &signature("", "out", ""), &PlanOptions::default(), &env).unwrap();
    let step = step(&env);
    let task = env.pool.spawn(executable.start(Vec::new(), step.clone(), None).unwrap());
    step.cancellation.cancel(status!(DeadlineExceeded, "too long"));
    assert_eq!(block_on(task).unwrap_err().code(), Code::DeadlineExceeded);
}

#[test]
fn steps_of_one_plan_run_one_after_the_other_and_side_by_side() {
    let graph = graph("x = Feed()\none = Value() value=1\ny = Add(x, one)\nz = Later(y)");
    let env = env(&graph);
    let executable =
        Executable::build(&graph, &signature("x", "z", ""), &PlanOptions::default(), &env).unwrap();
    let start = |i: i32| executable.start(vec![Tensor::scalar(i)], step(&env), None).unwrap();
    let tasks: Vec<_> = (0..50).map(|i| env.pool.spawn(start(i))).collect();
    for (i, task) in tasks.into_iter().enumerate() {
        assert_eq!(block_on(task).unwrap()[0].to_scalar::<i32>().unwrap(), i as i32 + 1);
    }
    let wrong = executable.start(vec![Tensor::scalar(1.0f32)], step(&env), None);
    assert_eq!(wrong.err().map(|error| error.code()), Some(Code::Internal));
}

#[test]
fn a_partial_run_hands_out_fetches_before_all_feeds_are_there() {
    let graph = graph("x = Feed()\ny = Feed()\na = Add(x, x)\nb = Add(a, y)");
    let env = env(&graph);
    let executable =
        Executable::build(&graph, &signature("x y", "a b", ""), &PlanOptions::default(), &env).unwrap();
    let hub = PartialHub::new(2, 2);
    let task = env.pool.spawn(executable.start_partial(step(&env), hub.clone()));
    hub.feed(0, Tensor::scalar(2i32));
    assert_eq!(block_on(hub.wait_fetch(0)).unwrap().to_scalar::<i32>().unwrap(), 4);
    hub.feed(1, Tensor::scalar(5i32));
    assert_eq!(block_on(hub.wait_fetch(1)).unwrap().to_scalar::<i32>().unwrap(), 9);
    block_on(task).unwrap();
}

/// A function of one argument `x` and one result, which is the output `result` of its body.
fn function(name: &str, body: &str, result: &str) -> FunctionDef {
    let arg = |name: &str| op_def::ArgDef {
        name: name.to_owned(),
        r#type: DType::Int32.to_wire(),
        ..Default::default()
    };
    FunctionDef {
        signature: Some(OpDef {
            name: name.to_owned(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..Default::default()
        }),
        node_def: graph_def(body).node,
        ret: [("y".to_owned(), result.to_owned())].into(),
        ..Default::default()
    }
}

#[test]
fn functions_run_as_steps_within_the_step() {
    let twice = function("Twice", "later = Later(x)\nsum = Add(later:out:0, later:out:0)", "sum:out:0");
    let dead = function("Dead", "less = Less(x, x)\nswitch = Switch(x, less:out:0)", "switch:output_true:0");
    let library = FunctionDefLibrary { function: vec![twice, dead], ..Default::default() };
    let mut graph = graph("a = Value() value=3");
    graph.add_functions(&library).unwrap();
    graph.extend(&graph_def("b = Twice(a)\nc = Twice(b)\nd = Dead(c)")).unwrap();
    let env = env(&graph);
    env.set_library(graph.library().clone());
    let start = |fetch: &str| {
        let plan = Executable::build(&graph, &signature("", fetch, ""), &PlanOptions::default(), &env);
        plan.and_then(|plan| plan.start(Vec::new(), step(&env), None)).unwrap()
    };
    let near_caller = block_on(start("c").near_caller()).unwrap();
    let on_pool = block_on(env.pool.spawn(start("c"))).unwrap();
    for results in [near_caller, on_pool] {
        assert_eq!(results[0].to_scalar::<i32>().unwrap(), 12);
    }
    let failed = block_on(start("d")).unwrap_err();
    assert_eq!(failed.code(), Code::InvalidArgument);
    assert!(failed.message().starts_with("Retval[0] does not have value"), "{failed}");
}
