//! Templates: the operator's HTML, drawn with limits on time and size.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use minijinja::value::ValueKind;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, escape_formatter,
};

use super::finding::{Finding, Severity};
use super::{finding, grammar};
use crate::pages::form::sentence;
use crate::pages::template_context::TemplateContext;
use crate::pages::text::PLACE;

/// The most instructions for one page. The largest page of the built-in themes takes a tenth.
const MAX_INSTRUCTIONS: u64 = 20_000;
/// The most bytes that one page may print and pass through filters. Instructions do not measure them: one may print a
/// page's whole content, and what is outside of the blocks of a template with `extends` is printed nowhere.
const MAX_BYTES_OF_WORK: usize = 1024 * 1024;
/// How deep templates may include each other.
const MAX_INCLUDE_DEPTH: usize = 24;
/// The most bytes of a page.
pub(super) const MAX_PAGE_BYTES: usize = 256 * 1024;
/// The most bytes of a template. Line numbers of the parser have 16 bits.
const MAX_TEMPLATE_BYTES: usize = 64_000;

/// The templates of one theme.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
    names: Arc<BTreeSet<String>>,
}

impl Templates {
    /// Compiles every template that keeps to the grammar. The findings say why others are left out.
    pub fn compile(
        sources: BTreeMap<String, String>,
        assets: Arc<BTreeMap<String, String>>,
    ) -> (Self, Vec<Finding>) {
        let mut environment = Environment::empty();
        environment.set_auto_escape_callback(|name| {
            if is_text(name) {
                AutoEscape::None
            } else {
                AutoEscape::Html
            }
        });
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        environment.set_recursion_limit(MAX_INCLUDE_DEPTH);
        environment.set_formatter(|out, state, value| match value.kind() {
            ValueKind::String | ValueKind::Number | ValueKind::Bool | ValueKind::Undefined => {
                charge(state, value.as_str().unwrap_or_default())?;
                escape_formatter(out, state, value)
            }
            _ => Err(Error::new(
                ErrorKind::InvalidOperation,
                "a list cannot be printed: repeat over it with for",
            )),
        });
        environment.add_filter("upper", |state: &mut State<'_, '_>, text: &str| {
            charge(state, text).map(|()| text.to_uppercase())
        });
        environment.add_filter("lower", |state: &mut State<'_, '_>, text: &str| {
            charge(state, text).map(|()| text.to_lowercase())
        });
        environment.add_filter("trim", |state: &mut State<'_, '_>, text: &str| {
            charge(state, text).map(|()| text.trim().to_owned())
        });
        environment.add_filter("with", |state: &mut State<'_, '_>, text: &str, name: &str| {
            charge(state, text)?;
            charge(state, name)?;
            if matches!(state.auto_escape(), AutoEscape::None) {
                return Ok(Value::from(text.replace(PLACE, name)));
            }
            // maud does not escape an apostrophe, which would end an attribute in apostrophes.
            let sentence = sentence(text, name).into_string().replace('\'', "&#x27;");
            Ok(Value::from_safe_string(sentence))
        });
        environment.add_filter("asset", move |file: &str| {
            assets.get(file).cloned().ok_or_else(|| {
                let message = format!("the theme has no file {file} that can be served");
                Error::new(ErrorKind::InvalidOperation, message)
            })
        });
        let mut findings = Vec::new();
        let mut names = BTreeSet::new();
        for (name, source) in sources {
            if source.len() > MAX_TEMPLATE_BYTES {
                let message = format!("a template has at most {MAX_TEMPLATE_BYTES} bytes");
                findings.push(Finding::refused(&name, message));
                continue;
            }
            let mut faults = grammar::check(&name, &source, &mut names);
            if !is_text(&name) {
                faults.extend(unquoted_attributes(&name, &source));
            }
            if faults.is_empty()
                && let Err(error) = environment.add_template_owned(name.clone(), source)
            {
                faults.push(finding_of_error(&name, &error));
            }
            findings.extend(faults);
        }
        let names = Arc::new(names);
        (Self { environment, names }, findings)
    }

    /// An empty context. It takes only values that the templates read.
    pub fn context(&self) -> TemplateContext {
        TemplateContext::of(Arc::clone(&self.names))
    }

    /// Whether there is a template of that name.
    pub fn has(&self, name: &str) -> bool {
        self.environment.get_template(name).is_ok()
    }

    /// Draws a template; a finding if that fails.
    pub fn draw(&self, name: &str, context: TemplateContext) -> Result<String, Finding> {
        let fault = |error: &Error| finding_of_error(name, error);
        let template = self
            .environment
            .get_template(name)
            .map_err(|error| fault(&error))?;
        let mut page = LimitedWriter(Vec::with_capacity(8 * 1024));
        template
            .render_captured_to(context.into_value(), &mut page)
            .map_err(|error| fault(&error))?;
        String::from_utf8(page.0).map_err(|_| Finding::refused(name, "the page is no text"))
    }
}

/// Whether a template makes text, which is not escaped.
fn is_text(name: &str) -> bool {
    std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "txt")
}

/// A text as templates print it in HTML.
pub(super) fn html_escaped(text: &str) -> String {
    minijinja::HtmlEscape(text).to_string()
}

/// The bytes that the page has printed or passed through filters.
struct Work(usize);

/// Counts bytes as work. Fails if they are too many, before anything is done with them.
fn charge(state: &mut State<'_, '_>, text: &str) -> Result<(), Error> {
    let work = state.get_or_insert_extension(Work(0));
    work.0 = work.0.saturating_add(text.len());
    if work.0 > MAX_BYTES_OF_WORK {
        return Err(Error::from(ErrorKind::OutOfFuel));
    }
    Ok(())
}

/// The buffer of a page, with a limit on its size.
struct LimitedWriter(Vec<u8>);

impl Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > MAX_PAGE_BYTES {
            return Err(io::Error::other("the page is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error of minijinja, as a finding about the innermost template.
fn finding_of_error(name: &str, error: &Error) -> Finding {
    let mut innermost = error;
    while let Some(cause) = std::error::Error::source(innermost).and_then(|cause| cause.downcast_ref()) {
        innermost = cause;
    }
    let message = match (innermost.kind(), innermost.detail()) {
        (ErrorKind::OutOfFuel, _) => "the page takes too long to draw".to_owned(),
        (ErrorKind::WriteFailure, _) => format!("the page is longer than {} KiB", MAX_PAGE_BYTES / 1024),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let file = innermost.name().unwrap_or(name);
    match innermost.line() {
        Some(line) => Finding::at_line(Severity::Refused, file, line, message),
        None => Finding::refused(file, message),
    }
}

/// Reports values in attributes without quotes. A space in such a value would begin another attribute.
fn unquoted_attributes<'a>(name: &'a str, source: &'a str) -> impl Iterator<Item = Finding> + 'a {
    source.match_indices("{{").filter_map(move |(at, _)| {
        let before = source.get(..at)?.trim_end();
        let is_bare = before.ends_with('=') && before.rfind('<') > before.rfind('>');
        is_bare.then(|| {
            let line = finding::line_of(source, at);
            let message = "a value in an attribute without quotes: write =\"{{ … }}\"";
            Finding::at_line(Severity::Refused, name, line, message)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(sources: &[(&str, &str)]) -> Result<String, String> {
        let sources = sources
            .iter()
            .map(|(name, source)| ((*name).to_owned(), (*source).to_owned()))
            .collect();
        let assets = BTreeMap::from([("a.css".to_owned(), "/theme/x/1/a.css".to_owned())]);
        let (templates, findings) = Templates::compile(sources, Arc::new(assets));
        if let Some(finding) = findings.first() {
            return Err(finding.to_string());
        }
        let mut context = TemplateContext::default();
        context.text("name", "<b>\"&'");
        context.text("phrase", "to {} now");
        context.list("things", (0..100).map(|_| [("text", "a thing")]));
        templates
            .draw("page.html", context)
            .map_err(|finding| finding.to_string())
    }

    fn page(source: &str) -> Result<String, String> {
        draw(&[("page.html", source)])
    }

    #[test]
    fn everything_is_escaped_and_texts_take_names() {
        assert_eq!(page("{{ name }}").unwrap(), "&lt;b&gt;&quot;&amp;&#x27;");
        assert_eq!(
            page("{{ phrase|with(name) }}").unwrap(),
            "to <bdi class=\"name\">&lt;b&gt;&quot;&amp;&#x27;</bdi> now"
        );
        assert_eq!(
            page("{{ 'a.css'|asset|upper }}").unwrap(),
            "&#x2f;THEME&#x2f;X&#x2f;1&#x2f;A.CSS"
        );
    }

    #[test]
    fn what_is_not_there_is_named_with_its_line() {
        for (source, said) in [
            ("\n{{ nothing }}", "page.html line 2: undefined value"),
            (
                "\n\n{{ 'b.css'|asset }}",
                "page.html line 3: invalid operation: the theme has no file b.css",
            ),
            (
                "{{ things }}",
                "page.html line 1: invalid operation: a list cannot be printed",
            ),
            (
                "{% include 'gone.html' %}",
                "page.html line 1: template not found",
            ),
            (
                "<input value={{ name }}>",
                "page.html line 1: a value in an attribute without quotes",
            ),
        ] {
            let found = page(source).unwrap_err();
            assert!(found.starts_with(said), "{source}: {found}");
        }
    }

    #[test]
    fn no_loop_goes_on_for_ever_and_no_page_grows_without_end() {
        let nested = format!(
            "{}x{}",
            "{% for t in things %}".repeat(6),
            "{% endfor %}".repeat(6)
        );
        assert_eq!(
            page(&nested).unwrap_err(),
            "page.html line 1: the page takes too long to draw"
        );
        let long = format!("{{% for t in things %}}{}{{% endfor %}}", "x".repeat(9_000));
        assert_eq!(
            page(&long).unwrap_err(),
            "page.html: the page is longer than 256 KiB"
        );
        let found = draw(&[
            ("page.html", "{% include 'other.html' %}"),
            ("other.html", "{% include 'page.html' %}"),
        ])
        .unwrap_err();
        assert!(found.contains("recursion limit"), "{found}");
        assert!(
            page(&"x".repeat(MAX_TEMPLATE_BYTES + 1))
                .unwrap_err()
                .contains("at most 64000 bytes")
        );
    }

    /// Each of these keeps to the bound on instructions.
    #[test]
    fn bytes_are_work_wherever_they_are_printed_or_changed() {
        let long = "é".repeat(1000);
        let texts = "{% for t in things %}".repeat(2);
        let ends = "{% endfor %}".repeat(2);
        let work = |tag: &str| format!("{texts}\n{tag}{ends}").replace("LONG", &format!("'{long}'"));
        let is_too_long = "page.html line 2: the page takes too long to draw";
        for tag in [
            "{% if LONG|upper == 'x' %}{% endif %}",
            "{% if LONG|lower == 'x' %}{% endif %}",
            "{% if LONG|trim == 'x' %}{% endif %}",
            "{% if 'x'|with(LONG) == 'x' %}{% endif %}",
            "{% if LONG|with('x') == 'x' %}{% endif %}",
        ] {
            assert_eq!(page(&work(tag)).unwrap_err(), is_too_long, "{tag}");
        }
        let unprinted = draw(&[
            (
                "page.html",
                &format!("{{% extends 'layout.html' %}}{}", work("{{ LONG }}")),
            ),
            ("layout.html", "<main>"),
        ]);
        assert_eq!(unprinted.unwrap_err(), is_too_long);
        let short = work("{% if 'x'|upper == 'x' %}{% endif %}").replacen("{% for t in things %}", "", 1);
        assert!(page(&short.replacen("{% endfor %}", "", 1)).is_ok());
    }

    #[test]
    fn a_template_within_another_is_named_when_it_fails() {
        let found = draw(&[
            (
                "page.html",
                "{% extends 'layout.html' %}{% block content %}\n{{ oops }}{% endblock %}",
            ),
            ("layout.html", "<main>{% block content %}{% endblock %}</main>"),
        ])
        .unwrap_err();
        assert_eq!(found, "page.html line 2: undefined value");
    }
}
