//! The allowed grammar of templates: conditions, loops and output of given values.
//!
//! minijinja's fuel counts instructions, not memory, and constants are computed while a template is compiled:
//! `{{ "a" * 99999999 }}` costs two instructions and a hundred megabytes. So a template is checked before it is compiled.
//! All constructs that make new values, call functions or capture output are refused. The rest needs no more memory than
//! its input. [`template_bounds`] keeps the parser itself from too deep a recursion.

use std::collections::BTreeSet;

use minijinja::machinery::{Span, ast, parse};
use minijinja::value::ValueKind;

use super::finding::{Finding, Severity};
use super::template_bounds;

/// The filters that templates have.
pub const FILTERS: [&str; 5] = ["asset", "lower", "trim", "upper", "with"];

/// Reports what is not allowed in a template, and adds the names that it reads to `names`.
pub fn check(file: &str, source: &str, names: &mut BTreeSet<String>) -> Vec<Finding> {
    let mut checker = Checker {
        file,
        names,
        findings: Vec::new(),
    };
    if let Some(finding) = template_bounds::check(file, source) {
        return vec![finding];
    }
    match parse(source, file, minijinja::syntax::SyntaxConfig::default()) {
        Ok(root) => checker.statement(&root),
        Err(error) => {
            let message = error.detail().unwrap_or("this is no template");
            checker.refuse(error.line().unwrap_or(1), message);
        }
    }
    checker.findings
}

struct Checker<'a> {
    file: &'a str,
    names: &'a mut BTreeSet<String>,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn refuse(&mut self, line: usize, message: &str) {
        let finding = Finding::at_line(Severity::Refused, self.file, line, message);
        self.findings.push(finding);
    }

    fn forbid(&mut self, span: Span, what: &str) {
        let message = format!("{what}: templates may only have conditions, loops and output");
        self.refuse(usize::from(span.start_line), &message);
    }

    fn statements(&mut self, statements: &[ast::Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &ast::Stmt<'_>) {
        use ast::Stmt;
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitRaw(_) => {}
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::ForLoop(each) => {
                self.expression(&each.iter);
                if let Some(filter) = &each.filter_expr {
                    self.expression(filter);
                }
                if each.recursive {
                    self.forbid(each.span(), "a recursive loop");
                }
                self.statements(&each.body);
                self.statements(&each.else_body);
            }
            Stmt::IfCond(choice) => {
                self.expression(&choice.expr);
                self.statements(&choice.true_body);
                self.statements(&choice.false_body);
            }
            Stmt::Block(block) => self.statements(&block.body),
            Stmt::Extends(extends) => self.template_name(&extends.name),
            Stmt::Include(include) => self.template_name(&include.name),
            Stmt::WithBlock(with) => self.forbid(with.span(), "with"),
            Stmt::Set(set) => self.forbid(set.span(), "set"),
            Stmt::SetBlock(set) => self.forbid(set.span(), "set"),
            Stmt::AutoEscape(escape) => self.forbid(escape.span(), "autoescape"),
            Stmt::FilterBlock(filter) => self.forbid(filter.span(), "filter"),
            Stmt::Import(import) => self.forbid(import.span(), "import"),
            Stmt::FromImport(import) => self.forbid(import.span(), "from"),
            Stmt::Do(call) => self.forbid(call.span(), "do"),
        }
    }

    /// A name that is computed could be chosen by the reader of the page.
    fn template_name(&mut self, name: &ast::Expr<'_>) {
        if !matches!(name, ast::Expr::Const(constant) if constant.value.kind() == ValueKind::String) {
            let line = usize::from(name.span().start_line);
            self.refuse(
                line,
                "write the name of the template in quotes: it cannot be computed",
            );
        }
    }

    fn expression(&mut self, expression: &ast::Expr<'_>) {
        use ast::{BinOpKind, CompareOpKind, Expr, UnaryOpKind};
        let span = expression.span();
        match expression {
            Expr::Var(variable) => {
                self.names.insert(variable.id.to_owned());
            }
            Expr::Const(constant) => {
                if !matches!(
                    constant.value.kind(),
                    ValueKind::String | ValueKind::Number | ValueKind::Bool | ValueKind::None
                ) {
                    self.forbid(span, "a constant that is no text, number or truth value");
                }
            }
            Expr::GetAttr(get) => self.expression(&get.expr),
            Expr::UnaryOp(operation) => match operation.op {
                UnaryOpKind::Not => self.expression(&operation.expr),
                UnaryOpKind::Neg => self.forbid(span, "arithmetic"),
            },
            Expr::BinOp(operation) => {
                use BinOpKind::{Eq, Gt, Gte, Lt, Lte, Ne, ScAnd, ScOr};
                if !matches!(operation.op, Eq | Ne | Lt | Lte | Gt | Gte | ScAnd | ScOr) {
                    self.forbid(span, "an operation that makes a new value");
                }
                self.expression(&operation.left);
                self.expression(&operation.right);
            }
            Expr::Compare(comparison) => {
                self.expression(&comparison.expr);
                for operation in &comparison.ops {
                    if matches!(operation.op, CompareOpKind::In | CompareOpKind::NotIn) {
                        self.forbid(span, "in");
                    }
                    self.expression(&operation.expr);
                }
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                if let Some(otherwise) = &choice.false_expr {
                    self.expression(otherwise);
                }
            }
            Expr::Filter(filter) => {
                if !FILTERS.contains(&filter.name) {
                    let known = FILTERS.join(", ");
                    self.forbid(span, &format!("the filter {} (known: {known})", filter.name));
                }
                if let Some(subject) = &filter.expr {
                    self.expression(subject);
                }
                for argument in &filter.args {
                    match argument {
                        ast::CallArg::Pos(value) => self.expression(value),
                        _ => self.forbid(span, "a named argument"),
                    }
                }
            }
            Expr::Slice(_) | Expr::GetItem(_) => self.forbid(span, "brackets after a value"),
            Expr::Test(_) => self.forbid(span, "is"),
            Expr::Call(_) => self.forbid(span, "a call"),
            Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => self.forbid(span, "a list or table"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_may_choose_repeat_and_print() {
        let source = "{% extends \"layout.html\" %}{% block content %}{# a comment #}\
            {% for scope in scopes if scope.name != \"openid\" %}{{ loop.index }}{{ scope.text|upper }}\
            {% else %}{% include 'none.html' %}{% endfor %}\
            {% if not problem_text and (a == 1 or b < 2) %}{{ text.sign_in_to|with(client_name) }}{% endif %}\
            {{ 'a.css'|asset if dir == 'rtl' else 'b.css'|asset }}{% endblock %}";
        assert_eq!(check("login.html", source, &mut BTreeSet::new()), []);
    }

    #[test]
    fn whatever_makes_a_value_or_calls_is_refused_with_its_line() {
        for code in [
            "{{ \"a\" * 99999999 }}",
            "{{ x ~ x }}",
            "{{ 1 + 1 }}",
            "{{ -x }}",
            "{% set x = y %}",
            "{% set x %}y{% endset %}",
            "{% with x = y %}{% endwith %}",
            "{% for x in [y, y] %}{% endfor %}",
            "{% for x in y recursive %}{% endfor %}",
            "{{ {\"a\": x} }}",
            "{{ (x, y) }}",
            "{{ x[0] }}",
            "{{ x[1:] }}",
            "{{ x() }}",
            "{{ x.y() }}",
            "{{ range(1000000000) }}",
            "{{ x|safe }}",
            "{{ x|upper(y=1) }}",
            "{{ x is defined }}",
            "{{ x in y }}",
            "{{ x not in y }}",
            "{% autoescape false %}{{ x }}{% endautoescape %}",
            "{% filter upper %}x{% endfilter %}",
            "{% import \"a\" as b %}",
            "{% from \"a\" import b %}",
            "{% include [\"a\", x] %}",
            "{% include x %}",
            "{% extends \"a\" if x else \"b\" %}",
            "{% do x() %}",
            "{% macro m() %}{% endmacro %}",
            "{{ [x] }}",
            "{% if x %}",
            "{{",
        ] {
            let findings = check("login.html", &format!("<p>\n{code}"), &mut BTreeSet::new());
            assert!(!findings.is_empty(), "{code}");
            assert!(
                findings
                    .iter()
                    .all(|found| found.severity == Severity::Refused && found.place == "login.html line 2"),
                "{code}: {findings:?}"
            );
        }
    }
}
