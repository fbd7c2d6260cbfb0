//! Results do not depend on how many threads a machine has.

use ferroflow::{Graph, Output, Result, Tensor, gradients, ops};
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::Runtime;

/// Results with names, of operands large enough to be shared by threads.
fn build(graph: &Graph) -> Result<Vec<(&'static str, Output)>> {
    let s = graph.scope();
    let normal = |shape: &[i32], seed: i32| {
        ops::stateless_random_normal(&s, Tensor::vector(shape.to_vec()), Tensor::vector(vec![seed, 7]))
    };
    let (a, b) = (normal(&[800, 900], 1)?, normal(&[900, 300], 2)?);
    let (images, filter) = (normal(&[16, 24, 24, 8], 3)?, normal(&[3, 3, 8, 16], 4)?);
    let depths = normal(&[3, 3, 8, 2], 5)?;
    let near_one = ((&a * 1e-4)? + 1.0)?;
    let strides = [1, 1, 1, 1];
    let convolved = ops::conv2d(&s, &images, &filter, strides, "SAME")?;
    let by_depth = ops::depthwise_conv2d_native(&s, &images, &depths, strides, "SAME")?;
    let (ones, zeros) = (s.constant(vec![1.0f32; 8])?, s.constant(vec![0.0f32; 8])?);
    let none = s.constant(Vec::<f32>::new())?;
    let normalized = ops::fused_batch_norm_v3(&s, &images, &ones, &zeros, &none, &none)?;
    let pooled = ops::avg_pool(&s, &images, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")?;
    let slope = |of: &Output, by: &Output| -> Result<Output> {
        // A product with the inputs, because a sum of ones would hide the order of its terms.
        let loss = ops::square(&s, of)?;
        let gradient = gradients(&s, [&loss], [by])?.remove(0).expect("there is a gradient");
        Ok(gradient.dense().expect("it is not rows").clone())
    };
    Ok(vec![
        ("product", ops::mat_mul(&s, &a, &b)?),
        ("sum of all", ops::sum(&s, &a, [0, 1])?),
        ("sum of columns", ops::sum(&s, &a, [0])?),
        ("sum of rows", ops::sum(&s, &a, [1])?),
        ("mean of columns", ops::mean(&s, &a, [0])?),
        ("product of all", ops::prod(&s, &near_one, [0, 1])?),
        ("product of columns", ops::prod(&s, &near_one, [0])?),
        ("norm", ops::l2_loss(&s, &a)?),
        ("softmax", ops::softmax(&s, &a)?),
        ("running sum", ops::cumsum(&s, &a, 0)?),
        ("bias", ops::bias_add_grad(&s, &images)?),
        ("convolution", convolved.clone()),
        ("gradient of its images", slope(&convolved, &images)?),
        ("gradient of its filter", slope(&convolved, &filter)?),
        ("gradient of a filter by depth", slope(&by_depth, &depths)?),
        ("batch norm", normalized.y.clone()),
        ("gradient of batch norm", slope(&normalized.y, &images)?),
        ("gradient of its scale", slope(&normalized.y, &ones)?),
        ("gradient of an average", slope(&pooled, &images)?),
    ])
}

#[test]
fn results_are_the_same_on_one_two_and_eight_threads() -> Result<()> {
    let graph = Graph::new();
    let results = build(&graph)?;
    let names: Vec<String> = results.iter().map(|(_, output)| output.name()).collect();
    let on = |threads: usize| -> Result<Vec<Tensor>> {
        let runtime = Local::with_threads(ferroflow::registry(), PlanOptions::default(), threads)?;
        runtime.session(&graph.to_graph_def())?.run(Vec::new(), &names, &[])
    };
    let bits = |tensor: &Tensor| -> Result<Vec<u32>> {
        Ok(tensor.flat::<f32>()?.iter().map(|x| x.to_bits()).collect())
    };
    let one = on(1)?;
    for threads in [2, 8] {
        let mut differ = Vec::new();
        for ((name, _), (expected, actual)) in results.iter().zip(one.iter().zip(&on(threads)?)) {
            if bits(expected)? != bits(actual)? {
                differ.push(*name);
            }
        }
        assert!(differ.is_empty(), "on {threads} threads other bits than on one: {}", differ.join(", "));
    }
    Ok(())
}
