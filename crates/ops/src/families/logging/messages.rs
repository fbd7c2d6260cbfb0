//! Assertions, printing to the server's own streams, and the time.

use crate::support::text::{Form, summarize};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{Result, Tensor, bail, ensure, kernels, status};
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const OPS: &[&Op] = &[&ASSERT, &PRINT, &PRINT_V2, &TIMESTAMP, &STRING_FORMAT];

static ASSERT: Op = Op {
    name: "Assert",
    gradient: Gradient::Stop,
    inputs: &["condition: bool", "data: T"],
    attrs: &["T: list(type) >= 1", "summarize: int = 3"],
    kernels: kernels![any assert_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static PRINT: Op = Op {
    name: "Print",
    gradient: Gradient::Fn(print_grad),
    inputs: &["input: T", "data: U"],
    outputs: &["output: T"],
    attrs: &[
        "T: type",
        "U: list(type) >= 0",
        "message: string = ''",
        "first_n: int = -1",
        "summarize: int = 3",
    ],
    shape: shapes::unchanged,
    kernels: kernels![any print_kernel],
    ..Op::STATEFUL
};

static PRINT_V2: Op = Op {
    name: "PrintV2",
    inputs: &["input: string"],
    attrs: &["output_stream: string = 'stderr'", "end: string = '\n'"],
    shape: print_v2_shape,
    kernels: kernels![any print_v2_kernel],
    ..Op::STATEFUL
};

static TIMESTAMP: Op = Op {
    name: "Timestamp",
    gradient: Gradient::Stop,
    outputs: &["ts: double"],
    shape: shapes::scalar,
    kernels: kernels![any timestamp_kernel],
    accuracy: Accuracy::Random,
    cheap: true,
    ..Op::STATEFUL
};

static STRING_FORMAT: Op = Op {
    name: "StringFormat",
    inputs: &["inputs: T"],
    outputs: &["output: string"],
    attrs: &[
        "T: list(type) >= 0",
        "template: string = '%s'",
        "placeholder: string = '%s'",
        "summarize: int = 3",
    ],
    shape: shapes::scalar,
    kernels: kernels![any string_format_kernel],
    ..Op::PURE
};

fn print_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0).map(|_| ())
}

/// The inputs from `first` on, each in brackets.
fn summaries(cx: &KernelCx<'_>, first: usize, limit: i64, separator: &str) -> Result<String> {
    let texts = (first..cx.num_inputs()).map(|input| summarize(cx.input(input)?, limit, Form::Flat));
    let texts = texts.collect::<Result<Vec<String>>>()?;
    Ok(texts.iter().map(|text| format!("[{text}]")).collect::<Vec<_>>().join(separator))
}

fn assert_kernel(init: &Init<'_>) -> Result<Kernel> {
    let limit: i64 = init.attr("summarize")?;
    Kernel::sync(move |cx| {
        let condition = cx.input(0)?;
        ensure!(condition.rank() == 0, InvalidArgument, "In[0] should be a scalar: {}", condition.shape());
        if condition.to_scalar::<bool>()? {
            return Ok(Outputs::None);
        }
        bail!(InvalidArgument, "assertion failed: {}", summaries(cx, 1, limit, " ")?)
    })
}

/// Writes one message whole, so that messages of concurrent steps do not mix. The
/// server's streams may have been closed when it was started; that does not fail a step.
fn write_line(stream: &mut dyn Write, text: &[u8], end: &[u8]) {
    let mut line = text.to_vec();
    line.extend_from_slice(end);
    let _ = stream.write_all(&line).and_then(|()| stream.flush());
}

fn print_kernel(init: &Init<'_>) -> Result<Kernel> {
    let message: String = init.attr("message")?;
    let (first_n, limit): (i64, i64) = (init.attr("first_n")?, init.attr("summarize")?);
    let printed = AtomicI64::new(0);
    Kernel::sync(move |cx| {
        if first_n < 0 || printed.fetch_add(1, Ordering::Relaxed) < first_n {
            let text = format!("{message}{}", summaries(cx, 1, limit, "")?);
            write_line(&mut std::io::stderr(), text.as_bytes(), b"\n");
        }
        Ok(cx.take_value(0)?.into())
    })
}

enum Stream {
    Stdout,
    Stderr,
    File(String),
}

fn print_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let name: String = init.attr("output_stream")?;
    let end: Str = init.attr("end")?;
    let stream = match name.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" | "log(info)" | "log(warning)" | "log(error)" => Stream::Stderr,
        _ => match name.strip_prefix("file://") {
            Some(path) => Stream::File(path.to_owned()),
            None => bail!(
                InvalidArgument,
                "Unknown output stream: {name}, Valid streams are: stdout stderr log(info) log(warning) log(error)"
            ),
        },
    };
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        ensure!(
            input.rank() == 0,
            InvalidArgument,
            "Input is expected to be scalar, but got {}",
            input.shape()
        );
        let text = input.to_scalar::<Str>()?;
        match &stream {
            Stream::Stdout => write_line(&mut std::io::stdout(), &text, &end),
            Stream::Stderr => write_line(&mut std::io::stderr(), &text, &end),
            Stream::File(path) => {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
                let mut file = file.map_err(|error| ferroflow_io::file::status(path, &error))?;
                write_line(&mut file, &text, &end);
            }
        }
        Ok(Outputs::None)
    })
}

fn timestamp_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.map_err(|_| status!(Internal, "the clock stands before 1970"))?;
        Ok(Tensor::scalar(since.as_micros() as f64 / 1e6).into())
    })
}

fn string_format_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (template, placeholder): (String, String) = (init.attr("template")?, init.attr("placeholder")?);
    let limit: i64 = init.attr("summarize")?;
    // An empty placeholder stands between any two characters.
    let parts: Vec<String> = if !placeholder.is_empty() {
        template.split(&placeholder).map(str::to_owned).collect()
    } else if template.is_empty() {
        vec![String::new()]
    } else {
        template.chars().map(String::from).collect()
    };
    let (holes, inputs) = (parts.len() - 1, init.input_types.len());
    ensure!(
        holes == inputs,
        InvalidArgument,
        "num placeholders in template and num inputs must match: {holes} vs. {inputs}"
    );
    Kernel::sync(move |cx| {
        let mut text = parts[0].clone();
        for (input, part) in parts[1..].iter().enumerate() {
            text.push_str(&summarize(cx.input(input)?, limit, Form::Nested)?);
            text.push_str(part);
        }
        Ok(Tensor::scalar(Str::from(text)).into())
    })
}

/// Passes the gradient on to the value that is passed through.
fn print_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[0] = g.grad(0).cloned();
    Ok(grads)
}
