//! Runs a plan layer by layer. The nodes of a layer run at the same time, up to a limit.

use std::num::NonZeroUsize;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::plan::CallPlan;

/// The effect of a failed node on nodes that do not need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnError {
    /// They still run.
    #[default]
    GoOn,
    /// Running ones are cancelled, the others do not start.
    StopOthers,
}

/// The outcome of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeOutcome<T> {
    Done(T),
    Failed(T),
    /// The node has started work that continues. The plan runs again when the work ends.
    Waits(T),
    /// A node that this node needs, identified by its index, failed or was skipped.
    Skipped {
        need: usize,
    },
    /// The plan was stopped first, or a node that this node needs is waiting.
    NotRun,
}

/// The code that does the work of a plan's nodes.
#[async_trait]
pub(super) trait NodeRunner: Sync {
    type Output: Send + Sync;

    /// Runs one node, identified by its index. All nodes that it needs are `Done` in `ends`. `cancel` asks the node to end early.
    /// Returns `Done`, `Failed` or `Waits`.
    async fn run(
        &self,
        node: usize,
        ends: &[NodeOutcome<Self::Output>],
        cancel: &CancellationToken,
    ) -> NodeOutcome<Self::Output>;
}

/// Runs `plan`, with at most `at_once` nodes at the same time, and returns the outcome of each node in input order. A layer
/// starts when the previous one has ended. `cancel` stops the plan: earlier outcomes are kept, and running nodes are asked to end
/// and awaited.
pub(super) async fn run_plan<R: NodeRunner>(
    plan: &CallPlan,
    runner: &R,
    at_once: NonZeroUsize,
    on_error: OnError,
    cancel: &CancellationToken,
) -> Vec<NodeOutcome<R::Output>> {
    let stop = cancel.child_token();
    let mut ends: Vec<NodeOutcome<R::Output>> = plan.ids.iter().map(|_| NodeOutcome::NotRun).collect();
    for layer in &plan.layers {
        let mut ready = Vec::new();
        for node in layer.iter().copied() {
            let missing = |need: &&usize| matches!(ends[**need], NodeOutcome::Failed(_) | NodeOutcome::Skipped { .. });
            let is_done = |need: &usize| matches!(ends[*need], NodeOutcome::Done(_));
            match plan.needs[node].iter().find(missing) {
                Some(need) => ends[node] = NodeOutcome::Skipped { need: *need },
                None if plan.needs[node].iter().all(is_done) => ready.push(node),
                None => {}
            }
        }
        let one = |node: usize| -> BoxFuture<'_, (usize, NodeOutcome<R::Output>)> {
            let (ends, stop) = (&ends, &stop);
            Box::pin(async move {
                if stop.is_cancelled() {
                    return (node, NodeOutcome::NotRun);
                }
                let end = runner.run(node, ends, stop).await;
                if matches!(end, NodeOutcome::Failed(_)) && on_error == OnError::StopOthers {
                    stop.cancel();
                }
                (node, end)
            })
        };
        let futures: Vec<_> = ready.into_iter().map(one).collect();
        let ended: Vec<_> = stream::iter(futures).buffer_unordered(at_once.get()).collect().await;
        for (node, end) in ended {
            ends[node] = end;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::super::plan::PlanNode;
    use super::*;

    /// The duration that marks a node whose work does not end while the plan runs.
    const FOR_EVER: u64 = 99;

    /// A runner that sleeps and fails as scripted, and records when each node ran.
    struct Sleeper {
        /// By index: the seconds, and whether the node fails.
        script: Vec<(u64, bool)>,
        began: Instant,
        ran: Mutex<HashMap<usize, (u64, u64)>>,
    }

    #[async_trait]
    impl NodeRunner for Sleeper {
        type Output = String;

        async fn run(&self, node: usize, _: &[NodeOutcome<String>], cancel: &CancellationToken) -> NodeOutcome<String> {
            let from = self.began.elapsed().as_secs();
            let (seconds, fails) = self.script[node];
            let slept = cancel.run_until_cancelled(sleep(Duration::from_secs(seconds))).await;
            self.ran.lock().unwrap().insert(node, (from, self.began.elapsed().as_secs()));
            match slept {
                None => NodeOutcome::Failed(format!("{node} cancelled")),
                Some(()) if seconds == FOR_EVER => NodeOutcome::Waits(format!("{node} waits")),
                Some(()) if fails => NodeOutcome::Failed(format!("{node} failed")),
                Some(()) => NodeOutcome::Done(format!("{node} done")),
            }
        }
    }

    /// A plan, the expected outcome of each node, and when it ran.
    struct PlanCase {
        name: &'static str,
        nodes: &'static [(&'static str, &'static [&'static str], u64, bool)],
        on_error: OnError,
        at_once: usize,
        ends: &'static [&'static str],
        ran: &'static [(usize, (u64, u64))],
    }

    #[rustfmt::skip]
    const TABLE: &[PlanCase] = &[
        PlanCase {
            name: "without needs all run at once",
            nodes: &[("a", &[], 3, false), ("b", &[], 1, false), ("c", &[], 2, false)],
            on_error: OnError::GoOn, at_once: 8,
            ends: &["0 done", "1 done", "2 done"],
            ran: &[(0, (0, 3)), (1, (0, 1)), (2, (0, 2))],
        },
        PlanCase {
            name: "no more than the bound",
            nodes: &[("a", &[], 3, false), ("b", &[], 1, false), ("c", &[], 2, false)],
            on_error: OnError::GoOn, at_once: 2,
            ends: &["0 done", "1 done", "2 done"],
            ran: &[(0, (0, 3)), (1, (0, 1)), (2, (1, 3))],
        },
        PlanCase {
            name: "a layer waits for the whole one before it",
            nodes: &[("a", &["b"], 1, false), ("b", &[], 1, false), ("c", &[], 4, false)],
            on_error: OnError::GoOn, at_once: 8,
            ends: &["0 done", "1 done", "2 done"],
            ran: &[(0, (4, 5)), (1, (0, 1)), (2, (0, 4))],
        },
        PlanCase {
            name: "what needs a failed one is skipped, the rest goes on",
            nodes: &[("a", &[], 1, true), ("b", &["a"], 1, false), ("c", &["b"], 1, false), ("d", &["e"], 1, false), ("e", &[], 2, false)],
            on_error: OnError::GoOn, at_once: 8,
            ends: &["0 failed", "skipped for 0", "skipped for 1", "3 done", "4 done"],
            ran: &[(0, (0, 1)), (3, (2, 3)), (4, (0, 2))],
        },
        PlanCase {
            name: "or all others stop, and what was done is kept",
            nodes: &[("a", &[], 2, true), ("b", &["a"], 1, false), ("c", &[], 1, false), ("d", &[], 9, false), ("e", &["c"], 1, false)],
            on_error: OnError::StopOthers, at_once: 8,
            ends: &["0 failed", "skipped for 0", "2 done", "3 cancelled", "not run"],
            ran: &[(0, (0, 2)), (2, (0, 1)), (3, (0, 2))],
        },
        PlanCase {
            name: "what needs one that waits is not run, the rest goes on",
            nodes: &[("a", &[], FOR_EVER, false), ("b", &["a"], 1, false), ("c", &["b"], 1, false), ("d", &[], 1, false), ("e", &["d"], 1, false)],
            on_error: OnError::GoOn, at_once: 8,
            ends: &["0 waits", "not run", "not run", "3 done", "4 done"],
            ran: &[(0, (0, 99)), (3, (0, 1)), (4, (99, 100))],
        },
    ];

    fn plan(row: &PlanCase) -> CallPlan {
        let needs = |needs: &[&str]| needs.iter().map(|need| (*need).to_owned()).collect();
        let node =
            |(id, wanted, ..): &(&str, &[&str], u64, bool)| PlanNode { id: (*id).to_owned(), needs: needs(wanted) };
        CallPlan::new(&row.nodes.iter().map(node).collect::<Vec<_>>()).unwrap()
    }

    fn describe(end: &NodeOutcome<String>) -> String {
        match end {
            NodeOutcome::Done(text) | NodeOutcome::Failed(text) | NodeOutcome::Waits(text) => text.clone(),
            NodeOutcome::Skipped { need } => format!("skipped for {need}"),
            NodeOutcome::NotRun => "not run".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn layers_run_in_order_and_errors_stop_or_skip_nodes() {
        for row in TABLE {
            let script = row.nodes.iter().map(|(_, _, seconds, fails)| (*seconds, *fails)).collect();
            let sleeper = Sleeper { script, began: Instant::now(), ran: Mutex::default() };
            let (at_once, cancel) = (NonZeroUsize::new(row.at_once).unwrap(), CancellationToken::new());
            let ends = run_plan(&plan(row), &sleeper, at_once, row.on_error, &cancel).await;
            assert_eq!(ends.iter().map(describe).collect::<Vec<_>>(), row.ends, "{}", row.name);
            let ran: HashMap<_, _> = row.ran.iter().copied().collect();
            assert_eq!(*sleeper.ran.lock().unwrap(), ran, "{}", row.name);
            assert!(!cancel.is_cancelled(), "{}", row.name);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_plan_keeps_its_outcomes_so_far() {
        let row = &TABLE[2];
        let script = row.nodes.iter().map(|(_, _, seconds, fails)| (*seconds, *fails)).collect();
        let sleeper = Sleeper { script, began: Instant::now(), ran: Mutex::default() };
        let (plan, at_once, cancel) = (plan(row), NonZeroUsize::MIN.saturating_add(7), CancellationToken::new());
        let (ends, ()) = tokio::join!(run_plan(&plan, &sleeper, at_once, OnError::GoOn, &cancel), async {
            sleep(Duration::from_secs(2)).await;
            cancel.cancel();
        });
        assert_eq!(ends.iter().map(describe).collect::<Vec<_>>(), ["not run", "1 done", "2 cancelled"]);
    }
}
