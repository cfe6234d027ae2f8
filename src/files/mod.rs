//! Opens, creates and renames files without following symbolic links.
//!
//! The data directory belongs to the user of the service, and theme folders to people who may not read the rest of the
//! machine. A link in there could lead the service, or a command that root runs, to any other file. So a path is walked by
//! descriptors: each name is opened in the folder before it with `O_NOFOLLOW`, and the descriptor is what is checked.

pub mod owner;
pub mod slice_writer;

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Opens a file at a path whose last name must not be a link. The folder must be one that the operator named.
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = options.clone().custom_flags(flags).open(path);
    opened.map_err(explain)
}

/// Opens a file for reading, as [`open`] does.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// Opens a regular file for reading. If the path leads through `root`, the names after it must not be links.
pub fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    let name = path.file_name().unwrap_or_default();
    Folder::open_below(root, owner::folder_of(path))?.file(name)
}

/// A descriptor of what is at a path, which must not be a link. It can only be named by [`path_of`], and looked at.
pub fn locate(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).is_symlink() {
        return Err(explain(Errno::LOOP.into()));
    }
    Ok(found)
}

/// A path that leads to the file that was opened at `path`, for libraries that open paths only. Keep the file open
/// meanwhile. Where `/proc` is missing, as in an empty root directory, it is `path`.
pub fn path_of(file: &impl AsRawFd, path: &Path) -> PathBuf {
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if by_descriptor.exists() {
        by_descriptor
    } else {
        path.to_owned()
    }
}

/// The metadata of a file, or of the link at this path; `None` if there is neither.
pub fn metadata_of(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An open folder. Its methods take one name each, and follow no link.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Folder {
    /// Opens a folder that the operator named. Links in its path are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let descriptor = rustix::fs::open(path, FOLDER, Mode::empty())?;
        Ok(Self {
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Opens a folder. If the path leads through `root`, the names after it must not be links.
    pub fn open_below(root: &Path, path: &Path) -> io::Result<Self> {
        let (whole, absolute_root) = (std::path::absolute(path)?, std::path::absolute(root)?);
        let Ok(rest) = whole.strip_prefix(absolute_root) else {
            return Self::open(path);
        };
        let mut folder = Self::open(root)?;
        for name in names_in(rest) {
            folder = folder.folder(name?)?;
        }
        Ok(folder)
    }

    /// As [`Folder::open_below`]. Missing folders below `root` are created with this mode, for the owner of `root`.
    pub fn create_below(root: &Path, path: &Path, mode: u32) -> io::Result<Self> {
        let mut folder = Self::open(root)?;
        for name in names_in(path.strip_prefix(root).unwrap_or(path)) {
            folder = folder.folder_or_create(name?, mode)?;
        }
        Ok(folder)
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder in it.
    pub fn folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        let name = one_name(name.as_ref())?;
        Ok(Self {
            descriptor: self.open_name(name, FOLDER, Mode::empty())?,
            path: self.path.join(name),
        })
    }

    /// Opens a folder in it. A missing one is created, for the owner of this folder.
    pub fn folder_or_create(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let name = one_name(name.as_ref())?;
        match rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(mode)) {
            Ok(()) => {
                let made = self.folder(name)?;
                self.give_to_owner(&made)?;
                Ok(made)
            }
            Err(Errno::EXIST) => self.folder(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading. A pipe or a device is refused: reading it could wait for ever.
    pub fn file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let file = self.open_file(name, OFlags::RDONLY.union(OFlags::NONBLOCK))?;
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            ))
        }
    }

    /// The content of a regular file.
    pub fn read(&self, name: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub fn open_file(&self, name: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        let name = one_name(name.as_ref())?;
        self.open_name(name, flags, Mode::empty()).map(File::from)
    }

    /// Creates a file for reading and writing. Fails if there is a file of that name.
    pub fn create_file(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL);
        let name = one_name(name.as_ref())?;
        self.open_name(name, flags, Mode::from_raw_mode(mode))
            .map(File::from)
    }

    /// Gives a file or folder that root has just created in it to the owner of this folder. Does nothing for other users.
    ///
    /// `made` must be new: the owner of the folder may have replaced an older file.
    pub fn give_to_owner(&self, made: &impl AsFd) -> io::Result<()> {
        let owner = rustix::fs::fstat(&self.descriptor)?;
        owner::give(made, owner.st_uid, owner.st_gid)
    }

    /// What has this name, which may be a link.
    pub fn stat(&self, name: impl AsRef<Path>) -> io::Result<Stat> {
        let name = one_name(name.as_ref())?;
        Ok(rustix::fs::statat(
            &self.descriptor,
            name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// The names in it in alphabetical order, with what each stands for.
    pub fn entries(&self) -> io::Result<Vec<(OsString, Stat)>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            // It may have been removed since it was listed.
            if let Ok(stat) = self.stat(&name) {
                entries.push((name, stat));
            }
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
    }

    /// Renames a file in it. A file that has the new name is replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (one_name(from.as_ref())?, one_name(to.as_ref())?);
        Ok(rustix::fs::renameat(
            &self.descriptor,
            from,
            &self.descriptor,
            to,
        )?)
    }

    /// Gives a file in it a second name. Fails if there is a file of that name.
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (from, to) = (one_name(from.as_ref())?, one_name(to.as_ref())?);
        let (here, there) = (&self.descriptor, &self.descriptor);
        Ok(rustix::fs::linkat(here, from, there, to, AtFlags::empty())?)
    }

    /// Removes a file or link from it.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let name = one_name(name.as_ref())?;
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Makes its new names durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }

    fn open_name(&self, name: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.descriptor, name, flags, mode);
        opened.map_err(|error| {
            let is_link = self
                .stat(name)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink());
            // A link in the place of a folder is no directory, says the system.
            explain(if is_link { Errno::LOOP.into() } else { error.into() })
        })
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The names of a relative path. `..` is refused.
fn names_in(path: &Path) -> impl Iterator<Item = io::Result<&Path>> {
    path.components().map(|component| match component {
        Component::Normal(name) => Ok(Path::new(name)),
        _ => Err(Errno::INVAL.into()),
    })
}

fn one_name(path: &Path) -> io::Result<&Path> {
    let mut names = names_in(path);
    match (names.next(), names.next()) {
        (Some(name), None) => name,
        _ => Err(Errno::INVAL.into()),
    }
}

/// Why a link is not opened.
#[derive(Debug, thiserror::Error)]
#[error("it is a symbolic link, and none is followed here")]
pub struct SymbolicLink;

/// Whether something was not opened because it is a link.
pub fn is_of_link(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<SymbolicLink>)
}

/// Replaces the system's error for a link.
fn explain(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        io::Error::other(SymbolicLink)
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn no_link_is_followed_and_no_path_leads_out() {
        let scratch = TempDir::new().unwrap();
        let (outside, root) = (scratch.path().join("outside"), scratch.path().join("root"));
        fs::create_dir_all(outside.join("deep")).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, root.join("away")).unwrap();
        symlink(outside.join("secret"), root.join("file")).unwrap();
        let folder = Folder::open(&root).unwrap();
        for refused in [
            folder.folder("away").err(),
            folder.folder_or_create("away", 0o700).err(),
            folder.file("file").err(),
            folder.open_file("file", OFlags::WRONLY).err(),
            Folder::open_below(&root, &root.join("away")).err(),
            Folder::open_below(&root, &root.join("away/deep")).err(),
            Folder::create_below(&root, &root.join("away/new"), 0o700).err(),
            open_to_read(&root.join("file")).err(),
            locate(&root.join("file")).err(),
        ] {
            assert!(is_of_link(&refused.unwrap()));
        }
        for path in ["..", "../outside", "a/b", "", "/etc", "."] {
            assert!(
                folder.file(path).is_err() && folder.folder(path).is_err(),
                "{path}"
            );
        }
        assert!(Folder::open_below(&root, &root.join("../outside")).is_err());
        assert!(folder.create_file("file", 0o600).is_err());
        assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
    }

    #[test]
    fn an_open_folder_stays_the_same_when_a_link_takes_its_place() {
        let scratch = TempDir::new().unwrap();
        let (outside, inside) = (scratch.path().join("outside"), scratch.path().join("root/in"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir_all(&inside).unwrap();
        let folder = Folder::open_below(scratch.path(), &inside).unwrap();
        fs::rename(&inside, scratch.path().join("moved")).unwrap();
        symlink(&outside, &inside).unwrap();
        drop(folder.create_file("a", 0o600).unwrap());
        folder.rename("a", "b").unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(scratch.path().join("moved/b").exists());
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let scratch = TempDir::new().unwrap();
        let folder = Folder::open(scratch.path()).unwrap();
        let pipe = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&folder, "pipe", FileType::Fifo, pipe, 0).unwrap();
        folder.folder_or_create("folder", 0o700).unwrap();
        assert!(folder.file("pipe").is_err() && folder.file("folder").is_err());
        drop(folder.create_file("file", 0o600).unwrap());
        assert_eq!(folder.read("file").unwrap(), b"");
        let names: Vec<_> = folder
            .entries()
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["file", "folder", "pipe"]);
    }
}
