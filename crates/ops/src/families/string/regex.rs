//! Matching and replacing by regular expressions, in RE2's language.

use crate::support::re2::{Pattern, Rewrite};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx, shapes};
use ferroflow_core::{Result, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] =
    &[&STATIC_REGEX_FULL_MATCH, &REGEX_FULL_MATCH, &REGEX_REPLACE, &STATIC_REGEX_REPLACE];

static STATIC_REGEX_FULL_MATCH: Op = Op {
    name: "StaticRegexFullMatch",
    inputs: &["input: string"],
    outputs: &["output: bool"],
    attrs: &["pattern: string"],
    shape: shapes::unchanged,
    kernels: kernels![any static_full_match_kernel],
    ..Op::PURE
};

static REGEX_FULL_MATCH: Op = Op {
    name: "RegexFullMatch",
    inputs: &["input: string", "pattern: string"],
    outputs: &["output: bool"],
    shape: regex_shape,
    kernels: kernels![any full_match_kernel],
    ..Op::PURE
};

static REGEX_REPLACE: Op = Op {
    name: "RegexReplace",
    gradient: Gradient::Stop,
    inputs: &["input: string", "pattern: string", "rewrite: string"],
    outputs: &["output: string"],
    attrs: &["replace_global: bool = true"],
    shape: regex_shape,
    kernels: kernels![any replace_kernel],
    ..Op::PURE
};

static STATIC_REGEX_REPLACE: Op = Op {
    name: "StaticRegexReplace",
    inputs: &["input: string"],
    outputs: &["output: string"],
    attrs: &["pattern: string", "rewrite: string", "replace_global: bool = true"],
    shape: shapes::unchanged,
    kernels: kernels![any static_replace_kernel],
    ..Op::PURE
};

fn regex_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for input in 1..s.num_inputs() {
        s.rank(input, 0)?;
    }
    s.set(0, s.input(0));
    Ok(())
}

fn scalar(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<Str> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be scalar, but received {}", tensor.shape());
    tensor.to_scalar()
}

fn matches(cx: &KernelCx<'_>, pattern: &Pattern) -> Result<Outputs> {
    let input = cx.input(0)?;
    let found: Vec<bool> = input.flat::<Str>()?.iter().map(|text| pattern.is_match(text)).collect();
    Ok(Tensor::new(input.shape().clone(), found)?.into())
}

fn replace(cx: &mut KernelCx<'_>, pattern: &Pattern, rewrite: &Rewrite, all: bool) -> Result<Outputs> {
    let mut texts = cx.take(0)?;
    texts.flat_mut::<Str>()?.iter_mut().for_each(|text| *text = pattern.replace(text, rewrite, all));
    Ok(texts.into())
}

fn static_full_match_kernel(init: &Init<'_>) -> Result<Kernel> {
    let pattern = Pattern::full(&init.attr::<Str>("pattern")?)?;
    Kernel::sync(move |cx| matches(cx, &pattern))
}

fn full_match_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let pattern = Pattern::full(&scalar(cx, 1, "Pattern")?)?;
        matches(cx, &pattern)
    })
}

fn replace_kernel(init: &Init<'_>) -> Result<Kernel> {
    let all: bool = init.attr("replace_global")?;
    Kernel::sync(move |cx| {
        let pattern = Pattern::new(&scalar(cx, 1, "Pattern")?)?;
        let rewrite = Rewrite::new(&scalar(cx, 2, "Rewrite")?);
        replace(cx, &pattern, &rewrite, all)
    })
}

fn static_replace_kernel(init: &Init<'_>) -> Result<Kernel> {
    let pattern = Pattern::new(&init.attr::<Str>("pattern")?)?;
    let rewrite = Rewrite::new(&init.attr::<Str>("rewrite")?);
    let all: bool = init.attr("replace_global")?;
    Kernel::sync(move |cx| replace(cx, &pattern, &rewrite, all))
}
