//! The table, and the same as a picture.

use std::fmt::Write as _;
use std::time::Duration;

use crate::load::Measured;

/// What an ES256 signature takes on the machine that the goals were set for, in microseconds.
const SIGNATURE: f64 = 17.0;

/// Within so many milliseconds a start is done.
const START: u128 = 50;
/// So much dearer may a request be in the largest store than in the smallest.
const GROWTH: f64 = 1.5;

/// Whether a goal is met. The figures are one machine's in one hour: nothing fails for them.
pub(crate) fn verdict(held: bool) -> &'static str {
    if held { "holds" } else { "does not hold" }
}

/// How much processor time a request may take, in microseconds.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// Where a signature takes [`SIGNATURE`]: on another machine as much more as a signature takes more there.
    Signed(f64),
    /// On this machine.
    Here(f64),
}

impl Goal {
    /// In microseconds, where a signature takes so many.
    fn at(self, signature: f64) -> f64 {
        match self {
            Self::Signed(goal) => goal * signature / SIGNATURE,
            Self::Here(goal) => goal,
        }
    }
}

/// One kind of request.
pub(crate) struct Row {
    name: String,
    measured: usize,
    per_second: f64,
    p50: f64,
    p99: f64,
    cpu: f64,
    signature: f64,
    goal: f64,
}

/// Everything about one number of users.
pub(crate) struct Run {
    pub(crate) users: usize,
    pub(crate) connections: usize,
    pub(crate) started: Duration,
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
}

impl Row {
    pub(crate) fn new(name: &str, measured: &Measured, goal: Goal) -> Self {
        Self {
            name: name.to_owned(),
            measured: measured.done,
            per_second: measured.per_second(),
            p50: measured.percentile(50),
            p99: measured.percentile(99),
            cpu: measured.cpu_each(),
            signature: measured.signature,
            goal: goal.at(measured.signature),
        }
    }

    /// The same cost as a multiple of a signature's.
    fn in_signatures(&self) -> f64 {
        self.cpu / self.signature
    }
}

impl Run {
    /// How many of each kind one core serves in a second.
    pub(crate) fn one_core(&self) -> impl Iterator<Item = (&str, f64)> {
        self.rows.iter().map(|row| (row.name.as_str(), 1e6 / row.cpu))
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{} users and families, {} connections\n\n",
            self.users, self.connections,
        );
        let head = format!(
            "{:<47} | {:>8} | {:>10} | {:>8} | {:>8} | {:>11} | {:>7} | {:>8} | {:>10} | {:>13}",
            "request",
            "measured",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "CPU us each",
            "goal",
            "ES256 us",
            "signatures",
            "the goal"
        );
        writeln!(text, "{head}\n{}", "-".repeat(head.len())).unwrap();
        for row in &self.rows {
            writeln!(
                text,
                "{:<47} | {:>8} | {:>10.0} | {:>8.2} | {:>8.2} | {:>11.1} | {:>7.0} | {:>8.1} | {:>10.2} | {:>13}",
                row.name,
                row.measured,
                row.per_second,
                row.p50,
                row.p99,
                row.cpu,
                row.goal,
                row.signature,
                row.in_signatures(),
                verdict(row.cpu <= row.goal)
            )
            .unwrap();
        }
        let started = self.started.as_millis();
        writeln!(
            text,
            "\nstart: {started} ms (goal {START}): {}",
            verdict(started < START)
        )
        .unwrap();
        for note in &self.notes {
            writeln!(text, "{note}").unwrap();
        }
        text
    }

    /// The table as bars, each with a mark where its goal is. The scale is logarithmic.
    pub(crate) fn chart(&self) -> String {
        const LEFT: f64 = 300.0;
        const DECADE: f64 = 110.0;
        let x = |value: f64| LEFT + DECADE * value.max(1.0).log10();
        let height = 70 + 28 * self.rows.len();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"10\" y=\"24\" font-size=\"15\">Processor time of one request in microseconds, \
             with {} users; the line is the goal where a signature takes what it took here</text>\n",
            self.users
        );
        let mut y = 44;
        for row in &self.rows {
            let (end, goal) = (x(row.cpu), x(row.goal));
            let colour = if row.cpu <= row.goal { "#2f7d4f" } else { "#b3541e" };
            let middle = y + 15;
            writeln!(
                svg,
                "<text x=\"10\" y=\"{middle}\">{}</text>\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"20\" fill=\"{colour}\"/>\
                 <line x1=\"{goal:.1}\" x2=\"{goal:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"#000\" stroke-width=\"2\"/>\
                 <text x=\"{:.1}\" y=\"{middle}\">{:.1}</text>",
                row.name,
                end - LEFT,
                y - 3,
                y + 23,
                end.max(goal) + 8.0,
                row.cpu
            )
            .unwrap();
            y += 28;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// What a request costs with few and with many users, in signatures: the machine may be slower by the last run than at the first.
pub(crate) fn growth(runs: &[Run]) -> String {
    let mut text = "what one request costs in ES256 signatures, by the number of users\n\n".to_owned();
    write!(text, "{:<47}", "request").unwrap();
    for run in runs {
        write!(text, " | {:>9}", run.users).unwrap();
    }
    writeln!(text, " | last to first | goal {GROWTH}").unwrap();
    let first = runs.first().map_or(&[][..], |run| &run.rows);
    for (at, row) in first.iter().enumerate() {
        write!(text, "{:<47}", row.name).unwrap();
        for run in runs {
            write!(text, " | {:>9.2}", run.rows[at].in_signatures()).unwrap();
        }
        let last = runs
            .last()
            .map_or(row.in_signatures(), |run| run.rows[at].in_signatures());
        let times = last / row.in_signatures();
        writeln!(text, " | {times:>13.2} | {}", verdict(times < GROWTH)).unwrap();
    }
    write!(text, "{:<47}", "start, in milliseconds").unwrap();
    for run in runs {
        write!(text, " | {:>9}", run.started.as_millis()).unwrap();
    }
    text.push('\n');
    text
}
