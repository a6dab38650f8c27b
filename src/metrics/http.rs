//! Requests to the HTTP server.

use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Family, Gauge, Held, Histogram, Kind, Page};

/// More than there are routes and statuses.
const ROUTES: usize = 100;
const STATUSES: usize = 64;

/// Seconds: from health checks to callers who wait for a reply.
const SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// What is known of requests and connections.
#[derive(Debug)]
pub struct HttpMetrics {
    routes: Family<Route>,
    connections: Gauge,
    rejected: Family<Counter>,
}

#[derive(Debug)]
struct Route {
    by_status: Family<Counter>,
    duration: Histogram,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self {
            routes: Family::with(ROUTES, || Route {
                by_status: Family::new(STATUSES),
                duration: Histogram::new(SECONDS),
            }),
            connections: Gauge::default(),
            rejected: Family::new(STATUSES),
        }
    }
}

impl HttpMetrics {
    /// A request was answered with `status` (three digits). `route` is the route's pattern, never the path that was asked
    /// for: paths hold names and ids.
    pub fn answered(&self, route: &str, status: &str, took: Duration) {
        let route: Arc<Route> = self.routes.get(route);
        route.by_status.get(status).one();
        route.duration.time(took);
    }

    /// A connection is open until what is answered is dropped.
    pub fn connected(&self) -> Held {
        self.connections.hold()
    }

    /// A connection was closed by the server for `reason`, a stable word, e.g. because there were too many.
    pub fn rejected(&self, reason: &str) {
        self.rejected.get(reason).one();
    }

    pub(super) fn write(&self, page: &mut Page) {
        let routes = self.routes.all();
        page.family("daoyou_http_requests_total", Kind::Counter, "Requests answered, by route and status.");
        for (route, requests) in &routes {
            for (status, count) in requests.by_status.all() {
                page.sample(&[("route", route), ("status", &status)], count.get());
            }
        }
        page.family(
            "daoyou_http_request_duration_seconds",
            Kind::Histogram,
            "From a request's head to its answer's head; callers with ?wait hold theirs open for the reply.",
        );
        for (route, requests) in &routes {
            page.histogram(&[("route", route)], &requests.duration);
        }
        page.family("daoyou_http_connections", Kind::Gauge, "Connections that are open now.");
        page.sample(&[], self.connections.get());
        page.family(
            "daoyou_http_connections_rejected_total",
            Kind::Counter,
            "Connections that the server closed, by why.",
        );
        for (reason, count) in self.rejected.all() {
            page.sample(&[("reason", &reason)], count.get());
        }
    }
}
