//! Draws the progress of long work on one line of a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const BAR_WIDTH: u64 = 30;

/// The line on standard error. Dropping it clears the line.
pub struct Progress {
    what: &'static str,
    is_shown: bool,
    started: Instant,
    drawn_at: Option<Instant>,
}

impl Progress {
    /// The progress of this work. It is shown only if standard error is a terminal.
    pub fn of(what: &'static str) -> Self {
        Self {
            what,
            is_shown: stderr().is_terminal(),
            started: Instant::now(),
            drawn_at: None,
        }
    }

    /// Shows that `done` of `of` steps are finished. Most calls draw nothing.
    pub fn show(&mut self, done: u64, of: u64) {
        let is_due = self
            .drawn_at
            .is_none_or(|drawn_at| drawn_at.elapsed() >= REDRAW_INTERVAL);
        if self.is_shown && is_due && self.started.elapsed() >= REDRAW_INTERVAL {
            self.drawn_at = Some(Instant::now());
            let _ = write!(
                stderr(),
                "\r{}\x1b[K",
                line(self.what, done, of, self.started.elapsed())
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn_at.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, of: u64, elapsed: Duration) -> String {
    let of = of.max(done).max(1);
    let filled = done.saturating_mul(BAR_WIDTH) / of;
    let bar: String = (0..BAR_WIDTH)
        .map(|at| if at < filled { '=' } else { ' ' })
        .collect();
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
