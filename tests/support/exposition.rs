//! A strict parser of Prometheus' text format, version 0.0.4: anything that a scraper or a reviewer of names would
//! reject makes the test fail. <https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details>

use std::collections::{BTreeMap, BTreeSet};

use super::Gateway;

/// One line with a value.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// A metrics page that follows all rules.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    pub samples: Vec<Sample>,
    /// The kind (`counter`, `gauge` or `histogram`) of each family.
    pub kinds: BTreeMap<String, String>,
}

impl Exposition {
    /// Parses `text`. The error names the line and the broken rule.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        let mut help: Option<String> = None;
        let mut family = String::new();
        let whole = text.strip_suffix('\n').ok_or("the last line has no end")?;
        for (at, line) in whole.split('\n').enumerate() {
            let read = page.line(line, &mut help, &mut family);
            read.map_err(|fault| format!("line {}: {fault}: {line}", at + 1))?;
        }
        page.check_histograms()?;
        let mut seen = BTreeSet::new();
        for sample in &page.samples {
            if !seen.insert((&sample.name, &sample.labels)) {
                return Err(format!("{} {:?} stands twice", sample.name, sample.labels));
            }
        }
        Ok(page)
    }

    /// Returns the value of the sample with exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: BTreeMap<_, _> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.samples.iter().find(|sample| sample.name == name && sample.labels == labels).map(|sample| sample.value)
    }

    fn line(&mut self, line: &str, help: &mut Option<String>, family: &mut String) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').ok_or("HELP without words")?;
            unescape(words, false)?;
            *help = Some(name.to_owned());
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without a type")?;
            if help.take().as_deref() != Some(name) {
                return Err("HELP of the same family must come just before TYPE".to_owned());
            }
            check_family(name, kind)?;
            if self.kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                return Err("the family stands twice".to_owned());
            }
            name.clone_into(family);
            return Ok(());
        }
        if help.is_some() || line.starts_with('#') || line.is_empty() {
            return Err("neither HELP, TYPE nor a sample where one must stand".to_owned());
        }
        let sample = sample(line)?;
        let suffixes: &[&str] = match self.kinds.get(family.as_str()).map(String::as_str) {
            Some("histogram") => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        if !suffixes.iter().any(|suffix| sample.name == format!("{family}{suffix}")) {
            return Err(format!("does not belong to the family {family:?} above it"));
        }
        if self.kinds[family.as_str()] != "gauge" && sample.value < 0.0 {
            return Err("is below zero".to_owned());
        }
        self.samples.push(sample);
        Ok(())
    }

    fn check_histograms(&self) -> Result<(), String> {
        for name in self.kinds.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name) {
            let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
            for sample in self.samples.iter().filter(|sample| sample.name == format!("{name}_bucket")) {
                let mut labels = sample.labels.clone();
                let bound = labels.remove("le").ok_or(format!("{name}: a bucket without le"))?;
                series.entry(labels).or_default().push((number(&bound)?, sample.value));
            }
            for (labels, buckets) in series {
                let grows = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
                let last = *buckets.last().expect("made with its first");
                let labels: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                let count = self.value(&format!("{name}_count"), &labels);
                let sum = self.value(&format!("{name}_sum"), &labels);
                if !grows || last.0 != f64::INFINITY || count != Some(last.1) || sum.is_none() {
                    return Err(format!("{name} {labels:?}: {buckets:?}, count {count:?}, sum {sum:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Checks names as `promtool check metrics` does.
fn check_family(name: &str, kind: &str) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(is_name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err("the name is not snake_case".to_owned());
    }
    if !["counter", "gauge", "histogram"].contains(&kind) {
        return Err(format!("{kind:?} is not a type"));
    }
    if name.ends_with("_total") != (kind == "counter") {
        return Err("counters end in _total, and nothing else does".to_owned());
    }
    if ["_bucket", "_sum", "_count", "_ms", "_millis", "_kb", "_mb"].iter().any(|suffix| name.ends_with(suffix)) {
        return Err("the name ends in a reserved word or in a unit that is not a base unit".to_owned());
    }
    Ok(())
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            if label.is_empty() || !label.chars().all(is_name) {
                return Err(format!("{label:?} is not a label's name"));
            }
            let end = closing_quote(after).ok_or("a label's value without an end")?;
            if labels.insert(label.to_owned(), unescape(&after[..end], true)?).is_some() {
                return Err(format!("the label {label} stands twice"));
            }
            rest = &after[end + 1..];
            match (rest.strip_prefix(','), rest.strip_prefix('}')) {
                (Some(more), _) => rest = more,
                (None, Some(after)) => {
                    rest = after;
                    break;
                }
                _ => return Err("neither , nor } after a label".to_owned()),
            }
        }
    }
    let value = number(rest.strip_prefix(' ').ok_or("no blank before the value")?)?;
    Ok(Sample { name: name.to_owned(), labels, value })
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })
}

fn unescape(text: &str, is_label: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('\\') => out.push('\\'),
                Some('n') => out.push('\n'),
                Some('"') if is_label => out.push('"'),
                other => return Err(format!("an escape that is none: {other:?}")),
            },
            (c, _) => out.push(c),
        }
    }
    Ok(out)
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            text.parse().map_err(|_| format!("{text:?} is not a number"))
        }
        _ => Err(format!("{text:?} is not a number")),
    }
}

/// Returns the metrics of a gateway, which must follow every rule of their format.
pub async fn scrape(gateway: &Gateway) -> Exposition {
    let client = reqwest::Client::builder().unix_socket(gateway.home().join("daoyou.sock"));
    let client = client.build().expect("a client of a local socket");
    let answer = client.get("http://gateway/metrics").send().await.expect("metrics of a running gateway");
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.expect("the whole text of the metrics");
    Exposition::parse(&text).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_metrics_pages_are_refused() {
        let head = "# HELP a_total A.\n# TYPE a_total counter\n";
        let page = Exposition::parse(&format!("{head}a_total{{x=\"q\\\"\\\\\\n,}}\"}} 2.5\n")).unwrap();
        assert_eq!(page.value("a_total", &[("x", "q\"\\\n,}")]), Some(2.5));
        let buckets = |lines: &str| format!("# HELP h_seconds H.\n# TYPE h_seconds histogram\n{lines}");
        for bad in [
            "a_total 1\n".to_owned(),
            "# TYPE a_total counter\na_total 1\n".to_owned(),
            "# HELP a A.\n# TYPE a counter\na 1\n".to_owned(),
            "# HELP a_total A.\n# TYPE a_total gauge\n".to_owned(),
            format!("{head}a_total 1"),
            format!("{head}b_total 1\n"),
            format!("{head}a_total 1\na_total 2\n"),
            format!("{head}a_total{{x=\"\\t\"}} 1\n"),
            format!("{head}a_total{{x=\"a\"b\"}} 1\n"),
            format!("{head}a_total NaN\n"),
            format!("{head}\na_total 1\n"),
            format!("{head}{head}"),
            buckets("h_seconds_bucket{le=\"1\"} 1\nh_seconds_sum 1\nh_seconds_count 1\n"),
            buckets(
                "h_seconds_bucket{le=\"1\"} 2\nh_seconds_bucket{le=\"+Inf\"} 1\nh_seconds_sum 1\nh_seconds_count 1\n",
            ),
            buckets("h_seconds_bucket{le=\"+Inf\"} 1\nh_seconds_sum 1\nh_seconds_count 2\n"),
        ] {
            assert!(Exposition::parse(&bad).is_err(), "{bad}");
        }
    }
}
