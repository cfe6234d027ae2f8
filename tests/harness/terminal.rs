//! A program on a terminal of its own.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// It does not outlive the test.
pub(crate) struct OnTerminal {
    child: Child,
    outer: File,
    inner: File,
}

impl OnTerminal {
    /// Starts a program that reads from the terminal. Its output and messages are dropped.
    pub(crate) fn start(command: &Command) -> Self {
        let (outer, inner) = open_terminal();
        let mut leading = Command::new("setsid");
        leading
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => leading.env(name, value),
                None => leading.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            leading.current_dir(folder);
        }
        let child = leading
            .stdin(inner.try_clone().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, outer, inner }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the terminal shows what is typed.
    pub(crate) fn shows_input(&self) -> bool {
        let modes = tcgetattr(&self.inner).unwrap().local_modes;
        modes.contains(LocalModes::ECHO)
    }

    /// Waits until the program asks for a secret, or ends.
    pub(crate) fn wait_for_prompt(&mut self) {
        self.wait(|program| !program.shows_input() || program.child.try_wait().unwrap().is_some());
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.outer.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.wait(|program| program.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < Duration::from_mins(1));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A new terminal: what its user types into and reads from, and what a program has.
pub(crate) fn open_terminal() -> (File, File) {
    let outer = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    unlockpt(&outer).unwrap();
    let name = ptsname(&outer, Vec::new()).unwrap().into_string().unwrap();
    let inner = File::options().read(true).write(true).open(name).unwrap();
    (outer, inner)
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
