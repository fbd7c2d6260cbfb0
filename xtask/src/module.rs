//! `cargo xtask module`: the tests of the Python package, with the module as the development build has it.

use crate::{programs, python, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package's directory.
const PACKAGE: &str = "crates/python";

/// Options of `cargo xtask module`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use the module that is built, and do not build it
    #[arg(long)]
    built: bool,
    /// Only install the package, and print its interpreter
    #[arg(long)]
    install: bool,
    /// Run the tests whose names have this in them
    #[arg(long)]
    test: Option<String>,
}

/// Installs the package, then checks its types and runs its tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.built {
        programs::build_server()?;
    }
    let interpreter = install(&workspace::target().join("debug/lib_ferroflow.so"))?;
    if args.install {
        println!("{}", interpreter.display());
        return Ok(());
    }
    if args.test.is_none() {
        check_types(&interpreter)?;
    }
    let mut tests = module(&interpreter, &["pytest", "--quiet", "-p", "no:cacheprovider"]);
    tests.args(args.test.iter().flat_map(|name| ["-k", name.as_str()])).arg("tests");
    call(&mut tests)
}

/// Checks the annotations of the package, and that those of the module in Rust are what it has.
fn check_types(interpreter: &Path) -> Result<()> {
    call(&mut module(interpreter, &["mypy"]))?;
    call(&mut module(
        interpreter,
        &["mypy.stubtest", "ferroflow._ferroflow", "--mypy-config-file", "pyproject.toml"],
    ))
}

/// A module of the environment's, run in the package's directory.
fn module(interpreter: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(interpreter);
    command.arg("-m").args(words).current_dir(workspace::root().join(PACKAGE));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("FERROFLOW").env_remove("TF_CONFIG");
    command.env("MYPY_CACHE_DIR", workspace::target().join("python/mypy"));
    command
}

/// Makes an environment in which the package is installed as the wheel would install it, beside stock TensorFlow, and
/// returns its interpreter.
fn install(library: &Path) -> Result<PathBuf> {
    ensure!(library.exists(), "{} does not exist; build it first", library.display());
    let stock = python::venv().join("bin/python");
    if !stock.exists() {
        bail!("{} does not exist; run `cargo xtask setup`", stock.display());
    }
    let directory = workspace::target().join("python");
    let package = directory.join("site/ferroflow");
    if package.exists() {
        fs::remove_dir_all(&package).with_context(|| package.display().to_string())?;
    }
    fs::create_dir_all(&package)?;
    let sources = workspace::root().join(PACKAGE).join("python/ferroflow");
    for file in fs::read_dir(&sources).with_context(|| sources.display().to_string())? {
        let file = file?;
        if file.file_type()?.is_file() {
            symlink(file.path(), package.join(file.file_name()))?;
        }
    }
    symlink(library, package.join("_ferroflow.abi3.so"))?;

    let venv = directory.join("venv");
    let interpreter = venv.join("bin/python");
    if !interpreter.exists() {
        call(Command::new(&stock).args(["-m", "venv", "--without-pip"]).arg(&venv))?;
    }
    let path = |interpreter: &Path| -> Result<PathBuf> {
        let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let asked = Command::new(interpreter).args(["-I", "-c", script]).output().context("python")?;
        Ok(String::from_utf8(asked.stdout)?.trim().into())
    };
    let site = path(&interpreter)?;
    let paths = format!("{}\n{}\n", directory.join("site").display(), path(&stock)?.display());
    // Files are read in the order of their names, and the switch imports the package.
    fs::write(site.join("_paths.pth"), paths)?;
    let switch = "ferroflow.data/purelib/ferroflow.pth";
    fs::copy(workspace::root().join(PACKAGE).join(switch), site.join("ferroflow.pth")).context(switch)?;
    let script = venv.join("bin/ferroflow");
    fs::write(
        &script,
        format!("#!{}\nfrom ferroflow.command import main\n\nmain()\n", interpreter.display()),
    )?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(interpreter)
}

fn call(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
