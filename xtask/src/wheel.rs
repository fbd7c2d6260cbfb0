//! `cargo xtask wheel`: the Python package as a wheel, packed by maturin and tried in an environment of its own.
//!
//! Crates are compiled as `cargo build --release` compiles them, and shared with it. Only the module itself is linked by
//! [Zig](https://ziglang.org), against the symbols of an older C library, so that pip accepts it on older systems.
//! Wheels for other processors are compiled by Zig as well.

use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The builder, the linker, and the checks of the result, from the Python Package Index.
const TOOLS: [&str; 4] = ["maturin==1.16.0", "ziglang==0.15.2", "auditwheel==6.8.2", "twine==7.0.0"];

/// The C library (2018) that the wheel needs, or a newer one.
const C_LIBRARY: (u32, u32) = (2, 28);

/// The largest wheel in bytes.
const LARGEST: u64 = 25_000_000;

/// Options of `cargo xtask wheel`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Link for this machine only, without Zig
    #[arg(long)]
    native: bool,
    /// Build for this processor, e.g. aarch64, and do not try the wheel
    #[arg(long, conflicts_with = "native")]
    arch: Option<String>,
    /// Try the wheel with this Python [default: python3]
    #[arg(long, default_value = "python3", hide_default_value = true)]
    python: String,
}

/// Builds the wheel, checks its size and the systems that it is for, and tries it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = tools()?;
    let wheel = build(args, &tools)?;
    let size = fs::metadata(&wheel).with_context(|| wheel.display().to_string())?.len();
    println!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    ensure!(size <= LARGEST, "the wheel is larger than {LARGEST} bytes");
    call(Command::new(tools.join("bin/twine")).args(["check", "--strict"]).arg(&wheel))?;
    if !args.native {
        check_systems(&tools, &wheel)?;
    }
    if args.arch.is_none() {
        try_out(&args.python, &wheel)?;
    }
    Ok(())
}

fn build(args: &Args, tools: &Path) -> Result<PathBuf> {
    let wheels = workspace::target().join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    }
    let mut command = Command::new(tools.join("bin/maturin"));
    command.args(["build", "--release", "--locked", "--manifest-path", "crates/python/Cargo.toml", "--out"]);
    command.arg(&wheels).env("PATH", with_tools(tools)?).current_dir(workspace::root());
    let (major, minor) = C_LIBRARY;
    if args.native {
        command.args(["--compatibility", "linux"]);
    } else {
        command.args(["--compatibility", &format!("manylinux_{major}_{minor}")]);
    }
    if let Some(arch) = &args.arch {
        let target = format!("{arch}-unknown-linux-gnu");
        call(Command::new("rustup").args(["target", "add", &target]).current_dir(workspace::root()))?;
        command.args(["--zig", "--target", &target]);
    } else if !args.native {
        command.args(["--", "-C"]).arg(format!("linker={}", linker(tools)?.display()));
    }
    call(workspace::without_own_package(&mut command))?;
    let mut built = fs::read_dir(&wheels)?.filter_map(|file| Some(file.ok()?.path()));
    built.find(|file| file.extension().is_some_and(|kind| kind == "whl")).context("maturin made no wheel")
}

/// The path on which the tools come first; maturin finds Zig through the Python beside it.
fn with_tools(tools: &Path) -> Result<OsString> {
    let mut path = vec![tools.join("bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    Ok(std::env::join_paths(path)?)
}

/// A linker for this processor and the older C library, which is a script.
fn linker(tools: &Path) -> Result<PathBuf> {
    let (path, (major, minor)) = (tools.join("linker"), C_LIBRARY);
    let target = format!("{}-linux-gnu.{major}.{minor}", std::env::consts::ARCH);
    let script = format!("#!/bin/sh\nexec maturin zig cc -- -target {target} \"$@\"\n");
    if fs::read_to_string(&path).is_ok_and(|written| written == script) {
        return Ok(path);
    }
    fs::write(&path, script).with_context(|| path.display().to_string())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Fails unless auditwheel agrees with the systems that the wheel's name promises.
fn check_systems(tools: &Path, wheel: &Path) -> Result<()> {
    let mut audit = Command::new(tools.join("bin/auditwheel"));
    let shown = audit.args(["show", "--json"]).arg(wheel).output().context("auditwheel")?;
    let told: serde_json::Value = serde_json::from_slice(&shown.stdout)
        .with_context(|| format!("auditwheel: {}", String::from_utf8_lossy(&shown.stderr)))?;
    let (major, minor) = C_LIBRARY;
    let promised = told["overall_tag"].as_str().and_then(|tag| {
        let mut version =
            tag.strip_prefix("manylinux_")?.split('_').map_while(|part| part.parse::<u32>().ok());
        Some((version.next()?, version.next()?))
    });
    ensure!(
        promised.is_some_and(|needed| needed <= C_LIBRARY),
        "the wheel needs more than manylinux_{major}_{minor}: {told}"
    );
    println!("auditwheel: {}", told["overall_tag"]);
    Ok(())
}

/// An environment with the tools, made anew when their versions change.
fn tools() -> Result<PathBuf> {
    let venv = workspace::target().join("wheel/tools");
    let (wanted, stamp) = (TOOLS.join("\n"), venv.join("installed.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(venv);
    }
    call(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    call(Command::new(venv.join("bin/python")).args(pip).args(TOOLS))?;
    fs::write(stamp, wanted).context("cannot note what is installed")?;
    Ok(venv)
}

/// The first use of a fresh installation: a server, the command, and a cluster that trains.
const FIRST_USE: &str = "
import subprocess, sys, sysconfig, os, time
began = time.perf_counter()
import ferroflow
ferroflow.Server
took = 1000 * (time.perf_counter() - began)
assert not {'numpy', 'tensorflow'} & set(sys.modules), 'nothing else is imported'
server = ferroflow.Server.create_local_server()
ferroflow.Session(server).close()
assert server.stop()
command = os.path.join(sysconfig.get_path('scripts'), 'ferroflow')
assert subprocess.check_output([command, '--version'], text=True).split() == ['ferroflow', ferroflow.__version__]
subprocess.run([command, 'demo', '--steps', '200', '--dir', sys.argv[1]], check=True, stdout=subprocess.DEVNULL)
print(f'the package is imported in {took:.1f} ms')
";

/// Installs the wheel into an empty environment and uses it, with nothing of Rust on the path.
fn try_out(python: &str, wheel: &Path) -> Result<()> {
    let directory = workspace::target().join("wheel/fresh");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    call(Command::new(python).args(["-m", "venv"]).arg(&directory))?;
    let interpreter = directory.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"];
    call(Command::new(&interpreter).args(pip).arg(wheel))?;
    let began = Instant::now();
    let mut first = Command::new(&interpreter);
    first.args(["-c", FIRST_USE]).arg(directory.join("demo"));
    first.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &directory);
    call(&mut first)?;
    println!("a server, the command and a training of 200 steps took {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn call(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
