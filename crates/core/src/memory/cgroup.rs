//! The control groups that this process is in. A group's limit applies to all groups within it, so the effective limit
//! may be set anywhere between the process's own group, as created by systemd or Slurm, and the root.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A group between the process's own and the outermost visible one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Level {
    directory: PathBuf,
    version: Version,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The groups of this process. Found once: a process that is moved later keeps the groups it started in.
pub(super) fn levels() -> &'static [Level] {
    static LEVELS: OnceLock<Vec<Level>> = OnceLock::new();
    LEVELS.get_or_init(|| {
        let read = |path| read_to_string(path).unwrap_or_default();
        find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    })
}

impl Level {
    /// The name in the hierarchy.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The group's limit and usage; `None` without a limit. Page cache is reclaimed before the limit is enforced, so it
    /// does not count as used.
    pub(super) fn limit_and_use(&self) -> Option<(usize, usize)> {
        let read = |name: &str| read_to_string(self.directory.join(name)).unwrap_or_default();
        let number = |name: &str| read(name).trim().parse::<usize>().ok();
        let (limit, used, files) = match self.version {
            Version::Two => {
                // Above `high` the kernel throttles the group, which is as bad as reaching the maximum.
                let limit = number("memory.max").into_iter().chain(number("memory.high")).min()?;
                (limit, number("memory.current")?, ["active_file ", "inactive_file "])
            }
            Version::One => {
                let limit = number("memory.limit_in_bytes").filter(|limit| *limit < NO_LIMIT)?;
                (limit, number("memory.usage_in_bytes")?, ["total_active_file ", "total_inactive_file "])
            }
        };
        let statistics = read("memory.stat");
        let field = |name: &str| -> usize {
            statistics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
        };
        let reclaimable: usize = files.into_iter().map(field).sum();
        Some((limit, used.saturating_sub(reclaimable)))
    }
}

/// The threshold for "unlimited" in cgroup v1, which reports a number near the maximum, rounded to pages.
const NO_LIMIT: usize = isize::MAX as usize / 2;

/// The groups that control memory, from the contents of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn find(groups: &str, mounts: &str) -> Vec<Level> {
    let mut levels = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            list if list.split(',').any(|name| name == "memory") => Version::One,
            _ => continue,
        };
        for (root, point) in mounts.lines().filter_map(|line| mount_of(line, version)) {
            // In a container, the visible part of the hierarchy may start at the process's own group.
            let within = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
            let within = if path.contains("/..") { Path::new("") } else { within };
            let names = within.ancestors();
            levels.extend(names.map(|name| Level {
                directory: Path::new(&point).join(name),
                version,
                name: format!("/{}", name.display()),
            }));
        }
    }
    levels
}

/// The root and the mount point of a hierarchy that controls memory.
fn mount_of(line: &str, version: Version) -> Option<(String, String)> {
    let (own, system) = line.split_once(" - ")?;
    let own: Vec<&str> = own.split(' ').collect();
    let system: Vec<&str> = system.split(' ').collect();
    let is_wanted = match version {
        Version::Two => system.first() == Some(&"cgroup2"),
        Version::One => {
            system.first() == Some(&"cgroup") && system.get(2)?.split(',').any(|option| option == "memory")
        }
    };
    is_wanted.then_some(())?;
    Some((unescaped(own.get(3)?), unescaped(own.get(4)?)))
}

/// Decodes the octal escapes of blanks in paths.
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, remove_dir_all, write};

    fn directories(groups: &str, mounts: &str) -> Vec<String> {
        find(groups, mounts).iter().map(|level| level.directory.display().to_string()).collect()
    }

    #[test]
    fn nested_groups_are_walked_up_to_the_root() {
        let systemd = "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            directories("0::/system.slice/slurmstepd.scope/job_7\n", systemd),
            [
                "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7",
                "/sys/fs/cgroup/system.slice/slurmstepd.scope",
                "/sys/fs/cgroup/system.slice",
                "/sys/fs/cgroup/",
            ]
        );
        let first = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        let groups = "9:name=systemd:/user\n4:memory:/slurm/uid_0\n1:cpu:/slurm";
        let expected =
            ["/sys/fs/cgroup/memory/slurm/uid_0", "/sys/fs/cgroup/memory/slurm", "/sys/fs/cgroup/memory/"];
        assert_eq!(directories(groups, first), expected);
    }

    #[test]
    fn containers_see_their_own_group_as_the_root() {
        let v1 = "30 25 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        assert_eq!(directories("4:memory:/docker/abc", v1), ["/sys/fs/cgroup/memory/"]);
        let v2 = "30 25 0:26 / /sys/fs/cgroup\\040x ro - cgroup2 cgroup rw";
        assert_eq!(directories("0::/../..", v2), ["/sys/fs/cgroup x/"]);
        assert!(directories("nonsense\n0::/", "").is_empty());
    }

    #[test]
    fn limits_and_uses_are_read() {
        let directory = std::env::temp_dir().join(format!("ferroflow-cgroup-{}", std::process::id()));
        create_dir_all(&directory).unwrap();
        let put = |name: &str, text: &str| write(directory.join(name), text).unwrap();
        let level = |version| Level { directory: directory.clone(), version, name: String::new() };
        assert_eq!(level(Version::Two).limit_and_use(), None);
        put("memory.max", "max\n");
        put("memory.current", "600\n");
        assert_eq!(level(Version::Two).limit_and_use(), None);
        put("memory.high", "900\n");
        assert_eq!(level(Version::Two).limit_and_use(), Some((900, 600)));
        put("memory.max", "800\n");
        put("memory.stat", "anon 350\nactive_file 100\ninactive_file 50\nshmem 50\n");
        assert_eq!(level(Version::Two).limit_and_use(), Some((800, 450)));
        put("memory.limit_in_bytes", "9223372036854771712\n");
        put("memory.usage_in_bytes", "500\n");
        assert_eq!(level(Version::One).limit_and_use(), None);
        put("memory.limit_in_bytes", "1000\n");
        put("memory.stat", "cache 9\ntotal_inactive_file 100\ntotal_active_file 20\n");
        assert_eq!(level(Version::One).limit_and_use(), Some((1000, 380)));
        remove_dir_all(directory).unwrap();
    }
}
