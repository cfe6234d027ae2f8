//! Pages that browsers read otherwise than the service, and pages that lack something.

use super::*;

const FORM: &str = "<form method=post action=/login><input type=hidden name=csrf value=b1><input name=username>\
    <button name=decision value=allow>Go</button></form>";

fn problems(page: &str) -> Vec<String> {
    let found = check_forms("login.html", page, FORM, None, None);
    found.into_iter().map(|finding| finding.message).collect()
}

#[test]
fn a_form_may_be_written_by_hand_in_any_style() {
    for sound in [
        "<FORM class=x action=&#x2f;login METHOD='POST'><p><input value=\"b1\" type=HIDDEN name='csrf'>\
         <textarea name=username></textarea><input type=submit name=decision value=allow></FORM>",
        &format!(
            "<table><tr><td><fieldset>{FORM}</fieldset></table><!-- old --><a href=https://elsewhere.example>x</a>"
        ),
        &format!(
            "<svg><title>x</title><g/><svg/></svg><template> </template><noscript>No script.</noscript>{FORM}"
        ),
        &FORM.replace(
            "</form>",
            "<select name=x><option>a<hr></select><button><svg/>Go</button></form>",
        ),
    ] {
        assert_eq!(problems(sound), Vec::<String>::new(), "{sound}");
    }
}

#[test]
fn a_form_that_cannot_be_sent_is_refused() {
    let around = |element: &str| {
        let name = element.split(' ').next().unwrap();
        format!("<{element}>{FORM}</{name}>")
    };
    for broken in [
        String::new(),
        FORM.replace("<input type=hidden name=csrf value=b1>", ""),
        FORM.replace("value=b1>", "value=b1><input type=hidden name=csrf value=b2>"),
        FORM.replace("name=username", "name=username disabled"),
        FORM.replace("name=username", "name=username form=other"),
        FORM.replace("<input name", "</form><input name"),
        FORM.replace("<button", "<button type=button"),
        FORM.replace("<button", "<button type=&#98;utton"),
        FORM.replace("<button", "<button commandfor=other"),
        FORM.replace("<button", "<button formmethod=get"),
        FORM.replace("=post", "=get"),
        FORM.replace("=post", "=post enctype=multipart/form-data"),
        format!("{FORM}{FORM}"),
        format!("{FORM}<form action=/login><input name=password></form>"),
        around("form method=post action=/login"),
        around("fieldset disabled"),
        around("button"),
        around("frameset"),
        around("noscript"),
        around("select"),
        around("svg"),
        around("svg><desc"),
        around("template"),
        around("textarea"),
        around("title"),
        around("title></titles"),
    ] {
        assert_ne!(problems(&broken), Vec::<String>::new(), "{broken}");
    }
    let said = problems("<p>");
    assert!(
        said[0].ends_with("the hidden field csrf, the field username, the button decision=allow"),
        "{said:?}"
    );
}

#[test]
fn no_form_leads_elsewhere_however_it_is_hidden() {
    for hidden in [
        "FORM",
        "<!-->FORM<!-- -->",
        "<!-- x --!>FORM<!-- -->",
        "<svg><style><div>FORM</style></svg>",
        "<svg><![CDATA[ <!-- ]]>FORM<!-- --></svg>",
        "<title></titles><!-- </title>FORM<!-- -->",
        "<iframe><a title=\"</iframe>FORM\"></a>",
        "<noscript><textarea></noscript><!-- </textarea>FORM<!-- -->",
        "<template shadowrootmode=open>FORM</template>",
        "<!x <a title=\">FORM\"></a>",
        "</ <a title=\">FORM\"></a>",
        "<? <a title=\">FORM\"></a>",
        "<!DOCTYPE html <a title=\">FORM\"></a>",
        "<select><option>FORM</select>",
        "<iframe srcdoc='&lt;form action=https://evil.example>'></iframe>",
        "<button form=x formaction=https://evil.example>",
        "<meta http-equiv=refresh content='0; url=https://evil.example'>",
    ] {
        let evil = "<form method=post action=https://evil.example><input name=password></form>";
        let page = format!("{}{FORM}", hidden.replace("FORM", evil));
        assert_ne!(problems(&page), Vec::<String>::new(), "{page}");
    }
}

#[test]
fn a_form_by_get_shows_the_page_again_and_takes_nothing_that_was_typed() {
    let with = |form: &str, shown| {
        let page = format!("{FORM}{form}");
        check_forms("login.html", &page, FORM, None, shown).is_empty()
    };
    let languages = "<form method=get action=/login><input type=hidden name=transaction value=t><button name=lang \
        value=de>Deutsch</button></form>";
    assert!(with(languages, Some("/login")) && !with(languages, None));
    let typed = languages.replace("<button", "<input type=password name=password><button");
    assert!(!with(&typed, Some("/login")));
    assert!(!with(
        &languages.replace("/login", "https://evil.example"),
        Some("/login")
    ));
}

#[test]
fn an_optional_form_may_be_missing_but_not_sent_elsewhere() {
    let optional = FORM.replace("<form", "<form data-optional");
    assert_eq!(check_forms("login.html", "", &optional, None, None), []);
    assert_eq!(check_forms("login.html", FORM, &optional, None, None), []);
    let elsewhere = FORM.replace("/login", "/elsewhere");
    assert_eq!(
        check_forms("login.html", &elsewhere, &optional, None, None).len(),
        1
    );
}

#[test]
fn no_way_onward_is_missing() {
    let content = "<a href=\"/federation/x/start?t=1&amp;u=2\">x</a><a href=\"#top\">y</a>";
    assert_eq!(check_forms("login.html", content, content, None, None), []);
    let found = check_forms("login.html", "", content, None, None);
    assert!(found[0].message.contains("/federation/x/start?t=1&u=2") && found.len() == 1);
}

#[test]
fn what_browsers_block_or_readers_miss_is_said() {
    let policy = ContentSecurityPolicy::default()
        .allow(ResourceKind::Font, "https://fonts.example")
        .unwrap();
    let said = |body: &str| {
        let page = format!(
            "<!-- (c) --><!doctype html><html lang=en dir=ltr><meta name=viewport content=x><title>t</title>{body}"
        );
        let found = check_content("login.html", &page, &policy);
        found
            .into_iter()
            .map(|finding| finding.message)
            .collect::<Vec<_>>()
    };
    let sound = "<img src=/id/x.svg alt=''><link rel=preload href=https://fonts.example/a.woff2><a href=https://b.example>";
    assert_eq!(said(sound), Vec::<String>::new());
    for (body, part) in [
        ("<script>alert(1)</script>", "an inline script"),
        (
            "<script src=//evil.example/x.js></script>",
            "loads \"//evil.example/x.js\": the content security policy",
        ),
        (
            "<link rel=stylesheet href=https://fonts.example/a.css>",
            "csp.style",
        ),
        ("<img alt='' srcset='https://cdn.example/a.png 2x'>", "csp.image"),
        ("<img alt='' src=logo.png>", "{{ \"logo.png\"|asset }}"),
        ("<img src=/id/a.png>", "alt"),
        ("<style>p{}</style>", "an inline style sheet"),
        ("<p style='color:red'>", "style=\"color:red\""),
        ("<p onclick=x()>", "onclick"),
        ("<a href=' JavaScript:x()'>x</a>", "href"),
        ("<base href=/>", "base"),
    ] {
        let found = said(body);
        assert!(found.len() == 1 && found[0].contains(part), "{body}: {found:?}");
    }
    assert_eq!(check_content("login.html", "<p>", &policy).len(), 5);
}
