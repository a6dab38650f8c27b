//! The page in Prometheus' text format, version 0.0.4.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>

use std::fmt::Display;

use super::Histogram;

/// The content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page that is being written.
#[derive(Debug, Default)]
pub struct MetricsPage {
    text: String,
    family: &'static str,
}

impl MetricsPage {
    /// Starts a family of counters, to which the following samples belong.
    pub fn counter(&mut self, name: &'static str, help: &str) {
        self.family(name, "counter", help);
    }

    /// Starts a family of gauges.
    pub fn gauge(&mut self, name: &'static str, help: &str) {
        self.family(name, "gauge", help);
    }

    /// Starts a family of histograms.
    pub fn histogram(&mut self, name: &'static str, help: &str) {
        self.family(name, "histogram", help);
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        self.family = name;
    }

    /// Writes the sample of a counter or gauge.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Writes the samples of a histogram.
    pub fn buckets(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let mut count = 0;
        for (bound, below) in histogram.buckets() {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            self.line("_bucket", labels, Some(&bound), below);
            count = below;
        }
        self.line("_sum", labels, None, histogram.sum());
        self.line("_count", labels, None, count);
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: impl Display) {
        self.text.push_str(self.family);
        self.text.push_str(suffix);
        let labels = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        if !labels.is_empty() {
            self.text.push_str(&format!("{{{}}}", labels.join(",")));
        }
        self.text.push_str(&format!(" {value}\n"));
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_text_format_0_0_4() {
        let mut page = MetricsPage::default();
        page.counter("a_total", "Of \\ and\nmore.");
        page.sample(&[], 3);
        page.sample(&[("x", "q\"\\\n"), ("y", "")], 0.25);
        page.histogram("b_seconds", "Time.");
        let histogram = Histogram::new(&[0.000_05, 2.5]);
        histogram.observe(0.5);
        page.buckets(&[("z", "1")], &histogram);
        let expected = "\
# HELP a_total Of \\\\ and\\nmore.
# TYPE a_total counter
a_total 3
a_total{x=\"q\\\"\\\\\\n\",y=\"\"} 0.25
# HELP b_seconds Time.
# TYPE b_seconds histogram
b_seconds_bucket{z=\"1\",le=\"0.00005\"} 0
b_seconds_bucket{z=\"1\",le=\"2.5\"} 1
b_seconds_bucket{z=\"1\",le=\"+Inf\"} 1
b_seconds_sum{z=\"1\"} 0.5
b_seconds_count{z=\"1\"} 1
";
        assert_eq!(page.into_text(), expected);
    }
}
