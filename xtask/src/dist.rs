//! `cargo xtask dist`: a release archive that runs on older systems.
//!
//! The binary is linked against the symbols of an old C library, which every newer one has, instead of containing one:
//! names of hosts are then looked up as the machine is configured to, and functions of numbers are the ones that the tests
//! have seen. [Zig](https://ziglang.org) has the old symbols for several processors, and its C compiler builds the
//! allocator.

mod symbols;

use crate::{server, workspace};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiler and the command that hands it to cargo, from the Python Package Index.
const TOOLS: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.0"];

/// The newest version of the C library's symbols that the binary may need: that of 2012, the oldest that Rust supports.
const C_LIBRARY: (u32, u32) = (2, 17);

/// Files of the repository that are part of the archive.
const PAGES: [&str; 4] = ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"];

/// Scripts of completions, and the names under which shells look for them.
const COMPLETIONS: [(&str, &str); 4] = [
    ("bash", "ferroflow.bash"),
    ("zsh", "_ferroflow"),
    ("fish", "ferroflow.fish"),
    ("elvish", "ferroflow.elv"),
];

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Processor that the binary is for [default: this machine's]
    #[arg(long, value_enum)]
    arch: Option<Arch>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    fn here() -> Result<Arch> {
        Arch::from_str(std::env::consts::ARCH, false)
            .map_err(|_| anyhow::anyhow!("there are no archives for {}", std::env::consts::ARCH))
    }
}

/// Builds the binary, and packs it with completions, the manual and the first pages.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "archives are made on Linux");
    let here = Arch::here()?;
    let arch = args.arch.unwrap_or(here);
    let built = build(arch)?;
    let needed = symbols::newest(&fs::read(&built).with_context(|| built.display().to_string())?);
    if let Some((major, minor)) = needed {
        println!("{} needs version {major}.{minor} of the C library", built.display());
        ensure!((major, minor) <= C_LIBRARY, "{} is older", version(C_LIBRARY));
    }
    // Completions and the manual do not depend on the processor.
    let runs_here = if arch == here { built.clone() } else { server::build()? };
    let archive = pack(arch, &built, &runs_here)?;
    println!("{}", archive.display());
    Ok(())
}

fn version((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

/// The release binary for a processor.
fn build(arch: Arch) -> Result<PathBuf> {
    let tools = tools()?;
    let target = format!("{}-unknown-linux-gnu", arch.name());
    call(Command::new("rustup").args(["target", "add", &target]).current_dir(workspace::root()))?;
    // The command finds the compiler through the Python beside it.
    let mut path = vec![tools.join("bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new(tools.join("bin/cargo-zigbuild"));
    command.args(["zigbuild", "--release", "--locked", "--package", "ferroflow-cli", "--bin", "ferroflow"]);
    command.args(["--target", &format!("{target}.{}", version(C_LIBRARY))]);
    command.env("PATH", std::env::join_paths(path)?).current_dir(workspace::root());
    call(&mut command)?;
    Ok(workspace::target().join(target).join("release/ferroflow"))
}

/// An environment with the tools, made anew when their versions change.
fn tools() -> Result<PathBuf> {
    let venv = workspace::target().join("dist/tools");
    let (wanted, stamp) = (TOOLS.join("\n"), venv.join("installed.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(venv);
    }
    println!("installing {} into {}", TOOLS.join(" and "), venv.display());
    call(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    call(Command::new(venv.join("bin/python")).args(pip).args(TOOLS))?;
    fs::write(stamp, wanted).context("cannot note what is installed")?;
    Ok(venv)
}

/// Writes the archive and its checksum to `target/dist`.
fn pack(arch: Arch, built: &Path, runs_here: &Path) -> Result<PathBuf> {
    let name = format!("ferroflow-{}-{}-linux", env!("CARGO_PKG_VERSION"), arch.name());
    let dist = workspace::target().join("dist");
    let contents = dist.join(&name);
    if contents.exists() {
        fs::remove_dir_all(&contents).with_context(|| contents.display().to_string())?;
    }
    fs::create_dir_all(contents.join("completions"))?;
    fs::copy(built, contents.join("ferroflow"))?;
    for page in PAGES {
        fs::copy(workspace::root().join(page), contents.join(page)).context(page)?;
    }
    for (shell, file) in COMPLETIONS {
        let script = File::create(contents.join("completions").join(file))?;
        call(Command::new(runs_here).args(["completions", shell]).stdout(script))?;
    }
    call(Command::new(runs_here).arg("man").arg(contents.join("man/man1")))?;

    let archive = dist.join(format!("{name}.tar.gz"));
    // Equal contents make equal archives, whoever packs them and when.
    let packed =
        ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", "--mtime=@0"];
    let compressed = ["--use-compress-program=gzip --no-name --best", "--create", "--file"];
    call(Command::new("tar").args(packed).args(compressed).arg(&archive).arg(&name).current_dir(&dist))?;
    let sum = File::create(dist.join(format!("{name}.tar.gz.sha256")))?;
    call(Command::new("sha256sum").arg(format!("{name}.tar.gz")).current_dir(&dist).stdout(sum))?;
    Ok(archive)
}

fn call(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
