//! A control group that bounds the memory of the processes in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// The number of groups so far.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A group below that of this process. It is removed when this is dropped, once its processes have ended.
pub(super) struct MemoryGroup {
    folder: PathBuf,
    is_unified: bool,
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl MemoryGroup {
    /// A group of at most so many bytes; otherwise the reason why there can be none.
    pub(super) fn new(bytes: u64) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let (parent, is_unified) =
            parent(&groups, &mounts).ok_or("memory is in no control group that is mounted here")?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("idsvc-test-{}-{number}", std::process::id()));
        let group = Self { folder, is_unified };
        let made = fs::create_dir(&group.folder).and_then(|()| {
            let bound = ["memory.limit_in_bytes", "memory.max"][usize::from(is_unified)];
            fs::write(group.folder.join(bound), bytes.to_string())
        });
        let at = group.folder.display();
        made.map_err(|error| format!("{at}: {error}"))?;
        let words = group.wrapper();
        let mut enters = Command::new(&words[0]);
        match enters.args(&words[1..]).arg("true").output() {
            Ok(output) if output.status.success() => Ok(group),
            _ => Err(format!("{at}: no process can enter it")),
        }
    }

    /// The prefix of a command that must run in the group.
    pub(super) fn wrapper(&self) -> Vec<String> {
        let script = "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"";
        let folder = self.folder.display().to_string();
        ["sh", "-c", script]
            .map(str::to_owned)
            .into_iter()
            .chain([folder])
            .collect()
    }

    /// How many processes the kernel has killed because the group had no memory left.
    pub(super) fn kills(&self) -> u64 {
        let name = ["memory.oom_control", "memory.events"][usize::from(self.is_unified)];
        let text = fs::read_to_string(self.folder.join(name)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap().parse().unwrap()
    }

    /// The most bytes that the group has had, caches of files among them; nothing where the kernel does not say.
    pub(super) fn most(&self) -> Option<u64> {
        let name = ["memory.max_usage_in_bytes", "memory.peak"][usize::from(self.is_unified)];
        fs::read_to_string(self.folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

/// The folder of this process's group, and whether it is one of version 2.
fn parent(groups: &str, mounts: &str) -> Option<(PathBuf, bool)> {
    let mounted = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let fits =
                words[2] == kind && (option.is_empty() || words[3].split(',').any(|word| word == option));
            fits.then(|| PathBuf::from(words[1]))
        })
    };
    let group = |is_it: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            is_it(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let found = match mounted("cgroup", "memory") {
        Some(mount) => {
            let path = group(&|controllers| controllers.split(',').any(|name| name == "memory"))?;
            (mount.join(path), false)
        }
        None => (mounted("cgroup2", "")?.join(group(&str::is_empty)?), true),
    };
    Path::is_dir(&found.0).then_some(found)
}
