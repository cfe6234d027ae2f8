//! How much memory the service may use: as the operator says, as its control group says, or half of the machine's.

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The memory that the service may use, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// Who says so.
    pub origin: LimitOrigin,
}

/// Where a [`MemoryLimit`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOrigin {
    /// `limits.memory`.
    Setting,
    /// The control group of this process, or one above it.
    ControlGroup,
    /// Half of the memory of this machine.
    Machine,
}

impl fmt::Display for LimitOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setting => "limits.memory",
            Self::ControlGroup => "the limit of the control group",
            Self::Machine => "half of the memory of this machine",
        })
    }
}

impl MemoryLimit {
    /// The limit of this process without a setting; `None` if it cannot be read.
    pub fn of_this_process() -> Option<Self> {
        let machine = memory_of_machine()?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group_limit(Path::new("/sys/fs/cgroup"), &groups);
        Some(match group.filter(|limit| *limit < machine) {
            Some(bytes) => Self {
                bytes,
                origin: LimitOrigin::ControlGroup,
            },
            None => Self {
                bytes: machine / 2,
                origin: LimitOrigin::Machine,
            },
        })
    }
}

#[cfg(target_os = "linux")]
fn memory_of_machine() -> Option<u64> {
    let info = rustix::system::sysinfo();
    u64::try_from(u128::from(info.totalram) * u128::from(info.mem_unit)).ok()
}

#[cfg(not(target_os = "linux"))]
fn memory_of_machine() -> Option<u64> {
    None
}

/// The lowest limit of the control groups (cgroups(7)) in the text of `/proc/self/cgroup`, and of those above them. A
/// container may see its groups under another path: the folders that exist are read.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let lowest = |line: &str| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let (root, file) = if controllers.is_empty() {
            (root.to_owned(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            return None;
        };
        let names = Path::new(path).components();
        let mut folder = root.clone();
        folder.extend(names.filter(|name| matches!(name, Component::Normal(_))));
        let all = folder.ancestors().take_while(|folder| folder.starts_with(&root));
        all.filter_map(|folder| read_number(&folder.join(file))).min()
    };
    groups.lines().filter_map(lowest).min()
}

/// The number in a file; `None` if it says `max`, or does not exist.
fn read_number(path: &PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A size as it is written in the settings: `256MiB` or `2GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let units = [("MiB", 20), ("GiB", 30)];
        let parsed = units.into_iter().find_map(|(unit, shift)| {
            let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(1 << shift)
        });
        parsed.map(Self).ok_or("write a size, as in 256MiB or 2GiB")
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A tree of control groups with these files.
    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_lowest_limit_of_the_group_and_those_above_it_counts() {
        let root = tree(&[
            ("memory.max", "max\n"),
            ("system.slice/memory.max", "268435456\n"),
            ("system.slice/idsvc.service/memory.max", "max\n"),
            ("user.slice/memory.max", "1\n"),
        ]);
        let limit = |groups| group_limit(root.path(), groups);
        assert_eq!(limit("0::/system.slice/idsvc.service\n"), Some(256 << 20));
        assert_eq!(limit("0::/\n"), None);
        assert_eq!(limit("0::/not/here\n"), None);
        assert_eq!(limit("0::/../../system.slice\n"), Some(256 << 20));
        assert_eq!(limit("4:cpu:/user.slice\nnothing\n"), None);
        assert_eq!(limit(""), None);
    }

    #[test]
    fn the_first_version_of_control_groups_is_read_too() {
        let root = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/memory.limit_in_bytes", "67108864\n"),
        ]);
        let limit = |groups| group_limit(root.path(), groups);
        assert_eq!(
            limit("5:hugetlb,memory:/docker/abc\n1:cpu:/docker\n0::/\n"),
            Some(64 << 20)
        );
        assert_eq!(limit("4:memory:/\n"), Some(i64::MAX as u64 & !0xfff));
    }

    #[test]
    fn a_size_has_a_unit() {
        let size = |text: &str| text.parse().map(|Size(bytes)| bytes).ok();
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size("2 GiB"), Some(2 << 30));
        for wrong in [
            "64",
            "64MB",
            "MiB",
            "-1GiB",
            "1.5GiB",
            "18446744073709551615GiB",
            "",
        ] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_machine_has_memory() {
        let limit = MemoryLimit::of_this_process().unwrap();
        assert!(limit.bytes > 1 << 20, "{limit:?}");
    }
}
