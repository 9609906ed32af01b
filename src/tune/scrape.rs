//! Reads metrics in the text formats of Prometheus, of any operator that uses client-go's and controller-runtime's names.
//!
//! # Guarantees
//! - Labels, values and comments of both formats are read. (test: `both_text_formats_are_read`)
//! - Quantiles come from the buckets of the difference of two scrapes. (test: `quantiles_are_of_the_time_between_scrapes`)

use std::collections::BTreeMap;

/// The labels of a series.
type Labels = BTreeMap<String, String>;

/// The series of one scrape.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrape {
    series: BTreeMap<String, Vec<(Labels, f64)>>,
}

/// The observations of a histogram between two scrapes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    pub(super) count: f64,
    pub(super) sum: f64,
    /// Upper bound and cumulative count, ascending.
    buckets: Vec<(f64, f64)>,
}

// === impl Scrape ===

impl Scrape {
    /// Reads the series of a text; lines that are no series are skipped.
    pub(super) fn parse(text: &str) -> Self {
        Self::of_lines(text.lines())
    }

    /// Reads the series of these names only.
    pub(super) fn parse_only(text: &str, names: &[&str]) -> Self {
        Self::of_lines(text.lines().filter(|line| names.iter().any(|name| line.starts_with(name))))
    }

    fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut scrape = Self::default();
        for (name, labels, value) in lines.filter_map(series) {
            scrape.series.entry(name).or_default().push((labels, value));
        }
        // Sums of floating point numbers depend on their order, which differs between scrapes.
        for series in scrape.series.values_mut() {
            series.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        scrape
    }

    /// Whether there is any series of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.series.contains_key(name)
    }

    /// Returns the sum of all series of this name with these labels.
    pub(super) fn sum(&self, name: &str, with: &[(&str, &str)]) -> f64 {
        self.matching(name, with).map(|(_, value)| value).sum()
    }

    /// Returns the values of a label of this metric, sorted.
    pub(super) fn values(&self, name: &str, label: &str) -> Vec<String> {
        let mut values: Vec<String> =
            self.matching(name, &[]).filter_map(|(labels, _)| labels.get(label).cloned()).collect();
        values.sort();
        values.dedup();
        values
    }

    /// Returns what a histogram has observed since an earlier scrape.
    pub(super) fn observed_since(&self, before: &Self, name: &str, with: &[(&str, &str)]) -> Observed {
        let since = |suffix: &str| {
            let name = format!("{name}{suffix}");
            self.sum(&name, with) - before.sum(&name, with)
        };
        let buckets = |scrape: &Self| -> BTreeMap<u64, f64> {
            let mut sums = BTreeMap::new();
            for (labels, count) in scrape.matching(&format!("{name}_bucket"), with) {
                let bound = labels.get("le").and_then(|bound| bound.parse::<f64>().ok());
                // Bounds are positive, so their bits are in the same order.
                if let Some(bound) = bound {
                    *sums.entry(bound.to_bits()).or_insert(0.0) += count;
                }
            }
            sums
        };
        let (after, before) = (buckets(self), buckets(before));
        let buckets = after
            .into_iter()
            .map(|(bound, count)| (f64::from_bits(bound), count - before.get(&bound).copied().unwrap_or(0.0)))
            .collect();
        Observed { count: since("_count"), sum: since("_sum"), buckets }
    }

    fn matching<'a>(
        &'a self,
        name: &str,
        with: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a (Labels, f64)> + use<'a> {
        let all = self.series.get(name).into_iter().flatten();
        all.filter(move |(labels, _)| {
            with.iter().all(|(label, value)| labels.get(*label).is_some_and(|found| found == value))
        })
    }
}

// === impl Observed ===

impl Observed {
    /// Returns upper bounds and cumulative counts, ascending.
    pub(super) fn buckets(&self) -> &[(f64, f64)] {
        &self.buckets
    }

    /// Returns the mean; `None` without observations.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// Returns a quantile, interpolated within its bucket as Prometheus does; `None` without observations.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        let total = self.buckets.last()?.1;
        if total <= 0.0 {
            return None;
        }
        let rank = quantile * total;
        let at = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (low, below) = if at == 0 { (0.0, 0.0) } else { self.buckets[at - 1] };
        let (high, count) = self.buckets[at];
        if high.is_infinite() {
            return Some(low);
        }
        Some(low + (high - low) * (rank - below) / (count - below))
    }
}

/// Reads a line: name, labels and value.
fn series(line: &str) -> Option<(String, Labels, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, rest) = self::labels(rest)?;
            (name, labels, rest)
        }
        None => {
            let (name, rest) = line.split_once(char::is_whitespace)?;
            (name, Labels::new(), rest)
        }
    };
    // A timestamp or an exemplar may follow.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name.to_owned(), labels, value))
}

/// Reads labels up to the closing brace; returns the rest of the line.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        rest = loop {
            match chars.next()? {
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (at, '"') => break &after[at + 1..],
                (_, other) => value.push(other),
            }
        };
        labels.insert(label.trim().to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_text_formats_are_read() {
        let text = "# HELP a Text\n# TYPE a counter\n\
            a_total{name=\"foo\",code=\"200\"} 3 # {trace=\"x\"} 1\na_total{name=\"b\\\"}\",code=\"500\"} 4e1 1700\n\
            plain 7\nbroken{x=\n# EOF\n";
        let scrape = Scrape::parse(text);
        assert!((scrape.sum("a_total", &[]) - 43.0).abs() < 1e-9);
        assert!((scrape.sum("a_total", &[("name", "foo")]) - 3.0).abs() < 1e-9);
        assert!((scrape.sum("plain", &[]) - 7.0).abs() < 1e-9);
        assert_eq!(scrape.values("a_total", "name"), ["b\"}", "foo"]);
        assert!(scrape.has("plain") && !scrape.has("broken"));
        let only = Scrape::parse_only(text, &["plain"]);
        assert!(only.has("plain") && !only.has("a_total"));
    }

    #[test]
    fn quantiles_are_of_the_time_between_scrapes() {
        let text = |low: u32, high: u32| {
            Scrape::parse(&format!(
                "t_bucket{{le=\"1.0\"}} {low}\nt_bucket{{le=\"2.0\"}} {high}\nt_bucket{{le=\"+Inf\"}} {high}\n\
                 t_sum {high}\nt_count {high}\n"
            ))
        };
        let observed = text(100, 200).observed_since(&text(100, 100), "t", &[]);
        assert_eq!(observed.mean(), Some(1.0));
        assert_eq!(observed.quantile(0.5), Some(1.5));
        let none = text(100, 100).observed_since(&text(100, 100), "t", &[]);
        assert_eq!((none.mean(), none.quantile(0.5)), (None, None));
    }
}
