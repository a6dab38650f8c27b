//! Turns, and what they spend their time and tokens on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Counter, Family, Gauge, Held, Histogram, Kind, Page};

/// More of each than there are; whoever names a model in a chat must not make ever more series.
const CODES: usize = 64;
const PROVIDERS: usize = 50;
const MODELS: usize = 50;
const TOOLS: usize = 200;
const CURRENCIES: usize = 8;

/// Seconds: from a command's answer to the longest turn.
const SECONDS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// With the stable word for what went wrong.
    Failed(&'static str),
    Cancelled,
    /// Its message was given up.
    Dead,
}

/// A part of a turn's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// From the message's acceptance until its turn began.
    Waiting,
    /// All model calls of the turn together.
    Model,
    /// All tools of the turn together.
    Tools,
    /// The commit that ends the turn.
    End,
}

/// Tokens of one model.
#[derive(Debug)]
pub struct ModelUse {
    input: Counter,
    output: Counter,
    cached: Counter,
    /// Money by currency, in millionths of its unit.
    costs: Family<Counter>,
}

impl Default for ModelUse {
    fn default() -> Self {
        let none = Counter::default;
        Self { input: none(), output: none(), cached: none(), costs: Family::new(CURRENCIES) }
    }
}

/// Calls of one provider's models.
#[derive(Debug)]
pub struct ProviderCalls {
    ok: Counter,
    failed: Counter,
    cut_off: Counter,
    duration: Histogram,
}

/// Calls of one tool.
#[derive(Debug)]
pub struct ToolMetrics {
    ok: Counter,
    failed: Counter,
    duration: Histogram,
}

/// What is known of turns.
#[derive(Debug)]
pub struct TurnMetrics {
    done: Counter,
    failed: Counter,
    cancelled: Counter,
    dead: Counter,
    codes: Family<Counter>,
    running: Gauge,
    waiting: Histogram,
    model: Histogram,
    tools: Histogram,
    end: Histogram,
    whole: Histogram,
    models: Family<Family<ModelUse>>,
    by_provider: Family<ProviderCalls>,
    by_tool: Family<ToolMetrics>,
}

impl Default for TurnMetrics {
    fn default() -> Self {
        let seconds = || Histogram::new(SECONDS);
        Self {
            done: Counter::default(),
            failed: Counter::default(),
            cancelled: Counter::default(),
            dead: Counter::default(),
            codes: Family::new(CODES),
            running: Gauge::default(),
            waiting: seconds(),
            model: seconds(),
            tools: seconds(),
            end: seconds(),
            whole: seconds(),
            models: Family::with(PROVIDERS, || Family::new(MODELS)),
            by_provider: Family::with(PROVIDERS, || ProviderCalls {
                ok: Counter::default(),
                failed: Counter::default(),
                cut_off: Counter::default(),
                duration: Histogram::new(SECONDS),
            }),
            by_tool: Family::with(TOOLS, || ToolMetrics {
                ok: Counter::default(),
                failed: Counter::default(),
                duration: Histogram::new(SECONDS),
            }),
        }
    }
}

impl TurnMetrics {
    /// A turn runs until what is answered is dropped.
    pub fn run(&self) -> Held {
        self.running.hold()
    }

    /// A turn has ended, `whole` after its message was accepted.
    pub fn ended(&self, outcome: Outcome, whole: Duration) {
        match outcome {
            Outcome::Done => self.done.one(),
            Outcome::Cancelled => self.cancelled.one(),
            Outcome::Dead => self.dead.one(),
            Outcome::Failed(code) => {
                self.failed.one();
                self.codes.get(code).one();
            }
        }
        self.whole.time(whole);
    }

    /// A turn spent `took` on this.
    pub fn phase(&self, phase: Phase, took: Duration) {
        let histogram = match phase {
            Phase::Waiting => &self.waiting,
            Phase::Model => &self.model,
            Phase::Tools => &self.tools,
            Phase::End => &self.end,
        };
        histogram.time(took);
    }

    /// A model took so many tokens outside of any turn.
    pub fn model_read(&self, provider: &str, model: &str, input: u64) {
        self.models.get(provider).get(model).input.add(input);
    }

    /// Measures one turn.
    pub fn meter(&self) -> TurnMeter<'_> {
        TurnMeter { turns: self, model: Sum::default(), tools: Sum::default() }
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.family("daoyou_turns_total", Kind::Counter, "Turns that ended, by how.");
        for (outcome, count) in
            [("done", &self.done), ("failed", &self.failed), ("cancelled", &self.cancelled), ("dead", &self.dead)]
        {
            page.sample(&[("outcome", outcome)], count.get());
        }
        page.family("daoyou_turn_failures_total", Kind::Counter, "Turns that failed, by the code of their error.");
        for (code, count) in self.codes.all() {
            page.sample(&[("code", &code)], count.get());
        }
        page.family("daoyou_turns_running", Kind::Gauge, "Turns that run now.");
        page.sample(&[], self.running.get());
        page.family(
            "daoyou_turn_phase_duration_seconds",
            Kind::Histogram,
            "Where the time of a turn went: waiting in its lane, all its model calls, all its tools, the commit of its end.",
        );
        for (phase, histogram) in
            [("waiting", &self.waiting), ("model", &self.model), ("tools", &self.tools), ("end", &self.end)]
        {
            page.histogram(&[("phase", phase)], histogram);
        }
        page.family(
            "daoyou_turn_duration_seconds",
            Kind::Histogram,
            "From the acceptance of a message to the end of its turn.",
        );
        page.histogram(&[], &self.whole);
        self.write_model_calls(page);
        self.write_tokens(page);
        self.write_costs(page);
        self.write_tools(page);
    }

    fn write_model_calls(&self, page: &mut Page) {
        let providers = self.by_provider.all();
        page.family(
            "daoyou_model_calls_total",
            Kind::Counter,
            "Calls of models with their retries, by how they ended; cut_off is a turn that was stopped meanwhile.",
        );
        for (provider, calls) in &providers {
            for (outcome, count) in [("ok", &calls.ok), ("failed", &calls.failed), ("cut_off", &calls.cut_off)] {
                page.sample(&[("provider", provider), ("outcome", outcome)], count.get());
            }
        }
        page.family("daoyou_model_call_duration_seconds", Kind::Histogram, "How long calls of models took.");
        for (provider, calls) in &providers {
            page.histogram(&[("provider", provider)], &calls.duration);
        }
    }

    fn write_tokens(&self, page: &mut Page) {
        page.family(
            "daoyou_model_tokens_total",
            Kind::Counter,
            "Tokens of models: input (with those read from the service's cache), output, and cached (of the input).",
        );
        for (provider, models) in self.models.all() {
            for (model, used) in models.all() {
                for (kind, count) in [("input", &used.input), ("output", &used.output), ("cached", &used.cached)] {
                    page.sample(&[("provider", &provider), ("model", &model), ("kind", kind)], count.get());
                }
            }
        }
    }

    fn write_costs(&self, page: &mut Page) {
        page.family(
            "daoyou_model_cost_total",
            Kind::Counter,
            "What models cost, in units of the currency, where their price is known.",
        );
        for (provider, models) in self.models.all() {
            for (model, used) in models.all() {
                for (currency, micros) in used.costs.all() {
                    let labels = [("provider", &*provider), ("model", &*model), ("currency", &*currency)];
                    page.sample(&labels, micros.get() as f64 / 1e6);
                }
            }
        }
    }

    fn write_tools(&self, page: &mut Page) {
        let tools = self.by_tool.all();
        page.family("daoyou_tool_calls_total", Kind::Counter, "Calls of tools, by how they ended.");
        for (tool, calls) in &tools {
            for (outcome, count) in [("ok", &calls.ok), ("failed", &calls.failed)] {
                page.sample(&[("tool", tool), ("outcome", outcome)], count.get());
            }
        }
        page.family("daoyou_tool_call_duration_seconds", Kind::Histogram, "How long calls of tools took.");
        for (tool, calls) in &tools {
            page.histogram(&[("tool", tool)], &calls.duration);
        }
    }
}

/// Measures one turn while it runs.
#[derive(Debug)]
pub struct TurnMeter<'a> {
    turns: &'a TurnMetrics,
    model: Sum,
    tools: Sum,
}

/// The time of one model call. Dropped without a word it was cut off.
#[derive(Debug)]
pub struct Asking<'a> {
    sum: &'a Sum,
    calls: Arc<ProviderCalls>,
    began: Instant,
    ended: Option<bool>,
    counts: bool,
}

impl Asking<'_> {
    /// An answer came, or none.
    pub fn ended(mut self, is_ok: bool) {
        self.ended = Some(is_ok);
    }

    /// Nobody was asked.
    pub fn forget(mut self) {
        self.counts = false;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        let took = self.began.elapsed();
        self.sum.add(took);
        self.calls.duration.time(took);
        match self.ended {
            Some(true) => self.calls.ok.one(),
            Some(false) => self.calls.failed.one(),
            None => self.calls.cut_off.one(),
        }
    }
}

/// Nanoseconds; nothing yet is no observation.
#[derive(Debug, Default)]
struct Sum(AtomicU64);

impl Sum {
    fn add(&self, took: Duration) {
        // What took no measurable time was there all the same.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    fn observe(&self, histogram: &Histogram) {
        match self.0.load(Ordering::Relaxed) {
            0 => {}
            nanos => histogram.time(Duration::from_nanos(nanos)),
        }
    }
}

impl TurnMeter<'_> {
    /// A model is asked until what is answered is dropped, also by a turn that was stopped meanwhile.
    pub fn ask_model(&self, provider: &str) -> Asking<'_> {
        let calls = self.turns.by_provider.get(provider);
        Asking { sum: &self.model, calls, began: Instant::now(), ended: None, counts: true }
    }

    /// A model answered. `cached` is that part of `input` which came from the service's cache.
    pub fn model_used(&self, provider: &str, model: &str, input: u64, output: u64, cached: u64) {
        let used: Arc<ModelUse> = self.turns.models.get(provider).get(model);
        used.input.add(input);
        used.output.add(output);
        used.cached.add(cached);
    }

    /// A model's answer cost so many millionths of the currency's unit.
    pub fn model_cost(&self, provider: &str, model: &str, currency: &str, micros: u64) {
        self.turns.models.get(provider).get(model).costs.get(currency).add(micros);
    }

    /// A tool ran. `tool` is a registered name: models write what they like.
    pub fn tool_ran(&self, tool: &str, is_ok: bool, took: Duration) {
        let calls = self.turns.by_tool.get(tool);
        if is_ok { &calls.ok } else { &calls.failed }.one();
        calls.duration.time(took);
        self.tools.add(took);
    }

    /// The turn has its answer.
    pub fn end(&self) {
        self.model.observe(&self.turns.model);
        self.tools.observe(&self.turns.tools);
    }
}
