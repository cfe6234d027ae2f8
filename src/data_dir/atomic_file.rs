//! Files that appear complete or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::store::owner;

const ENDING: &str = ".partial";
/// The number of digits in the random part of a name.
const DIGITS: usize = 32;

/// Removes unfinished files of ended processes from a folder, if `is_ours` accepts their name and content. Errors are
/// ignored: such a file stays.
pub fn sweep(folder: &Path, is_ours: impl Fn(&str, &mut File) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_unfinished(name)) else {
            continue;
        };
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        if let Ok(mut file) = File::open(entry.path())
            && file.try_lock().is_ok()
            && is_ours(name, &mut file)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_unfinished(name: &str) -> bool {
    let random = name.strip_suffix(ENDING).and_then(|name| name.rsplit_once('.'));
    random.is_some_and(|(_, random)| {
        random.len() == DIGITS && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// A file under a temporary name. It is removed when it is dropped, unless [`AtomicFile::place`] renamed it.
pub struct AtomicFile {
    path: PathBuf,
    /// Locked while the process works on the file. [`sweep`] removes files without a lock only.
    locked_file: Option<File>,
    is_renamed: bool,
}

impl AtomicFile {
    /// Chooses an unused name beside `target`. The file does not exist yet.
    pub fn beside(target: &Path, random: &Random) -> Self {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}{ENDING}", random.uuid_v4().simple()));
        Self {
            path: PathBuf::from(name),
            locked_file: None,
            is_renamed: false,
        }
    }

    /// Creates the empty file with mode 0600. If root creates it, it belongs to the owner of `like`.
    pub fn create(&mut self, like: Option<&Path>) -> io::Result<File> {
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        // Without locks in the file system, nothing is swept.
        let _ = made.lock();
        if made.metadata()?.nlink() == 0 {
            // Another process swept the file before it was locked.
            return self.create(like);
        }
        self.locked_file = Some(made.try_clone()?);
        if let Some(like) = like {
            owner::chown_like(&made, like)?;
        }
        Ok(made)
    }

    /// The temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `target`, durably. If `target` exists, it is replaced if `may_replace` is set; otherwise this
    /// fails with `AlreadyExists`.
    pub fn place(&mut self, target: &Path, may_replace: bool) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        if may_replace {
            fs::rename(&self.path, target)?;
            self.is_renamed = true;
        } else {
            match fs::hard_link(&self.path, target) {
                // The file system has no links, as on a memory stick.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !target.exists() => {
                    fs::rename(&self.path, target)?;
                    self.is_renamed = true;
                }
                linked => linked?,
            }
        }
        File::open(owner::folder_of(target))?.sync_all()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            // The file may not exist, or may be linked under its final name too.
            let _ = fs::remove_file(&self.path);
        }
    }
}
