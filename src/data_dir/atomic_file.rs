//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::store::owner;

const ENDING: &str = ".partial";
/// The digits of the random part of a name.
const DIGITS: usize = 32;

/// Removes from a folder what processes that are gone left unfinished there, as far as `is_ours` says so of its name and
/// content. What cannot be looked at or removed stays.
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

/// A file under a name that nobody looks for; removed when it is dropped before it was put in its place.
pub struct AtomicFile {
    path: PathBuf,
    /// Locked for as long as somebody works at it, by which [`sweep`] tells it from what was left behind.
    held: Option<File>,
    is_placed: bool,
}

impl AtomicFile {
    /// A name beside `target` that nobody has, for a file still to be made.
    pub fn beside(target: &Path, random: &Random) -> Self {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}{ENDING}", random.uuid_v4().simple()));
        Self {
            path: PathBuf::from(name),
            held: None,
            is_placed: false,
        }
    }

    /// Makes the file, empty, for its owner only: whom `like` belongs to, when root makes it.
    pub fn create(&mut self, like: Option<&Path>) -> io::Result<File> {
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        // Not every file system has locks; on one without, nothing is swept.
        let _ = made.lock();
        if made.metadata()?.nlink() == 0 {
            // Taken for what was left behind before it was locked.
            return self.create(like);
        }
        self.held = Some(made.try_clone()?);
        if let Some(like) = like {
            owner::give(&made, like)?;
        }
        Ok(made)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, on the disk before this returns. A file that has the name is replaced
    /// when `may_replace`, and else an error of the kind `AlreadyExists`.
    pub fn place(&mut self, target: &Path, may_replace: bool) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        if may_replace {
            fs::rename(&self.path, target)?;
            self.is_placed = true;
        } else {
            match fs::hard_link(&self.path, target) {
                // A file system without links, as on a memory stick.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !target.exists() => {
                    fs::rename(&self.path, target)?;
                    self.is_placed = true;
                }
                linked => linked?,
            }
        }
        File::open(owner::folder_of(target))?.sync_all()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_placed {
            // What was never made cannot be removed, and what has another name by now may lose this one.
            let _ = fs::remove_file(&self.path);
        }
    }
}
