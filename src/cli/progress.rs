//! How far long work has come: one line that is written over, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

/// The line on standard error. It is wiped when this is dropped.
pub struct Progress {
    what: &'static str,
    is_shown: bool,
    begun: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    /// Of that work; nothing is shown when standard error is no terminal.
    pub fn of(what: &'static str) -> Self {
        Self {
            what,
            is_shown: stderr().is_terminal(),
            begun: Instant::now(),
            drawn: None,
        }
    }

    /// So many of so many are done. Most calls draw nothing.
    pub fn show(&mut self, done: u64, of: u64) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= PAUSE);
        if self.is_shown && is_due && self.begun.elapsed() >= PAUSE {
            self.drawn = Some(Instant::now());
            let _ = write!(
                stderr(),
                "\r{}\x1b[K",
                line(self.what, done, of, self.begun.elapsed())
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, of: u64, elapsed: Duration) -> String {
    let of = of.max(done).max(1);
    let filled = done.saturating_mul(WIDTH) / of;
    let bar: String = (0..WIDTH).map(|at| if at < filled { '=' } else { ' ' }).collect();
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = done.saturating_mul(1000) / millis;
    format!("{what} [{bar}] {done} of {of}, {rate} a second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_much_is_done_and_how_fast() {
        assert_eq!(
            line("restore", 50, 100, Duration::from_secs(2)),
            format!(
                "restore [{}{}] 50 of 100, 25 a second",
                "=".repeat(15),
                " ".repeat(15)
            )
        );
        assert!(line("import", 0, 0, Duration::ZERO).contains("0 of 1"));
        assert!(line("import", 7, 3, Duration::from_secs(1)).contains(&"=".repeat(30)));
    }
}
