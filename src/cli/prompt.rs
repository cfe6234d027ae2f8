//! Asks for a password on the terminal, and always restores the terminal.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::sync::Once;
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use zeroize::Zeroizing;

use super::output::CliError;

const TERMINAL: &str = "/dev/tty";

static SIGNALS_WATCHED: Once = Once::new();

/// Asks for a password without showing it.
pub(super) fn password(prompt: &str) -> Result<Zeroizing<String>, CliError> {
    let unreadable = |error| CliError::refused(format!("the password cannot be read: {error}"));
    let mut watched = Ok(());
    SIGNALS_WATCHED.call_once(|| watched = watch_signals());
    watched.map_err(unreadable)?;
    let typed = rpassword::prompt_password(prompt);
    if typed
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::Interrupted)
    {
        // Ctrl-C raises no signal while the password is read.
        emulate_default_handler(SIGINT).map_err(unreadable)?;
    }
    typed.map(Zeroizing::new).map_err(unreadable)
}

/// From now on a signal that ends the process first makes the terminal show typed text again.
fn watch_signals() -> std::io::Result<()> {
    let terminal = File::options().read(true).write(true).open(TERMINAL)?;
    let before = tcgetattr(&terminal)?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                restore(&terminal, &before);
                let _ = emulate_default_handler(signal);
            }
        })?;
    Ok(())
}

/// Restores the terminal. Errors are ignored: the terminal may be gone.
fn restore(mut terminal: &File, before: &Termios) {
    let _ = tcsetattr(terminal, OptionalActions::Now, before);
    let _ = terminal.write_all(b"\n");
}
