//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::store::owner;

/// A file under a name that nobody looks for; removed when it is dropped before it was put in its place.
pub struct Unfinished {
    path: PathBuf,
    is_placed: bool,
}

impl Unfinished {
    /// A name beside `target` that nobody has, for a file still to be made.
    pub fn beside(target: &Path, random: &Random) -> Self {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".{}.partial", random.uuid_v4().simple()));
        Self {
            path: PathBuf::from(name),
            is_placed: false,
        }
    }

    /// Makes the file, empty, for its owner only: whom `like` belongs to, when root makes it.
    pub fn create(&self, like: Option<&Path>) -> io::Result<File> {
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
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
    pub fn place(mut self, target: &Path, may_replace: bool) -> io::Result<()> {
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

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_placed {
            // What was never made cannot be removed, and what has another name by now may lose this one.
            let _ = fs::remove_file(&self.path);
        }
    }
}
