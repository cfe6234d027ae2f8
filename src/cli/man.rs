//! Runs `idsvc man`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::Cli;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use super::value_parsers::unwritable;

/// The arguments of `idsvc man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The folder for the pages of all commands [default: print the page of idsvc]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Prints the page of the whole command line, or writes one for every command.
pub fn run(man: &Man, output: &mut Output<'_>) -> Result<(), CliError> {
    let Some(directory) = &man.directory else {
        output.only_text("a manual page")?;
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        output.out.write_all(&page)?;
        return Ok(output.out.flush()?);
    };
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .map_err(|error| unwritable(directory, &error))?;
    let made = format!("the pages are in {}", directory.display());
    let shown = if output.json {
        output.document(&serde_json::json!({ "directory": directory }))
    } else {
        output.line(&made)
    };
    shown.map_err(|error| ChangeSummary::plain(made).unshown(error))
}
