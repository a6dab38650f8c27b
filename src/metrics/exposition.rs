//! The samples of all metrics, and the page in Prometheus' text format, version 0.0.4.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>

use super::{Counter, Histogram};

/// The content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// The samples of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSamples {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    pub samples: Vec<MetricSample>,
}

/// A value and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample {
    pub labels: Vec<(&'static str, String)>,
    pub value: SampleValue,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    Number(f64),
    Histogram {
        /// The bounds, the last one infinite, each with the number of observations up to it.
        buckets: Vec<(f64, u64)>,
        sum: f64,
    },
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for SampleValue {
            fn from(number: $number) -> Self {
                Self::Number(number as f64)
            }
        }
    )*};
}
numbers!(u8 u64 i64);

impl From<f64> for SampleValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&Counter> for SampleValue {
    fn from(counter: &Counter) -> Self {
        counter.get().into()
    }
}

impl From<&Histogram> for SampleValue {
    fn from(histogram: &Histogram) -> Self {
        Self::Histogram { buckets: histogram.buckets().collect(), sum: histogram.sum() }
    }
}

/// A metrics page under construction.
#[derive(Debug, Default)]
pub struct MetricsPage {
    families: Vec<MetricSamples>,
}

impl MetricsPage {
    /// Starts a family of counters, to which the following samples belong.
    pub fn counter(&mut self, name: &'static str, help: &'static str) {
        self.family(name, MetricKind::Counter, help);
    }

    /// Starts a family of gauges.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) {
        self.family(name, MetricKind::Gauge, help);
    }

    /// Starts a family of histograms.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) {
        self.family(name, MetricKind::Histogram, help);
    }

    fn family(&mut self, name: &'static str, kind: MetricKind, help: &'static str) {
        self.families.push(MetricSamples { name, kind, help, samples: Vec::new() });
    }

    /// Adds a sample.
    pub fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<SampleValue>) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        if let Some(family) = self.families.last_mut() {
            family.samples.push(MetricSample { labels, value: value.into() });
        }
    }

    /// Adds a sample for each value of the only label.
    pub fn samples<Name: AsRef<str>, Value: Into<SampleValue>>(
        &mut self,
        label: &'static str,
        values: impl IntoIterator<Item = (Name, Value)>,
    ) {
        for (name, value) in values {
            self.sample(&[(label, name.as_ref())], value);
        }
    }

    /// Returns the samples by family.
    pub fn families(&self) -> &[MetricSamples] {
        &self.families
    }

    /// Returns the page as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for family in &self.families {
            family.write(&mut text);
        }
        text
    }
}

impl MetricSamples {
    fn write(&self, text: &mut String) {
        let Self { name, kind, help, .. } = self;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        let mut line = |suffix: &str, sample: &MetricSample, bound: Option<&str>, value: String| {
            let labels = sample.labels.iter().map(|(name, value)| (*name, value.as_str()));
            let labels = labels.chain(bound.map(|bound| ("le", bound)));
            let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            text.push_str(&format!("{name}{suffix}{labels} {value}\n"));
        };
        for sample in &self.samples {
            match &sample.value {
                SampleValue::Number(number) => line("", sample, None, number.to_string()),
                SampleValue::Histogram { buckets, sum } => {
                    for (bound, below) in buckets {
                        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
                        line("_bucket", sample, Some(&bound), below.to_string());
                    }
                    line("_sum", sample, None, sum.to_string());
                    line("_count", sample, None, buckets.last().map_or(0, |(_, count)| *count).to_string());
                }
            }
        }
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
        page.sample(&[], 3_u64);
        page.sample(&[("x", "q\"\\\n"), ("y", "")], 0.25);
        page.histogram("b_seconds", "Time.");
        let histogram = Histogram::new(&[0.000_05, 2.5]);
        histogram.observe(0.5);
        page.sample(&[("z", "1")], &histogram);
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
        assert_eq!(page.text(), expected);
    }
}
