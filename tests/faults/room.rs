//! A small file system of its own, in a mount namespace that a process of ours holds open.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The mounted file system. It is gone when this is dropped, or when the tests end.
pub(super) struct Room {
    holder: Child,
    path: PathBuf,
    has_users_of_its_own: bool,
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}

impl Room {
    /// Mounts an empty file system of that size where `path` is; nothing where this is not permitted.
    pub(super) fn mount(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        Self::try_mount(path, size, true).or_else(|| Self::try_mount(path, size, false))
    }

    fn try_mount(path: &Path, size: &str, has_users_of_its_own: bool) -> Option<Self> {
        // The holder ends when its standard input does, however the test ends.
        let script = "mount -t tmpfs -o size=$1,mode=700 room \"$0\" && echo mounted && exec cat";
        let mut holder = Command::new("unshare")
            .arg(if has_users_of_its_own { "-rm" } else { "-m" })
            .args(["sh", "-c", script])
            .arg(path)
            .arg(size)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take()?).read_line(&mut line).ok()?;
        let room = Self {
            holder,
            path: path.to_owned(),
            has_users_of_its_own,
        };
        (line == "mounted\n").then_some(room)
    }

    /// The prefix of a command that must see the file system.
    pub(super) fn wrapper(&self) -> Vec<String> {
        let mut words = vec![
            "nsenter".to_owned(),
            "-t".to_owned(),
            self.holder.id().to_string(),
        ];
        if self.has_users_of_its_own {
            words.extend(["-U".to_owned(), "--preserve-credentials".to_owned()]);
        }
        words.push("-m".to_owned());
        words
    }

    /// Where one of its files is to be found from outside.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(path.strip_prefix("/").unwrap())
    }

    /// Changes how it is mounted: `ro` or `rw`.
    pub(super) fn mount_again(&self, how: &str) -> Option<i32> {
        let words = self.wrapper();
        let status = Command::new(&words[0])
            .args(&words[1..])
            .args(["mount", "-o", &format!("remount,{how}")])
            .arg(&self.path)
            .status()
            .unwrap();
        status.code()
    }
}
