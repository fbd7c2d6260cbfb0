//! `cargo xtask nfs`: tasks meet in a directory that real NFS clients see, each through caches of its own.
//!
//! A User Mode Linux kernel, which is an ordinary process, runs the server and the clients on this machine's files.

use crate::{programs, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian keeps the modules of that kernel.
const MODULES: &str = "/usr/lib/uml/modules";

/// The programs that are needed, and the packages that have them.
const NEEDED: [(&str, &str); 7] = [
    ("linux.uml", "user-mode-linux"),
    ("mount.nfs", "nfs-common"),
    ("rpc.nfsd", "nfs-kernel-server"),
    ("exportfs", "nfs-kernel-server"),
    ("rpcbind", "rpcbind"),
    ("modprobe", "kmod"),
    ("ip", "iproute2"),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Versions of the protocol
    #[arg(long, value_delimiter = ',', default_value = "3,4.2")]
    versions: Vec<String>,
    /// Seconds that one version may take
    #[arg(long, default_value_t = 600)]
    timeout: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    ensure!(
        missing.is_empty(),
        "not installed; as root: apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    let user = Command::new("id").arg("-u").output().context("id")?;
    ensure!(user.stdout == b"0\n", "the guest mounts this machine's files, for which it needs root");
    let binary = build()?;
    for version in &args.versions {
        println!("NFS {version}");
        guest(version, args.timeout, &binary)?;
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|directory| Path::new(directory).join(program).exists())
}

/// The binary as tests use it; `FERROFLOW_SERVER` names another.
fn build() -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("FERROFLOW_SERVER") {
        return Ok(binary.into());
    }
    programs::build_server()
}

/// Runs the scenarios in a kernel of their own and shows what they say.
fn guest(version: &str, timeout: u32, binary: &Path) -> Result<()> {
    let work = std::env::temp_dir().join(format!("ferroflow-nfs-{}-{version}", std::process::id()));
    let modules = work.join("modules/lib/modules");
    fs::create_dir_all(&modules)?;
    for kernel in fs::read_dir(MODULES).with_context(|| MODULES.to_owned())? {
        let kernel = kernel?;
        symlink(kernel.path(), modules.join(kernel.file_name()))?;
    }
    let root = workspace::root();
    let word = |name: &str, value: &Path| format!("{name}={}", value.display());
    let console = fs::File::create(work.join("console"))?;
    Command::new("timeout")
        .arg(timeout.to_string())
        .arg("linux.uml")
        .args([
            "mem=1G",
            "root=/dev/root",
            "rootfstype=hostfs",
            "hostfs=/",
            "rw",
            "con=null",
            "con0=null,null",
        ])
        .arg(word("uml_dir", &work.join("uml")))
        .arg(word("init", &root.join("tests/nfs/guest.sh")))
        // The kernel hands what it does not know to its first process.
        .arg(word("FF_WORK", &work))
        .arg(word("FF_REPO", &root))
        .arg(word("FF_BINARY", binary))
        .arg(word("FF_MODULES", &work.join("modules")))
        .arg(format!("FF_NFS={version}"))
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console)
        .status()
        .context("linux.uml")?;
    print!("{}", fs::read_to_string(work.join("out")).unwrap_or_default());
    match fs::read_to_string(work.join("code")).unwrap_or_default().trim() {
        "0" => Ok(fs::remove_dir_all(&work)?),
        "" => bail!("the guest did not come to its end; look at {}", work.display()),
        code => bail!("the scenarios ended with {code}; their logs are in {}", work.display()),
    }
}
