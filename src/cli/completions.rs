//! Runs `idsvc completions …`.

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell as Generator;

use super::Cli;
use super::output::{CliError, Output};

/// The supported shells.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// The Z shell
    Zsh,
    /// fish
    Fish,
}

/// The arguments of `idsvc completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell that will read the script
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
pub fn run(completions: &Completions, output: &mut Output<'_>) -> Result<(), CliError> {
    output.only_text("a completion script")?;
    let generator = match completions.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), "idsvc", &mut script);
    output.out.write_all(&script)?;
    Ok(output.out.flush()?)
}
