//! The report of a sweep as a page: plots as SVG, no script, no request to the network.
//!
//! # Guarantees
//! - The page needs nothing but itself, and shows text of others as text. (test: `page_needs_nothing_but_itself`)
//! - Every plot has a title, axes with units and round numbers, and lines with names and dashes of their own.
//!   (test: `plots_name_axes_and_lines`, `ticks_are_round`)
//! - The page is as wide as the window, down to a telephone's; a table that is wider scrolls by itself.

use std::fmt::Write as _;

use super::report::{COLUMNS, Report};
use super::setting::Dimension;

/// The size of a plot, and the space around it, in pixels.
const SIZE: (f64, f64) = (720.0, 300.0);
const MARGIN: (f64, f64) = (64.0, 40.0);
/// Lines in one plot; more cannot be told apart.
const LINES: usize = 8;
/// The dashes of the lines, which tell apart those that coincide.
const DASHES: [&str; LINES] = ["", "9 5", "2 4", "12 4 2 4", "5 3", "14 6", "2 2 6 2", "1 6"];
/// About so many numbers are on an axis.
const TICKS: f64 = 5.0;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--paper:#fff;--soft:#66707f;--rule:#d8dde5;
--s0:#0969da;--s1:#bc4c00;--s2:#1a7f37;--s3:#8250df;--s4:#bf3989;--s5:#9a6700;--s6:#0a7ea4;--s7:#57606a}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--soft:#9aa4b2;--rule:#30363d;
--s0:#58a6ff;--s1:#ffa657;--s2:#56d364;--s3:#d2a8ff;--s4:#ff9bce;--s5:#e3b341;--s6:#76e3ea;--s7:#b1bac4}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1400px;margin:2rem auto;
padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.advice{border-left:4px solid var(--s0);padding:.2rem 1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.25rem .4rem;border-bottom:1px solid var(--rule);overflow-wrap:normal}
th{vertical-align:bottom}td{white-space:nowrap}
tr.taken td{font-weight:600}
figure{margin:1rem 0}figure>svg{width:100%;height:auto;max-width:900px}svg.key{width:34px;height:10px}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .axis{stroke:var(--rule);fill:none}
svg polyline,svg.key line{fill:none;stroke-width:2.5}
figcaption span{margin-right:1rem;display:inline-block}
pre{overflow-x:auto;border:1px solid var(--rule);padding:.8rem}
";

/// A line of a plot.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Returns the page.
pub(super) fn html(report: &Report<'_>, dimensions: &[Dimension]) -> String {
    let mut page = String::new();
    let title = "windlass tune sweep";
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n<style>\n{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{} of {} settings, seed {}. Times are predictions in virtual time.</p>\n",
        report.trials.len(),
        report.settings,
        report.seed
    ).ok();
    if let Some(verdict) = &report.verdict {
        page.push_str("<h2>Verdict</h2>\n<div class=\"advice\">\n");
        for sentence in report.sentences() {
            writeln!(page, "<p>{}</p>", escape(&sentence)).ok();
        }
        page.push_str("</div>\n");
        for knee in &verdict.knees {
            let line = |name: &str, of: fn(&super::trial::Trial) -> f64| {
                let points = knee.curve.iter().enumerate().filter_map(|(at, (value, _))| {
                    let is_it = |trial: &&super::trial::Trial| {
                        trial.setting.get(knee.flag) == Some(value)
                            && trial.setting.differs_only_in(&verdict.take, knee.flag)
                    };
                    report.trials.iter().find(is_it).map(|trial| (super::trial::to_f64(at), of(trial)))
                });
                Line { name: name.to_owned(), points: points.collect() }
            };
            let lines = [line("p99", |trial| trial.converged.p99), line("p50", |trial| trial.converged.p50)];
            let labels: Vec<&str> = knee.curve.iter().map(|(value, _)| value.as_str()).collect();
            let title = format!("Time from a change to converged, by --{}", knee.flag);
            let flag = format!("--{}", knee.flag);
            page.push_str(&plot(&title, "seconds", &lines, &Axis::Names(&flag, &labels)));
        }
    }
    let name = |trial: &super::trial::Trial| trial.setting.to_string();
    let shown = report.trials.iter().take(LINES);
    let over_time = |of: fn(&super::samples::Plot) -> &Vec<f64>| -> Vec<Line> {
        let points = |plot: &super::samples::Plot| {
            plot.seconds.iter().copied().zip(of(plot).iter().copied()).collect()
        };
        shown.clone().map(|trial| Line { name: name(trial), points: points(&trial.plot) }).collect()
    };
    page.push_str(&plot(
        "Keys in the queue, over time",
        "keys",
        &over_time(|plot| &plot.depth),
        &Axis::Seconds,
    ));
    page.push_str(&plot(
        "Requests, over time",
        "requests per second",
        &over_time(|plot| &plot.requests_per_second),
        &Axis::Seconds,
    ));
    if report.trials.len() > LINES {
        writeln!(page, "<p>The plots over time show the first {LINES} settings.</p>").ok();
    }
    page.push_str(&rows(report, dimensions));
    let (heading, subject) = report.subject.described();
    write!(page, "<h2>{heading}</h2>\n<pre>{}</pre>\n</body></html>\n", escape(&subject)).ok();
    page
}

fn rows(report: &Report<'_>, dimensions: &[Dimension]) -> String {
    let mut text = "<h2>Settings</h2>\n<div class=\"scroll\"><table><thead><tr>".to_owned();
    let flags = dimensions.iter().map(|dimension| format!("--{}", dimension.flag));
    for heading in flags.chain(COLUMNS.map(|(heading, _)| heading.to_owned())) {
        write!(text, "<th scope=\"col\">{heading}</th>").ok();
    }
    text.push_str("</tr></thead><tbody>\n");
    for trial in report.trials {
        let is_taken = report.verdict.as_ref().is_some_and(|verdict| verdict.take == trial.setting);
        text.push_str(if is_taken { "<tr class=\"taken\">" } else { "<tr>" });
        let values = dimensions
            .iter()
            .map(|dimension| trial.setting.get(dimension.flag).unwrap_or("default").to_owned());
        for value in values.chain(COLUMNS.map(|(_, of)| of(trial))) {
            write!(text, "<td>{}</td>", escape(&value)).ok();
        }
        text.push_str("</tr>\n");
    }
    text + "</tbody></table></div>\n"
}

/// What is on the horizontal axis.
enum Axis<'a> {
    Seconds,
    /// What the names are, and one for each whole number.
    Names(&'a str, &'a [&'a str]),
}

/// Draws lines.
fn plot(title: &str, unit: &str, lines: &[Line], axis: &Axis<'_>) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|(x, _)| *x).fold(1e-9, f64::max);
    let upwards = ticks(points().map(|(_, y)| *y).fold(1e-9, f64::max));
    let top = upwards.last().copied().unwrap_or(1.0);
    let (width, height) = (SIZE.0 - 2.0 * MARGIN.0, SIZE.1 - 2.0 * MARGIN.1);
    let at = |x: f64, y: f64| (MARGIN.0 + x / right * width, MARGIN.1 + (1.0 - y / top) * height);
    let mut svg = format!(
        "<figure><h2>{title}</h2><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}, in {unit}\">\n",
        SIZE.0, SIZE.1
    );
    let title = escape(unit);
    writeln!(svg, "<text x=\"{}\" y=\"{}\">{title}</text>", MARGIN.0, MARGIN.1 - 14.0).ok();
    for value in upwards {
        let (_, y) = at(0.0, value);
        writeln!(
            svg,
            "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN.0,
            SIZE.0 - MARGIN.0,
            MARGIN.0 - 6.0,
            y + 4.0,
            short(value)
        )
        .ok();
    }
    let mut tick = |x: f64, name: &str| {
        let (x, y) = at(x, 0.0);
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y + 18.0,
            escape(name)
        )
        .ok();
    };
    let title = match axis {
        Axis::Seconds => {
            ticks(right).into_iter().filter(|x| *x <= right).for_each(|x| tick(x, &short(x)));
            "virtual time in seconds"
        }
        Axis::Names(title, names) => {
            names.iter().enumerate().for_each(|(at, name)| tick(super::trial::to_f64(at), name));
            title
        }
    };
    let (x, y) = at(right, 0.0);
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", y + 34.0, escape(title))
        .ok();
    for (number, line) in lines.iter().enumerate() {
        let mut points = String::new();
        for (x, y) in &line.points {
            let (x, y) = at(*x, *y);
            write!(points, "{x:.1},{y:.1} ").ok();
        }
        writeln!(svg, "<polyline {} points=\"{}\"/>", look(number), points.trim_end()).ok();
    }
    svg.push_str("</svg><figcaption>");
    for (number, line) in lines.iter().enumerate() {
        write!(
            svg,
            "<span><svg class=\"key\" aria-hidden=\"true\"><line x2=\"34\" y1=\"5\" y2=\"5\" {}/></svg> {}</span>",
            look(number),
            escape(&line.name)
        )
        .ok();
    }
    svg + "</figcaption></figure>\n"
}

/// The colour and the dashes of a line.
fn look(number: usize) -> String {
    let number = number % LINES;
    format!(
        "style=\"stroke:var(--s{number});stroke-dasharray:{}\"",
        if DASHES[number].is_empty() { "none" } else { DASHES[number] }
    )
}

/// Returns round numbers from zero on, the last of which is not below `max`.
fn ticks(max: f64) -> Vec<f64> {
    let step = round_up(max / TICKS);
    let mut all = vec![0.0];
    while all.last().is_some_and(|last| *last < max) && all.len() < 3 * LINES {
        all.push(step * super::trial::to_f64(all.len()));
    }
    all
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

fn short(value: f64) -> String {
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::load::Load;
    use super::super::report::Subject;
    use super::super::setting::{FlagValue, Setting};
    use super::super::trial::Trial;
    use super::super::verdict::{Verdict, tests::trial};
    use super::*;

    fn page() -> String {
        let odd = Setting(vec![FlagValue { flag: "workers".to_owned(), value: "<script>".to_owned() }]);
        let trials = [trial(1, 8.0), trial(4, 2.0), trial(8, 2.0), Trial { setting: odd, ..trial(9, 9.0) }];
        let dimensions = [Dimension { flag: "workers", values: Vec::new() }];
        let verdict = Verdict::of(&trials, &dimensions, None);
        html(
            &Report {
                subject: Subject::Load(&Load::default()),
                seed: 1,
                settings: 4,
                trials: &trials,
                verdict,
            },
            &dimensions,
        )
    }

    #[test]
    fn page_needs_nothing_but_itself() {
        let page = page();
        for foreign in ["<script", "http", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(foreign), "{foreign} in {page}");
        }
        assert!(page.contains("&lt;script&gt;"));
        assert!(page.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(77.3), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(1462.0), [0.0, 500.0, 1000.0, 1500.0]);
        assert!(ticks(1e-9).len() > 1);
    }

    #[test]
    fn plots_name_axes_and_lines() {
        let page = page();
        assert_eq!(page.matches("role=\"img\"").count(), 3);
        for text in [
            "by --workers",
            ">seconds<",
            ">keys<",
            "requests per second",
            ">--workers<",
            ">virtual time in seconds<",
            "</svg> p99<",
            "</svg> --workers=4<",
            "stroke:var(--s1);stroke-dasharray:9 5",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }
}
