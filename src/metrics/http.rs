//! Metrics of requests to the HTTP server, and of its connections.

use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Gauge, GaugeGuard, Histogram, MetricFamily, MetricsPage};

/// Limits above the number of routes and statuses.
const ROUTES: usize = 100;
const STATUSES: usize = 64;

/// The bucket bounds in seconds: from health checks to requests that wait for a reply.
const SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Metrics of requests and connections.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    routes: MetricFamily<RouteMetrics, ROUTES>,
    connections: Gauge,
    rejected: MetricFamily<Counter, STATUSES>,
}

#[derive(Debug)]
struct RouteMetrics {
    by_status: MetricFamily<Counter, STATUSES>,
    duration: Histogram,
}

impl Default for RouteMetrics {
    fn default() -> Self {
        Self { by_status: MetricFamily::default(), duration: Histogram::new(SECONDS) }
    }
}

impl HttpMetrics {
    /// Records a response with `status` (three digits). `route` is the route's pattern, not the requested path, because paths
    /// contain names and ids.
    pub fn answered(&self, route: &str, status: &str, took: Duration) {
        let route: Arc<RouteMetrics> = self.routes.get(route);
        route.by_status.get(status).increment();
        route.duration.observe_duration(took);
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connected(&self) -> GaugeGuard {
        self.connections.track()
    }

    /// Records a connection that the server closed, with the code of the reason.
    pub fn rejected(&self, reason: &str) {
        self.rejected.get(reason).increment();
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        let routes = self.routes.all();
        page.counter("daoyou_http_requests_total", "Answered requests by route and status.");
        for (route, requests) in &routes {
            for (status, count) in requests.by_status.all() {
                page.sample(&[("route", route), ("status", &status)], &*count);
            }
        }
        page.histogram(
            "daoyou_http_request_duration_seconds",
            "Time from a request's head to its answer's head; requests with ?wait stay open for the reply.",
        );
        page.samples("route", routes.iter().map(|(route, requests)| (route, &requests.duration)));
        page.gauge("daoyou_http_connections", "Open connections.");
        page.sample(&[], self.connections.get());
        page.counter("daoyou_http_connections_rejected_total", "Connections that the server closed, by reason.");
        page.samples("reason", self.rejected.all().iter().map(|(reason, count)| (reason, &**count)));
    }
}
