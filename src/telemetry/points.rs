//! The metrics in the form of OTLP.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::client::{scope, text};
use crate::metrics::{MetricKind, MetricSample, MetricSamples, SampleValue};

/// The family with the start time of this process, from which on it counts.
const START: &str = "process_start_time_seconds";

/// Returns a request with these families. Names are those in Prometheus, without the `_total` of counters, which a collector adds
/// when it writes for Prometheus.
pub(super) fn request(families: &[MetricSamples], resource: Resource) -> ExportMetricsServiceRequest {
    let start = families.iter().find(|family| family.name == START).and_then(|family| family.samples.first());
    let start = start.map_or(0, |sample| match sample.value {
        SampleValue::Number(seconds) => (seconds * 1e9) as u64,
        SampleValue::Histogram { .. } => 0,
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let times = (start, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let metrics = families.iter().filter(|family| !family.samples.is_empty()).map(|family| metric(family, times));
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope()), metrics: metrics.collect(), ..ScopeMetrics::default() }];
    let resource = Some(resource);
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }],
    }
}

fn metric(family: &MetricSamples, times: (u64, u64)) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let numbers = || family.samples.iter().filter_map(|sample| number_point(sample, times)).collect();
    let data = match family.kind {
        MetricKind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        MetricKind::Counter => Data::Sum(Sum { data_points: numbers(), aggregation_temporality, is_monotonic: true }),
        MetricKind::Histogram => Data::Histogram(Histogram {
            data_points: family.samples.iter().filter_map(|sample| histogram_point(sample, times)).collect(),
            aggregation_temporality,
        }),
    };
    let unit = match family.name {
        name if name.contains("_seconds") => "s",
        name if name.contains("_bytes") => "By",
        _ => "1",
    };
    Metric {
        name: family.name.trim_end_matches("_total").to_owned(),
        description: family.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number_point(sample: &MetricSample, (start, now): (u64, u64)) -> Option<NumberDataPoint> {
    let SampleValue::Number(number) = sample.value else { return None };
    Some(NumberDataPoint {
        attributes: sample.labels.iter().map(|(name, value)| text(name, value.as_str())).collect(),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(number)),
        ..NumberDataPoint::default()
    })
}

fn histogram_point(sample: &MetricSample, (start, now): (u64, u64)) -> Option<HistogramDataPoint> {
    let SampleValue::Histogram { buckets, sum } = &sample.value else { return None };
    // A Prometheus bucket counts all observations up to its bound; an OTLP bucket counts those between two bounds.
    let below = std::iter::once(0).chain(buckets.iter().map(|(_, count)| *count));
    Some(HistogramDataPoint {
        attributes: sample.labels.iter().map(|(name, value)| text(name, value.as_str())).collect(),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count: buckets.last().map_or(0, |(_, count)| *count),
        sum: Some(*sum),
        bucket_counts: buckets.iter().zip(below).map(|((_, count), below)| count.saturating_sub(below)).collect(),
        explicit_bounds: buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
        ..HistogramDataPoint::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsPage;

    #[test]
    fn counters_gauges_and_histograms_have_their_forms() {
        let mut page = MetricsPage::default();
        page.gauge(START, "");
        page.sample(&[], 2.5);
        page.counter("a_total", "All.");
        page.sample(&[("x", "y")], 3_u64);
        page.counter("none_total", "");
        page.histogram("b_seconds", "");
        let histogram = crate::metrics::Histogram::new(&[1.0, 2.0]);
        [0.5, 1.5, 1.6, 9.0].into_iter().for_each(|value| histogram.observe(value));
        page.sample(&[], &histogram);
        let request = request(page.families(), Resource::default());
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let names: Vec<_> = metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(names, [(START, "s"), ("a", "1"), ("b_seconds", "s")]);
        let Some(Data::Sum(sum)) = &metrics[1].data else { panic!("{metrics:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        assert_eq!(sum.data_points[0].attributes, [text("x", "y")]);
        assert_eq!(sum.data_points[0].start_time_unix_nano, 2_500_000_000);
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{metrics:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, &point.bucket_counts, &point.explicit_bounds), (4, &vec![1, 2, 1], &vec![1.0, 2.0]));
    }
}
