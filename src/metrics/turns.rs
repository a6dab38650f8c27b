//! Metrics of turns, with their time, tokens and costs, and of the runs of scheduled jobs.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strum::VariantArray;

use super::{Counter, Gauge, GaugeGuard, Histogram, MetricFamily, MetricsPage};

/// The limits exceed the usual numbers. They prevent a chat that names ever new models from creating ever new series.
const CODES: usize = 64;
const PROVIDERS: usize = 50;
const MODELS: usize = 50;
const TOOLS: usize = 200;
const CURRENCIES: usize = 8;

/// The bounds of [`TurnSeconds`].
const SECONDS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    Done,
    /// The turn failed; the value is the stable error code.
    Failed(&'static str),
    Cancelled,
    /// The message was given up.
    Dead,
}

impl TurnOutcome {
    /// Returns the error code of a turn that did not succeed.
    pub fn error(self) -> Option<&'static str> {
        match self {
            Self::Done => None,
            Self::Failed(code) => Some(code),
            Self::Cancelled => Some("stopped"),
            Self::Dead => Some("dead"),
        }
    }
}

/// A part of a turn's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TurnPhase {
    /// The time from the acceptance of the message to the start of its turn.
    Waiting,
    /// All model calls of the turn.
    Model,
    /// All tool calls of the turn.
    Tools,
    /// The commit that ends the turn.
    End,
}

/// Tokens and costs of one model.
#[derive(Debug, Default)]
pub struct ModelUsage {
    input: Counter,
    output: Counter,
    cached: Counter,
    /// The costs by currency, in millionths of its unit.
    costs: MetricFamily<Counter, CURRENCIES>,
}

/// A histogram of durations from that of a slash command to that of the longest turn.
#[derive(Debug)]
struct TurnSeconds(Histogram);

impl Default for TurnSeconds {
    fn default() -> Self {
        Self(Histogram::new(SECONDS))
    }
}

impl Deref for TurnSeconds {
    type Target = Histogram;

    fn deref(&self) -> &Histogram {
        &self.0
    }
}

/// Calls of one provider's models.
#[derive(Debug, Default)]
pub struct ProviderMetrics {
    ok: Counter,
    failed: Counter,
    cut_off: Counter,
    duration: TurnSeconds,
}

/// Calls of one tool.
#[derive(Debug, Default)]
pub struct ToolMetrics {
    ok: Counter,
    failed: Counter,
    duration: TurnSeconds,
    /// The bytes of results that models read, and the bytes that were omitted.
    kept_bytes: Counter,
    left_out_bytes: Counter,
}

/// Metrics of turns.
#[derive(Debug, Default)]
pub struct TurnMetrics {
    done: Counter,
    failed: Counter,
    cancelled: Counter,
    dead: Counter,
    codes: MetricFamily<Counter, CODES>,
    running: Gauge,
    /// By [`TurnPhase`].
    phases: [TurnSeconds; TurnPhase::VARIANTS.len()],
    whole: TurnSeconds,
    models: MetricFamily<MetricFamily<ModelUsage, MODELS>, PROVIDERS>,
    by_provider: MetricFamily<ProviderMetrics, PROVIDERS>,
    by_tool: MetricFamily<ToolMetrics, TOOLS>,
}

impl TurnMetrics {
    /// Counts a turn as running until the guard is dropped.
    pub fn run(&self) -> GaugeGuard {
        self.running.track()
    }

    /// Records the end of a turn, `whole` after its message was accepted.
    pub fn ended(&self, outcome: TurnOutcome, whole: Duration) {
        match outcome {
            TurnOutcome::Done => self.done.increment(),
            TurnOutcome::Cancelled => self.cancelled.increment(),
            TurnOutcome::Dead => self.dead.increment(),
            TurnOutcome::Failed(code) => {
                self.failed.increment();
                self.codes.get(code).increment();
            }
        }
        self.whole.observe_duration(whole);
    }

    /// Records the duration of one phase of a turn.
    pub fn phase(&self, phase: TurnPhase, took: Duration) {
        self.phases[phase as usize].observe_duration(took);
    }

    /// Records tokens that a model read outside of any turn.
    pub fn model_read(&self, provider: &str, model: &str, input: u64) {
        self.models.get(provider).get(model).input.add(input);
    }

    pub fn meter(&self) -> TurnMeter<'_> {
        TurnMeter { turns: self, model: TimeSum::default(), tools: TimeSum::default() }
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.counter("daoyou_turns_total", "Ended turns by outcome.");
        page.samples(
            "outcome",
            [("done", &self.done), ("failed", &self.failed), ("cancelled", &self.cancelled), ("dead", &self.dead)],
        );
        page.counter("daoyou_turn_failures_total", "Failed turns by error code.");
        page.samples("code", self.codes.all().iter().map(|(code, count)| (code, &**count)));
        page.gauge("daoyou_turns_running", "Running turns.");
        page.sample(&[], self.running.get());
        page.histogram(
            "daoyou_turn_phase_duration_seconds",
            "Time of a turn by phase: waiting in its lane, all model calls, all tools, the commit of its end.",
        );
        page.samples("phase", TurnPhase::VARIANTS.iter().map(<&str>::from).zip(self.phases.iter().map(Deref::deref)));
        page.histogram("daoyou_turn_duration_seconds", "Time from the acceptance of a message to the end of its turn.");
        page.sample(&[], &*self.whole);
        self.write_model_calls(page);
        self.write_tokens(page);
        self.write_costs(page);
        self.write_tools(page);
    }

    fn write_model_calls(&self, page: &mut MetricsPage) {
        let providers = self.by_provider.all();
        page.counter(
            "daoyou_model_calls_total",
            "Model calls including their retries, by outcome; cut_off means that the turn was stopped meanwhile.",
        );
        for (provider, calls) in &providers {
            for (outcome, count) in [("ok", &calls.ok), ("failed", &calls.failed), ("cut_off", &calls.cut_off)] {
                page.sample(&[("provider", provider), ("outcome", outcome)], count);
            }
        }
        page.histogram("daoyou_model_call_duration_seconds", "Duration of model calls.");
        page.samples("provider", providers.iter().map(|(provider, calls)| (provider, &*calls.duration)));
    }

    fn write_tokens(&self, page: &mut MetricsPage) {
        page.counter(
            "daoyou_model_tokens_total",
            "Tokens of models: input (with those read from the service's cache), output, and cached (of the input).",
        );
        for (provider, models) in self.models.all() {
            for (model, used) in models.all() {
                for (kind, count) in [("input", &used.input), ("output", &used.output), ("cached", &used.cached)] {
                    page.sample(&[("provider", &provider), ("model", &model), ("kind", kind)], count);
                }
            }
        }
    }

    fn write_costs(&self, page: &mut MetricsPage) {
        page.counter("daoyou_model_cost_total", "Cost of models with a known price, in units of the currency.");
        for (provider, models) in self.models.all() {
            for (model, used) in models.all() {
                for (currency, micros) in used.costs.all() {
                    let labels = [("provider", &*provider), ("model", &*model), ("currency", &*currency)];
                    page.sample(&labels, micros.get() as f64 / 1e6);
                }
            }
        }
    }

    fn write_tools(&self, page: &mut MetricsPage) {
        let tools = self.by_tool.all();
        page.counter("daoyou_tool_calls_total", "Tool calls by outcome.");
        for (tool, calls) in &tools {
            for (outcome, count) in [("ok", &calls.ok), ("failed", &calls.failed)] {
                page.sample(&[("tool", tool), ("outcome", outcome)], count);
            }
        }
        page.histogram("daoyou_tool_call_duration_seconds", "Duration of tool calls.");
        page.samples("tool", tools.iter().map(|(tool, calls)| (tool, &*calls.duration)));
        page.counter(
            "daoyou_tool_result_bytes_total",
            "Bytes of results: kept ones, which models read, and those that post-processing and limits left out.",
        );
        for (tool, calls) in &tools {
            for (part, count) in [("kept", &calls.kept_bytes), ("left_out", &calls.left_out_bytes)] {
                page.sample(&[("tool", tool), ("part", part)], count);
            }
        }
    }
}

/// Measures one turn.
#[derive(Debug)]
pub struct TurnMeter<'a> {
    turns: &'a TurnMetrics,
    model: TimeSum,
    tools: TimeSum,
}

/// Measures one model call. A timer that is dropped before [`ModelCallTimer::ended`] records an interrupted call.
#[derive(Debug)]
pub struct ModelCallTimer<'a> {
    sum: &'a TimeSum,
    calls: Arc<ProviderMetrics>,
    began: Instant,
    ended: Option<bool>,
    counts: bool,
}

impl ModelCallTimer<'_> {
    /// Records the end of the call.
    pub fn ended(mut self, is_ok: bool) {
        self.ended = Some(is_ok);
    }

    /// Discards the call: no service was asked.
    pub fn forget(mut self) {
        self.counts = false;
    }
}

impl Drop for ModelCallTimer<'_> {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        let took = self.began.elapsed();
        self.sum.add(took);
        self.calls.duration.observe_duration(took);
        match self.ended {
            Some(true) => self.calls.ok.increment(),
            Some(false) => self.calls.failed.increment(),
            None => self.calls.cut_off.increment(),
        }
    }
}

/// A sum of durations in nanoseconds; zero means that there was no observation.
#[derive(Debug, Default)]
struct TimeSum(AtomicU64);

impl TimeSum {
    fn add(&self, took: Duration) {
        // At least 1, so that a call without measurable duration counts as observed.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl TurnMeter<'_> {
    /// Starts the timer of a model call.
    pub fn ask_model(&self, provider: &str) -> ModelCallTimer<'_> {
        let calls = self.turns.by_provider.get(provider);
        ModelCallTimer { sum: &self.model, calls, began: Instant::now(), ended: None, counts: true }
    }

    /// Records the tokens of a response. `cached` is the part of `input` from the service's cache.
    pub fn model_used(&self, provider: &str, model: &str, input: u64, output: u64, cached: u64) {
        let used: Arc<ModelUsage> = self.turns.models.get(provider).get(model);
        used.input.add(input);
        used.output.add(output);
        used.cached.add(cached);
    }

    /// Records the cost of a response, in millionths of the currency's unit.
    pub fn model_cost(&self, provider: &str, model: &str, currency: &str, micros: u64) {
        self.turns.models.get(provider).get(model).costs.get(currency).add(micros);
    }

    /// Records a tool call. `tool` must be a registered name, because models may invent names.
    pub fn tool_ran(&self, tool: &str, is_ok: bool, took: Duration) {
        self.nested_tool_ran(tool, is_ok, took);
        self.tools.add(took);
    }

    /// Records the bytes of a result that a model reads, and the bytes that were omitted.
    pub fn tool_result(&self, tool: &str, kept: usize, left_out: usize) {
        let calls = self.turns.by_tool.get(tool);
        let count = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        calls.kept_bytes.add(count(kept));
        calls.left_out_bytes.add(count(left_out));
    }

    /// Records a tool call within another call. The duration of the outer call includes this one's.
    pub fn nested_tool_ran(&self, tool: &str, is_ok: bool, took: Duration) {
        let calls = self.turns.by_tool.get(tool);
        if is_ok { &calls.ok } else { &calls.failed }.increment();
        calls.duration.observe_duration(took);
    }

    /// Records the sums once the turn has its answer.
    pub fn end(&self) {
        for (phase, TimeSum(nanos)) in [(TurnPhase::Model, &self.model), (TurnPhase::Tools, &self.tools)] {
            let nanos = nanos.load(Ordering::Relaxed);
            if nanos > 0 {
                self.turns.phase(phase, Duration::from_nanos(nanos));
            }
        }
    }
}

/// The bucket bounds in seconds after the due time.
const LATENESS_SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3_600.0, 86_400.0];

/// Metrics of the due runs of all jobs.
#[derive(Debug)]
pub struct CronMetrics {
    fired: Counter,
    skipped: Counter,
    missed: Counter,
    failed: Counter,
    lateness: Histogram,
}

impl Default for CronMetrics {
    fn default() -> Self {
        let [fired, skipped, missed, failed] = <[Counter; 4]>::default();
        Self { fired, skipped, missed, failed, lateness: Histogram::new(LATENESS_SECONDS) }
    }
}

impl CronMetrics {
    /// Records due runs: `lateness` has an entry for each started run.
    pub fn fired(&self, lateness: &[Duration], skipped: u64, missed: u64, failed: u64) {
        self.fired.add(u64::try_from(lateness.len()).unwrap_or(u64::MAX));
        self.skipped.add(skipped);
        self.missed.add(missed);
        self.failed.add(failed);
        for late in lateness {
            self.lateness.observe_duration(*late);
        }
    }

    /// Records a run whose turn failed.
    pub fn run_failed(&self) {
        self.failed.increment();
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.counter(
            "daoyou_cron_slots_total",
            "Due times of jobs: run, skipped (the previous run was not done) or missed (the gateway did not run).",
        );
        page.samples("outcome", [("run", &self.fired), ("skipped", &self.skipped), ("missed", &self.missed)]);
        page.counter("daoyou_cron_failures_total", "Failed runs of jobs.");
        page.sample(&[], &self.failed);
        page.histogram("daoyou_cron_lateness_seconds", "Delay between a run's due time and its start.");
        page.sample(&[], &self.lateness);
    }
}
