//! Draws the progress of long work on one line of a terminal.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

/// Shorter work draws nothing.
const FIRST_DRAW_AFTER: Duration = Duration::from_secs(1);
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

    /// The progress of a result on standard output. It is not shown if that is a terminal, where the result is seen.
    pub fn of_output(what: &'static str) -> Self {
        let mut progress = Self::of(what);
        progress.is_shown &= !stdout().is_terminal();
        progress
    }

    /// Shows that `done` of `of` steps are finished, or of an unknown number. Most calls draw nothing.
    pub fn show(&mut self, done: u64, of: Option<u64>) {
        if !self.is_shown {
            return;
        }
        let is_due = match self.drawn_at {
            Some(drawn_at) => drawn_at.elapsed() >= REDRAW_INTERVAL,
            None => self.started.elapsed() >= FIRST_DRAW_AFTER,
        };
        if is_due {
            self.drawn_at = Some(Instant::now());
            let line = line(self.what, done, of, self.started.elapsed());
            let _ = write!(stderr(), "\r{line}\x1b[K");
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

fn line(what: &str, done: u64, of: Option<u64>, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = done.saturating_mul(1000) / millis;
    let Some(of) = of else {
        return format!("{what} {done}, {rate} a second");
    };
    let of = of.max(done).max(1);
    let filled = done.saturating_mul(BAR_WIDTH) / of;
    let bar: String = (0..BAR_WIDTH)
        .map(|at| if at < filled { '=' } else { ' ' })
        .collect();
    format!("{what} [{bar}] {done} of {of}, {rate} a second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_much_is_done_and_how_fast() {
        assert_eq!(
            line("restore", 50, Some(100), Duration::from_secs(2)),
            format!(
                "restore [{}{}] 50 of 100, 25 a second",
                "=".repeat(15),
                " ".repeat(15)
            )
        );
        assert!(line("import", 0, Some(0), Duration::ZERO).contains("0 of 1"));
        assert!(line("import", 7, Some(3), Duration::from_secs(1)).contains(&"=".repeat(30)));
        assert_eq!(
            line("export", 7, None, Duration::from_secs(1)),
            "export 7, 7 a second"
        );
    }
}
