//! `cargo xtask emulate`: the kernels' tests on processors with fewer features than this one has.
//!
//! Kernels are compiled for several levels of features and choose when they run. Debian's `qemu-user` translates the same
//! test programs for processors that it is told the names of, up to AVX2; goldens must agree on each. What it cannot
//! translate, AVX-512, runs where the machine has it: there the ordinary tests choose it.

use crate::debian;
use crate::programs::{self, Program};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::time::Instant;

const EMULATOR: &str = "qemu-x86_64";
const PACKAGE: &str = "qemu-user";

/// Families whose kernels are compiled for several levels, and those of the functions of one and two numbers.
const COMPILED: &str = "matmul,fused,conv,depthwise,pool,batch_norm,nn,reduction,random,cwise_unary,halves,cast,\
                        training/ResourceApplyA";
/// Those with products of matrices.
const PRODUCTS: &str = "matmul,fused,conv";
/// Those with kernels that convert halves, and those with products, which need the conversion.
const CONVERSIONS: &str = "matmul,fused,conv,batch_norm,pool,nn";

struct Processor {
    features: &'static str,
    /// The emulator's word for it.
    name: &'static str,
    /// Families that run on it, in the words of `GOLDEN`.
    families: &'static str,
    /// Whether the unit tests of the ops run, too.
    unit_tests: bool,
}

const PROCESSORS: [Processor; 5] = [
    Processor { features: "without AVX", name: "Nehalem", families: COMPILED, unit_tests: true },
    Processor {
        features: "AVX",
        name: "SandyBridge",
        families: "matmul,nn,reduction,random,cwise_unary",
        unit_tests: false,
    },
    // AMD's of 2012.
    Processor { features: "AVX and FMA", name: "Opteron_G5", families: PRODUCTS, unit_tests: false },
    // The emulator takes subnormal halves for zeros when it converts them, which processors do not; without F16C it
    // need not.
    Processor { features: "AVX2 and FMA", name: "Haswell,-f16c", families: COMPILED, unit_tests: true },
    Processor { features: "AVX2, FMA and F16C", name: "Haswell", families: CONVERSIONS, unit_tests: false },
];

/// Options of `cargo xtask emulate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run what was built before, without asking cargo
    #[arg(long)]
    built: bool,
}

/// Runs the tests on each processor; says that it is skipped where there is no emulator.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the processors are those of x86-64 Linux");
        return Ok(());
    }
    if let Err(reason) = debian::install(EMULATOR, PACKAGE) {
        println!("skipped: {reason:#}");
        return Ok(());
    }
    let programs = if args.built { programs::built()? } else { programs::build()? };
    let find = |target: &str| {
        let found = programs.iter().find(|program| program.target == target);
        found.with_context(|| format!("there is no test program of {target}"))
    };
    let (goldens, ops) = (find("golden")?, find("ferroflow_ops")?);
    let mut failed = Vec::new();
    for processor in &PROCESSORS {
        if let Some(feature) = processor.missing()? {
            println!("{}: skipped: this version of {EMULATOR} has no {feature}", processor.features);
            continue;
        }
        let start = Instant::now();
        let mut passed = processor.run(goldens, &["planned::"])?;
        if processor.unit_tests {
            passed &= processor.run(ops, &[])?;
        }
        let verdict = if passed { "ok" } else { "FAILED" };
        println!(
            "{} ({}): {verdict}, {:.1} s",
            processor.features,
            processor.name,
            start.elapsed().as_secs_f64()
        );
        if !passed {
            failed.push(processor.features);
        }
    }
    let here = if avx512() {
        "has it, so that the ordinary tests chose it"
    } else {
        "has none, so that nothing chose it"
    };
    println!("AVX-512: this machine {here}");
    ensure!(failed.is_empty(), "tests fail on processors with: {}", failed.join("; "));
    Ok(())
}

/// Whether kernels that are compiled for AVX-512 run on this machine.
fn avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Processor {
    /// A feature of its name that the emulator lacks.
    fn missing(&self) -> Result<Option<&'static str>> {
        let tried =
            Command::new(EMULATOR).args(["-cpu", self.name, "/bin/true"]).output().context(EMULATOR)?;
        let warnings = String::from_utf8_lossy(&tried.stderr).into_owned();
        let features = ["avx", "avx2", "fma", "f16c"];
        Ok(features.into_iter().find(|feature| warnings.contains(&format!(".{feature} [bit"))))
    }

    /// Whether a test program passes.
    fn run(&self, program: &Program, arguments: &[&str]) -> Result<bool> {
        let mut command = program.command_under(EMULATOR, &["-cpu", self.name]);
        command.args(arguments).env("GOLDEN", self.families);
        let output = command.stderr(Stdio::piped()).output().context(EMULATOR)?;
        if !output.status.success() {
            // The emulator's own warnings are about features that nothing here uses.
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let errors = errors.lines().filter(|line| !line.starts_with("qemu-x86_64: warning:"));
            print!("{}", String::from_utf8_lossy(&output.stdout));
            errors.for_each(|line| println!("{line}"));
        }
        Ok(output.status.success())
    }
}
