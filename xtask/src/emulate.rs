//! `cargo xtask emulate`: the kernels' tests on processors with fewer features than this one has.
//!
//! Kernels are compiled for several levels of features and choose when they run. Debian's `qemu-user` translates the same
//! test programs for processors that it is told the names of, up to AVX2; goldens must agree on each. What it cannot
//! translate, AVX-512, runs where the machine has it: there the ordinary tests choose it.

use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
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
    /// What runs on it, in the words of `GOLDEN`.
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

/// Runs the tests on each processor; says that it is skipped where there is no emulator.
pub(crate) fn run() -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the processors are those of x86-64 Linux");
        return Ok(());
    }
    if let Err(reason) = install() {
        println!("skipped: {reason:#}");
        return Ok(());
    }
    let programs = Programs::build()?;
    let mut failed = Vec::new();
    for processor in &PROCESSORS {
        if let Some(feature) = processor.missing()? {
            println!("{}: skipped: this version of {EMULATOR} has no {feature}", processor.features);
            continue;
        }
        let start = Instant::now();
        let mut passed = processor.run(&programs.goldens, &["planned::"])?;
        if processor.unit_tests {
            passed &= processor.run(&programs.ops, &[])?;
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

/// Installs the emulator unless it is there.
fn install() -> Result<()> {
    if is_there(EMULATOR) {
        return Ok(());
    }
    ensure!(is_there("apt-get"), "there is no {EMULATOR}, and no apt-get to install it");
    let user = Command::new("id").arg("-u").output().context("id")?;
    ensure!(user.stdout == b"0\n", "there is no {EMULATOR}; as root: apt-get install {PACKAGE}");
    println!("installing {PACKAGE}");
    for words in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", PACKAGE]] {
        let status = Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive").status();
        let status = status.context("apt-get")?;
        ensure!(status.success(), "{PACKAGE} cannot be installed: apt-get {} ended with {status}", words[0]);
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// The test programs that are emulated.
struct Programs {
    goldens: PathBuf,
    ops: PathBuf,
}

impl Programs {
    /// Builds all tests of the workspace, as the step of the check does, so that after it there is nothing to build.
    fn build() -> Result<Programs> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let words = [
            "test",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
        ];
        let built =
            Command::new(cargo).args(words).current_dir(workspace::root()).stderr(Stdio::inherit()).output();
        let built = built.context("cargo test --no-run")?;
        ensure!(built.status.success(), "the tests do not build");
        let messages: Vec<Value> = String::from_utf8(built.stdout)?
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let find = |target: &str| -> Result<PathBuf> {
            let made = messages.iter().find(|message| {
                message["target"]["name"] == target
                    && message["profile"]["test"] == true
                    && message["executable"].is_string()
            });
            let Some(path) = made.and_then(|message| message["executable"].as_str()) else {
                bail!("there is no test program of {target}");
            };
            Ok(path.into())
        };
        Ok(Programs { goldens: find("golden")?, ops: find("ferroflow_ops")? })
    }
}

impl Processor {
    fn emulated(&self, program: &Path) -> Command {
        let mut command = Command::new(EMULATOR);
        command.args(["-cpu", self.name]).arg(program).current_dir(workspace::root()).stdin(Stdio::null());
        command
    }

    /// A feature of its name that the emulator lacks.
    fn missing(&self) -> Result<Option<&'static str>> {
        let tried = self.emulated(Path::new("/bin/true")).output().context(EMULATOR)?;
        let warnings = String::from_utf8_lossy(&tried.stderr).into_owned();
        let features = ["avx", "avx2", "fma", "f16c"];
        Ok(features.into_iter().find(|feature| warnings.contains(&format!(".{feature} [bit"))))
    }

    /// Whether a test program passes.
    fn run(&self, program: &Path, arguments: &[&str]) -> Result<bool> {
        let mut command = self.emulated(program);
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
