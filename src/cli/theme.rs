//! Runs `idsvc theme …`.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output, yes_no};
use super::terminal_text::printable;
use super::value_parsers::unwritable;
use crate::data_dir;
use crate::files::{Folder, owner};
use crate::http::preview::{self, Previewed};
use crate::net::Limits;
use crate::net::listener::Listener;
use crate::pages::locale::is_tag;
use crate::themes::brand::Brand;
use crate::themes::folder::check_name;
use crate::themes::folder::{LANGUAGES, ThemeFolder};
use crate::themes::theme_set::Themes;
use crate::themes::{Finding, Severity, built_in, starter};

/// The verbs of themes.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show all themes: the built-in ones and your own
    List,
    /// Write the files of a new theme
    #[command(
        after_help = "Examples:\n  idsvc theme new acme\n  idsvc theme new acme --html --language nl\n  idsvc theme preview acme"
    )]
    New(New),
    /// Check a theme. The exit code is 1 if a fault affects visitors
    Check(Which),
    /// Show a theme in the browser: every page, state and language, reloaded when a file changes
    Preview(Preview),
}

/// The flags of `new`.
#[derive(Debug, Args)]
pub struct New {
    /// The name of the theme and of its folder
    #[arg(value_name = "NAME")]
    pub theme: String,
    /// Write a template for every page too
    #[arg(long)]
    pub html: bool,
    /// Write a file with every text, to be translated into this language; may be repeated
    #[arg(long, value_name = "TAG")]
    pub language: Vec<String>,
}

/// The name of a theme.
#[derive(Debug, Args)]
pub struct Which {
    /// The theme's name, or the path of its folder
    #[arg(value_name = "NAME")]
    pub theme: String,
}

/// The flags of `preview`.
#[derive(Debug, Args)]
pub struct Preview {
    /// The theme's name, or the path of its folder
    #[arg(value_name = "NAME")]
    pub theme: String,
    /// The loopback address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8444")]
    pub listen: SocketAddr,
}

/// The name of a theme and the folder of all themes.
struct ThemeLocation {
    folder: PathBuf,
    name: String,
    /// The data directory, if the folder may be in it.
    data_dir: Option<PathBuf>,
    brand: Brand,
}

impl ThemeLocation {
    /// The theme that an argument names: a name in `theme_dir`, or a path if it has a slash.
    fn of(argument: &str, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<Self, CliError> {
        if !argument.contains('/') {
            let settings = connector.settings(output)?;
            return Ok(Self {
                folder: settings.theme_dir,
                name: argument.to_owned(),
                data_dir: Some(settings.data_dir),
                brand: settings.brand.read().map_err(CliError::refused)?,
            });
        }
        let path = std::path::absolute(argument).map_err(CliError::refused)?;
        match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
            (Some(folder), Some(name)) => Ok(Self {
                folder: folder.to_owned(),
                name: name.to_owned(),
                data_dir: None,
                brand: Brand::default(),
            }),
            _ => Err(CliError::Misused(format!("{argument:?} is no folder of a theme"))),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Opens all themes of the folder. An error if this theme is not one of them.
    fn open(&self) -> Result<Themes, CliError> {
        let data_dir = self.data_dir.as_ref().unwrap_or(&self.folder);
        let folder = ThemeFolder::new(&self.folder, data_dir);
        let themes = Themes::open_branded("", &self.name, Some(folder), self.brand.clone());
        if themes.current().names().contains(self.name.as_str()) {
            return Ok(themes);
        }
        Err(CliError::Refused {
            message: format!("there is no theme {} in {}", self.name, self.folder.display()),
            hint: Some(if self.name == LANGUAGES {
                "idsvc theme check NAME looks at a theme and at the languages for all themes".to_owned()
            } else {
                format!("idsvc theme new {} makes it", self.name)
            }),
        })
    }
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::List => list(connector, output),
        Verb::New(new) => create(&new, connector, output),
        Verb::Check(which) => check(&ThemeLocation::of(&which.theme, connector, output)?, output),
        Verb::Preview(preview) => {
            let location = ThemeLocation::of(&preview.theme, connector, output)?;
            show(location, preview.listen, output)
        }
    }
}

/// A theme in the list.
#[derive(Serialize)]
struct ThemeRow {
    built_in: bool,
    chosen: bool,
    faults: usize,
    product_name: Option<String>,
    theme: String,
    usable: bool,
}

fn list(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let settings = connector.settings(output)?;
    let themes = Themes::open_branded(
        "",
        &settings.theme,
        Some(ThemeFolder::new(&settings.theme_dir, &settings.data_dir)),
        settings.brand.read().map_err(CliError::refused)?,
    );
    let theme_set = themes.current();
    let names = theme_set.names().into_iter();
    let rows: Vec<_> = names
        .map(|name| {
            let is_refused = theme_set.refused(name).is_some();
            let theme = theme_set.theme(name).filter(|_| !is_refused);
            ThemeRow {
                built_in: built_in::is_built_in(name),
                chosen: name == settings.theme,
                faults: serious(&theme_set.findings(name)).count(),
                product_name: theme.map(|theme| theme.product_name().to_owned()),
                theme: name.to_owned(),
                usable: theme.is_some(),
            }
        })
        .collect();
    if output.json {
        return output.document(&rows);
    }
    output.table(
        &["THEME", "PRODUCT", "BUILT IN", "CHOSEN", "USABLE", "FAULTS"],
        rows.into_iter().map(|row| {
            [
                row.theme,
                row.product_name.unwrap_or_default(),
                yes_no(row.built_in),
                yes_no(row.chosen),
                yes_no(row.usable),
                row.faults.to_string(),
            ]
        }),
    )?;
    output.hint(&format!(
        "Your own themes are in {}.",
        settings.theme_dir.display()
    ));
    Ok(())
}

fn create(new: &New, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    check_name(&new.theme).map_err(|problem| CliError::Misused(format!("{:?}: {problem}", new.theme)))?;
    let location = ThemeLocation::of(&new.theme, connector, output)?;
    if let Some(tag) = new.language.iter().find(|tag| !is_tag(tag)) {
        return Err(CliError::Misused(format!(
            "{tag:?} is no language tag, as in nl or pt-BR"
        )));
    }
    let path = location.path();
    let mut files: Vec<(String, String)> = Vec::new();
    let templates = if new.html { starter::TEMPLATES } else { &[] };
    for (name, text) in starter::FILES.iter().chain(templates) {
        files.push(((*name).to_owned(), (*text).to_owned()));
    }
    for tag in &new.language {
        files.push((format!("locales/{tag}.toml"), starter::language(tag)));
    }
    let data_dir = location
        .data_dir
        .filter(|data_dir| location.folder.starts_with(data_dir));
    if let Some(data_dir) = &data_dir {
        data_dir::make_folder(data_dir).map_err(CliError::refused)?;
    }
    let data_dir = data_dir.as_deref();
    if path.exists() {
        return Err(CliError::refused(format!("{} is there already", path.display())));
    }
    for (name, text) in &files {
        let file = path.join(name);
        write(&file, text, data_dir).map_err(|error| unwritable(&file, &error))?;
    }
    let made = format!("{} is made", path.display());
    let shown = if output.json {
        let names: Vec<_> = files.iter().map(|(name, _)| name).collect();
        output.document(&json!({ "theme": location.name, "path": path, "files": names }))
    } else {
        output.line(&made)
    };
    shown.map_err(|error| ChangeSummary::plain(made).unshown(error))?;
    output.hint(&format!(
        "Look at it: idsvc theme preview {0}\nUse it for one client: idsvc client update ID --theme {1}; for all: theme = \"{1}\"",
        new.theme, location.name
    ));
    Ok(())
}

/// Writes a new file, and creates missing folders. In the data directory both get the owner of that directory.
fn write(path: &Path, text: &str, data_dir: Option<&Path>) -> io::Result<()> {
    let parent = owner::folder_of(path);
    let Some(data_dir) = data_dir else {
        fs::create_dir_all(parent)?;
        return fs::File::create_new(path)?.write_all(text.as_bytes());
    };
    let folder = Folder::create_below(data_dir, parent, 0o777)?;
    let mut file = folder.create_file(path.file_name().unwrap_or_default(), 0o666)?;
    folder.give_to_owner(&file)?;
    file.write_all(text.as_bytes())
}

fn serious(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings
        .iter()
        .filter(|finding| finding.severity > Severity::Note)
}

fn check(location: &ThemeLocation, output: &mut Output<'_>) -> Result<(), CliError> {
    let theme_set = location.open()?.current();
    let findings = theme_set.findings(&location.name);
    let faults = serious(&findings).count();
    let shown = if output.json {
        output.document(&json!({ "theme": location.name, "ok": faults == 0, "findings": findings }))
    } else if findings.is_empty() {
        output.line(&format!("theme {} is all right", location.name))
    } else {
        let line = |finding: &Finding| printable(&format!("{:8} {finding}", finding.severity.as_str()));
        findings
            .iter()
            .try_for_each(|finding| output.line(&line(finding)))
    };
    match faults {
        0 => shown,
        1 => Err(CliError::refused(format!("theme {} has a fault", location.name))),
        faults => Err(CliError::refused(format!(
            "theme {} has {faults} faults",
            location.name
        ))),
    }
}

fn show(location: ThemeLocation, listen: SocketAddr, output: &mut Output<'_>) -> Result<(), CliError> {
    if !listen.ip().is_loopback() {
        return Err(CliError::Misused(format!(
            "{listen}: the preview listens on loopback only, as on 127.0.0.1:8444"
        )));
    }
    let previewed = Arc::new(Previewed {
        themes: location.open()?,
        name: location.name,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(CliError::refused)?;
    runtime.block_on(async {
        let listener = Listener::bind(&[listen], Limits::default())
            .await
            .map_err(CliError::refused)?;
        let address = listener.local_addrs().into_iter().next().unwrap_or(listen);
        let url = format!("http://{address}/");
        if output.json {
            output.document(&json!({ "theme": previewed.name, "url": url }))?;
        } else {
            output.line(&url)?;
            output.hint("The pages are reloaded when a file of the theme changes. Stop with Ctrl-C.");
        }
        let service = move |request, _peer| {
            let answer = preview::respond(&previewed, &request);
            async move { answer }
        };
        let until_told = async {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        listener.serve(None, service, until_told).await;
        Ok(())
    })
}
